"""Data, objectives and tracks of the family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.fair_multi_view_clustering._data import BUILTIN, builtin
from lamps_plugins.fair_multi_view_clustering._opening import open_any
from lamps_plugins.fair_multi_view_clustering._problem import FAMILY, fairness_losses
from lamps_plugins.fair_multi_view_clustering._refused import written
from lamps_plugins.fair_multi_view_clustering.blind_kmeans import BlindKmeans

from lamps.errors import ConfigError, ProblemError

REFUSED = list(FAMILY.bad_inputs())


def test_fairness_of_clusters_that_hold_groups_evenly_is_perfect() -> None:
    labels, group = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    assert fairness_losses(labels, group, 2) == {"unfairness": 0.0, "imbalance": 0.0, "tv": 0.0}


def test_clusters_that_are_the_groups_are_wholly_unfair() -> None:
    group = np.repeat([0, 1], 20)
    found = fairness_losses(group, group, 2)
    assert found == {"unfairness": 1.0, "imbalance": 1.0, "tv": 0.5}


def test_an_empty_cluster_is_no_way_to_be_fair() -> None:
    group = np.tile([0, 1], 20)
    assert fairness_losses(np.zeros(40, dtype=np.int64), group, 2)["unfairness"] == 1.0


def test_untouched_methods_are_not_the_fairest() -> None:
    problem = open_any("toy", {})
    method = BlindKmeans.from_params({})
    method.partial_fit(problem, 0.0, rng=np.random.default_rng(0))
    found = method.evaluate(problem).objectives
    assert found["val_unfairness"] == problem.floor()["val_unfairness"] == 1.0


@pytest.mark.parametrize("name", ["plant", "nutri", "toy"])
def test_builtin_data_is_what_it_says(name: str) -> None:
    found, again = builtin(name, seed=1), builtin(name, seed=1)
    assert all((a == b).all() for a, b in zip(found.arrays, again.arrays, strict=True))
    problem = open_any(name, {"data_seed": 1})
    assert problem.n_clusters == found.n_clusters
    assert problem.card()["groups"] == np.bincount(found.group).tolist()


def test_src2_has_the_published_shapes() -> None:
    problem = open_any("src2", {})
    assert problem.raw.dims == (64, 288, 40, 16)
    assert problem.raw.n == 3594
    assert problem.card()["balance_ceiling"] == 1.0


@pytest.mark.slow
def test_rev2_swaps_half_of_the_images() -> None:
    found = builtin("rev2")
    assert [a.shape for a in found.arrays] == [(5000, 784), (5000, 324), (5000, 100), (5000, 63)]
    dark = found.arrays[0].mean(axis=1)
    assert dark[found.group == 1].min() > dark[found.group == 0].max()


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_the_planted_group_follows_the_class_as_asked(rho: float) -> None:
    found = builtin("plant", rho=rho)
    even = found.truth % 2 == 0
    assert found.group[even].mean() == pytest.approx(0.5 + rho / 2, abs=0.05)
    assert found.group[~even].mean() == pytest.approx(0.5 - rho / 2, abs=0.05)


def test_delta_is_the_distance_of_the_groups() -> None:
    plain, moved = builtin("plant", delta=0.0), builtin("plant", delta=2.0)
    for x, y in zip(plain.arrays, moved.arrays, strict=True):
        shift = y - x
        length = np.median(np.linalg.norm(x, axis=1))
        np.testing.assert_allclose(np.linalg.norm(shift, axis=1), 2.0 * length, rtol=1e-3)


def test_prefixes_hold_groups_in_their_share() -> None:
    problem = open_any("plant", {})
    rows = problem.rows(0.25)
    share = problem.group.mean()
    assert problem.group[rows].mean() == pytest.approx(share, abs=0.01)


def test_a_problem_is_reopened_from_its_reference(tmp_path: Path) -> None:
    for problem in (open_any("toy", {"data_seed": 3}), open_any(None, written(tmp_path))):
        again = FAMILY.reopen(problem.reference())
        assert again.fingerprint() == problem.fingerprint()
        assert again.track == problem.track


def test_a_changed_group_is_noticed(tmp_path: Path) -> None:
    options = written(tmp_path)
    reference = open_any(None, options).reference()
    written(tmp_path, lambda good: good.update(group=1 - good["group"]))
    with pytest.raises(ProblemError, match="changed"):
        FAMILY.reopen(reference)


def test_groups_may_have_any_numbers(tmp_path: Path) -> None:
    problem = open_any(
        None, written(tmp_path, lambda good: good.update(group=good["group"] * 7 + 3))
    )
    assert set(problem.group.tolist()) == {0, 1}


def test_truth_changes_nothing_on_the_internal_track(tmp_path: Path) -> None:
    def shuffle(good: dict[str, Any]) -> None:
        good["labels"] = np.random.default_rng(0).permutation(good["labels"])

    values = []
    for name, edit in (("a", lambda good: None), ("b", shuffle)):
        folder = tmp_path / name
        folder.mkdir()
        problem = open_any(None, written(folder, edit))
        method = BlindKmeans.from_params({})
        method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))
        values.append(method.evaluate(problem).objectives)
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("call", "culprit"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_bad_input_is_refused_in_one_line(call: Any, culprit: str) -> None:
    with pytest.raises((ProblemError, ConfigError)) as caught:
        call()
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_are_listed() -> None:
    assert set(BUILTIN) == {"src2", "rev2", "plant", "nutri", "toy"}
