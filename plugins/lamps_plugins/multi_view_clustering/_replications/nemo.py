"""Strong simple baselines against mean imputation, and how far the label-free score is to trust.

Paper: Rappoport and Shamir, NEMO, Bioinformatics 2019: averaged neighbour graphs need no
imputation and do not lose to it. The same is asked of nearest-neighbour imputation. C3 to C7 are
ours: every search without labels rests on the score S of `lamps_plugins._views.internal`, so its
rank correlation with true accuracy over a pool is measured per data set, with permuted truth as
control.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import Json, digest
from lamps_plugins._views.builtin import load
from lamps_plugins._views.clusterer import Clusterer
from lamps_plugins._views.linear import kmeans
from lamps_plugins._views.metrics import accuracy, ari
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._problem import FAMILY

RATES = (0.5, 0.7)
DATA: Mapping[Profile, tuple[str, ...]] = {
    "quick": ("hand6", "dig5"),
    "full": ("hand6", "dig5", "mnist5", "text2"),
}

Setting = tuple[str, dict[str, Json]]

POOL: tuple[Setting, ...] = (
    ("concat-kmeans", {}),
    ("concat-kmeans", {"weights": "equal"}),
    ("mean-impute-kmeans", {}),
    ("mean-impute-kmeans", {"weights": "by_size"}),
    ("single-view-kmeans", {"view": 0}),
    ("single-view-kmeans", {"view": 1}),
    ("single-view-kmeans", {"view": 2}),
    ("knn-impute", {}),
    ("knn-impute", {"neighbours": 3}),
    ("knn-impute", {"weights": "by_size"}),
    ("ridge-impute", {}),
    ("ridge-impute", {"alpha": 10.0}),
    ("pca-kmeans", {}),
    ("pca-kmeans", {"components": 5}),
    ("fused-spectral", {}),
    ("fused-spectral", {"neighbours": 5}),
    ("fused-spectral", {"neighbours": 30}),
    ("coreg-spectral", {}),
    ("lmvsc", {}),
    ("lmvsc", {"anchors": 2}),
    ("can-anchors", {}),
    ("can-anchors", {"anchors": 4}),
    ("eomsc", {}),
    ("eomsc", {"anchors": 1}),
    ("opimc", {}),
    ("nemo", {}),
)
"""What the correlation of C3 runs over: quick direct methods, several in more than one setting."""

SLOW: tuple[Setting, ...] = (
    ("soft-impute", {}),
    ("soft-impute", {"shrink": 0.2}),
    ("pca-gmm", {}),
    ("coreg-spectral", {"lam": 0.5}),
    ("lfimvc", {}),
    ("eeimvc", {}),
    ("simcadc", {}),
    ("nemo", {"neighbour_ratio": 30}),
)
"""What the full profile adds."""


class NemoReplication(Replication):
    """Accuracy by optimal assignment; a seed is a seed of mask and method."""

    claims = (
        Claim(
            id="C1",
            statement="NEMO beats k-means after mean imputation.",
            quantity="accuracy on hand6 with half and 70 % of the rows incomplete, difference",
            compare="difference", direction=">", threshold=0.0,
        ),
        Claim(
            id="C2",
            statement="Nearest-neighbour imputation beats mean imputation, both before k-means.",
            quantity="accuracy on hand6 with half and 70 % of the rows incomplete, difference",
            compare="difference", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="N1",
            statement="K-means on a random embedding beats k-means after mean imputation.",
            quantity="accuracy on hand6 with half and 70 % of the rows incomplete, difference",
            compare="difference", direction=">", threshold=0.0, source="ours", control=True,
        ),
        Claim(
            id="C3",
            statement="The label-free score ranks a pool better than chance.",
            quantity="Kendall's tau of score and accuracy over the pool, per data set",
            compare="difference", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="C4",
            statement="The candidate with the best label-free score beats the median of the pool.",
            quantity="accuracy, pick - median, per data set",
            compare="difference", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="C5",
            statement="It comes within 0.05 of the best candidate of the pool.",
            quantity="accuracy, pick - best, per data set",
            compare="difference", direction=">=", threshold=-0.05, source="ours",
        ),
        Claim(
            id="C6",
            statement="Separation T in the observed views ranks a pool better than the score S.",
            quantity="Kendall's tau with accuracy over the pool, T - S, per data set",
            compare="difference", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="C7",
            statement="The candidate with the best view separation is within 0.05 of the best.",
            quantity="accuracy, pick - best, per data set",
            compare="difference", direction=">=", threshold=-0.05, source="ours",
        ),
        Claim(
            id="N2",
            statement="The score also ranks a pool against truths that were permuted, each anew.",
            quantity="Kendall's tau of score and adjusted Rand index, which has no bias by size",
            compare="difference", direction=">", threshold=0.0, source="ours", control=True,
        ),
    )  # fmt: skip

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """Five masks."""
        return (0, 1, 2, 3, 4)

    def fingerprint(self, profile: Profile) -> str:
        """Hash of the settings; the data are fixed by their packages."""
        return digest([list(RATES), list(DATA[profile]), [list(s) for s in pool_of(profile)], 1])

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one mask seed."""
        for rate in RATES:
            if ask.wants("C1", "C2", "N1", unit=f"hand6 {rate:g}"):
                ask.say(f"seed {ask.seed}: baselines on hand6, {rate:g} of the rows incomplete")
                yield from _baselines(ask, rate)
        for name in DATA[ask.profile]:
            if ask.wants("C3", "C4", "C5", "C6", "C7", "N2", unit=name):
                ask.say(f"seed {ask.seed}: the pool of {len(pool_of(ask.profile))} on {name}")
                yield from _correlation(ask, name)


def pool_of(profile: Profile) -> tuple[Setting, ...]:
    """What the correlation runs over."""
    return POOL if profile == "quick" else (*POOL, *SLOW)


def opened(name: str, rate: float, seed: int) -> ClusterProblem:
    """A built-in problem with the mask of a seed."""
    return FAMILY.open_problem(name, {"rate": rate, "mask_seed": seed, "split_seed": seed})


def fitted(problem: ClusterProblem, setting: Setting, seed: int) -> Clusterer[Any]:
    """A method at full fidelity."""
    name, params = setting
    module = import_module(f"lamps_plugins.multi_view_clustering.{name.replace('-', '_')}")
    kind: type[Clusterer[Any]] = getattr(module, name.title().replace("-", ""))
    method = kind.from_params(params)
    return method.partial_fit(problem, 1.0, rng=np.random.default_rng(seed))


def truth_of(name: str) -> NDArray[np.int64]:
    """Classes of a built-in problem's rows."""
    return load(name).truth


def _accuracy(problem: ClusterProblem, method: Clusterer[Any], truth: NDArray[np.int64]) -> float:
    return accuracy(truth, method.labels_of_all(problem))


def _baselines(ask: Ask, rate: float) -> Iterator[Measurement]:
    problem, truth, unit = opened("hand6", rate, ask.seed), truth_of("hand6"), f"hand6 {rate:g}"
    mean = _accuracy(problem, fitted(problem, ("mean-impute-kmeans", {}), ask.seed), truth)
    for claim, name in (("C1", "nemo"), ("C2", "knn-impute")):
        found = fitted(problem, (name, {}), ask.seed)
        yield ask.measured(claim, unit, _accuracy(problem, found, truth), mean)
    rng = np.random.default_rng(ask.seed)
    noise, _ = kmeans(rng.normal(size=(problem.data.n, 10)), problem.n_clusters, rng, restarts=3)
    yield ask.measured("N1", unit, accuracy(truth, noise), mean)


def _correlation(ask: Ask, name: str) -> Iterator[Measurement]:
    from scipy.stats import kendalltau

    problem, truth = opened(name, 0.5, ask.seed), truth_of(name)
    rng = np.random.default_rng(ask.seed)
    scores, views, right, chance = [], [], [], []
    pool = pool_of(ask.profile)
    for setting in pool:
        method = fitted(problem, setting, ask.seed)
        losses = method.evaluate(problem).objectives
        scores.append(1.0 - losses["val_loss"])
        views.append(1.0 - losses["val_view_loss"])
        right.append(_accuracy(problem, method, truth))
        chance.append(ari(rng.permutation(truth), method.labels_of_all(problem)))
    rows: list[Json] = [
        [*setting, round(s, 4), round(t, 4), round(a, 4)]
        for setting, s, t, a in zip(pool, scores, views, right, strict=True)
    ]
    pick = right[int(np.argmax(scores))]
    tau = kendalltau(scores, right).statistic
    yield ask.measured("C3", name, tau, pool=rows)
    yield ask.measured("C4", name, pick, float(np.median(right)))
    yield ask.measured("C5", name, pick, max(right))
    yield ask.measured("C6", name, kendalltau(views, right).statistic, tau)
    yield ask.measured("C7", name, right[int(np.argmax(views))], max(right))
    yield ask.measured("N2", name, kendalltau(scores, chance).statistic)
