"""Clustering problems: views with cells missing, K, and two tracks that are never mixed.

On the *internal* track nothing a search sees depends on labels: ``val_loss`` is ``1 - S`` of
`internal`. On the *labelled* track ``val_loss`` is ``1 - ACC`` on a seeded fifth of the rows, the
same for every method; test scores are then of the other rows only. Where truth is known the test
split holds errors against it; a search opens it once, at its end.

A fidelity is the share of a method's full work. Direct methods fit ``rows(fidelity)``, prefixes
of one order; methods that iterate run that share of their iterations over all rows. At 0 nothing
is fitted and all rows are one cluster.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.method import Problem
from lamps.types import Json, Objective, Split
from lamps_plugins._views.data import Scaler, ViewData, fit_scaler
from lamps_plugins._views.evaluation import DEV_SHARE, TRACKS, Evaluator
from lamps_plugins._views.internal import InternalScore, internal_score, view_separation
from lamps_plugins._views.masks import mask_facts

__all__ = ["FIDELITIES", "OBJECTIVES", "TRACKS", "ClusterProblem"]

FIDELITIES = (0.0, 0.05, 0.25, 1.0)

_LEAST_ROWS = 200
_LEAST_ROWS_A_CLUSTER = 10

VAL_LOSS = Objective(
    "val_loss",
    doc="Internal track: 1 - label-free score. Labelled track: 1 - accuracy on the rows whose "
    "labels are shown to the search.",
)
OBJECTIVES: tuple[Objective, ...] = (
    VAL_LOSS,
    Objective(
        "val_view_loss",
        doc="1 - share of the observed views' variance that lies between clusters, mean over "
        "views: needs no labels, and looks at all methods in the same space.",
    ),
    Objective("train_s", "s", noisy=True, doc="Seconds of fitting over all landmarks so far."),
    Objective("peak_bytes", "bytes", noisy=True, doc="Largest resident memory of the worker."),
    Objective("size_bytes", "bytes", doc="Bytes of what assigns new rows."),
)


class ClusterProblem(Problem):
    """Views of n rows, K, and an evaluator that methods have no part in.

    Args:
        name: What lists call it.
        raw: The views as they came, with the mask.
        truth: Class of each row, only for the evaluator; None if unknown. Shape: [n] int64.
        track: One of `TRACKS`.
        source: JSON from which the family makes it again.
        facts: What the card says besides.
        notes: Sentences that the user should see.
        seed: Of the order of the rows, and of the rows whose labels are shown.
        complete: The views before cells were hidden; None if unknown.
        scaler: How to standardise; by the observed rows if None.

    Attributes:
        raw: See above.
        data: The views, standardised; what methods work on.
        scaler: How they were standardised.
        n_clusters: K.
        track: See above.
        test_opened: How often the truth was asked for a test score.

    Raises:
        ConfigError: No such track, or the labelled one without labels.
        ProblemError: A view that tells nothing, or labels of another length.
    """

    family: ClassVar[str] = "multi-view-clustering"

    def __init__(
        self,
        *,
        name: str,
        raw: ViewData,
        truth: NDArray[np.int64] | None = None,
        track: str = "internal",
        source: Mapping[str, Json] | None = None,
        facts: Mapping[str, Json] | None = None,
        notes: Sequence[str] = (),
        seed: int = 0,
        complete: ViewData | None = None,
        scaler: Scaler | None = None,
    ) -> None:
        if track not in TRACKS:
            raise ConfigError(f"no track {track!r}. {did_you_mean(track, TRACKS)}")
        if truth is not None and truth.shape != (raw.n,):
            raise ProblemError(
                f"there are {len(truth)} labels for {raw.n} rows; labels need one value a row"
            )
        if track == "labelled" and truth is None:
            raise ConfigError(
                "track 'labelled' needs labels; give them with --labels, or use track 'internal'"
            )
        self.name, self.track, self.seed, self.notes = name, track, seed, tuple(notes)
        if truth is not None and truth.size and (truth == truth[0]).all():
            self.notes += ("all labels are of one class, so scores against them tell little",)
        self.raw, self.n_clusters = raw, raw.n_clusters
        self.scaler = scaler or fit_scaler(raw)
        self.data = self.scaler.apply(raw)
        self.test_opened = 0
        self._source, self._facts = dict(source or {}), dict(facts or {})
        self._order = _nested_order(raw, seed)
        self._evaluator = Evaluator(
            truth,
            self._dev_rows() if track == "labelled" else np.empty(0, dtype=np.int64),
            None if complete is None else self.scaler.apply(complete),
        )
        self._freeze()

    def _freeze(self) -> None:
        for data in (self.raw, self.data):
            for array in (*data.arrays, data.mask):
                array.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()  # pickling forgets it

    def _dev_rows(self) -> NDArray[np.int64]:
        count = max(1, round(DEV_SHARE * self.raw.n))
        rng = np.random.default_rng([self.seed, 1])
        return np.sort(rng.permutation(self.raw.n)[:count]).astype(np.int64)

    # --- what methods work on -----------------------------------------------------------------

    def rows(self, fidelity: float) -> NDArray[np.int64]:
        """Rows of a landmark, a prefix of one seeded order that takes groups evenly.

        Args:
            fidelity: Share of the work; none of the rows at 0, all of them at 1, else at least
                ten a cluster and 200.
        """
        if fidelity <= 0.0:
            return self._order[:0]
        least = max(_LEAST_ROWS_A_CLUSTER * self.n_clusters, _LEAST_ROWS)
        return self._order[: max(math.ceil(fidelity * self.raw.n), least)]

    def check_fidelity(self, fidelity: float) -> None:
        """Refuse a fidelity at which there is no landmark."""
        if fidelity not in self.fidelities:
            known = ", ".join(f"{f:g}" for f in self.fidelities)
            raise ProblemError(f"fidelity {fidelity!r} is no landmark, expected one of {known}")

    # --- measuring ----------------------------------------------------------------------------

    def score(
        self,
        labels: NDArray[np.int64],
        embedding: NDArray[np.float32],
        rows: NDArray[np.int64],
        split: Split,
    ) -> dict[str, float]:
        """Objectives of a labelling of some rows; the common code that judges every method.

        Args:
            labels: Shape: [len(rows)], values 0..K-1.
            embedding: Shape: [len(rows), q].
            rows: Which rows of the problem these are.
            split: ``val``, or ``test`` for the scores against truth.
        """
        if split == "test":
            self.test_opened += 1
            return self._evaluator.test_losses(labels, rows) if self._evaluator.knows else {}
        if self.track == "labelled":
            loss = self._evaluator.dev_error(labels, rows)
        else:
            loss = 1.0 - self.internal(labels, embedding).total
        views = view_separation(self.data.take(rows), labels)
        return {"val_loss": loss, "val_view_loss": 1.0 - views}

    def score_signals(
        self,
        labels: NDArray[np.int64],
        embedding: NDArray[np.float32],
        rows: NDArray[np.int64],
        split: Split,
    ) -> dict[str, float]:
        """Diagnostic numbers that go with `score`: parts of the internal score, cluster sizes."""
        if split == "test":
            known = self._evaluator.knows
            return self._evaluator.test_interval(labels, rows) if known else {}
        parts = self.internal(labels, embedding)
        sizes = np.bincount(labels, minlength=self.n_clusters) / len(labels)
        return {
            "silhouette": parts.silhouette,
            "stability": parts.stability,
            "separation": parts.separation,
            "clusters": float((sizes > 0).sum()),
            "largest_cluster": float(sizes.max()),
        }

    def internal(self, labels: NDArray[np.int64], embedding: NDArray[np.float32]) -> InternalScore:
        """The label-free score; the last one is remembered."""
        key = hashlib.sha256(labels.tobytes() + np.ascontiguousarray(embedding).tobytes())
        known, score = _last_scores.get(self, ("", None))
        if score is None or known != key.hexdigest():
            score = internal_score(labels, embedding, self.n_clusters)
            _last_scores[self] = (key.hexdigest(), score)
        return score

    def imputation(
        self, imputed: Sequence[NDArray[np.float32]], rows: NDArray[np.int64]
    ) -> dict[str, float]:
        """``nrmse.VIEW`` of filled views where the hidden cells are known; see `Evaluator`."""
        return self._evaluator.imputation_errors(imputed, self.data.mask, rows)

    # --- the contract -------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return FIDELITIES

    @property
    def unit(self) -> str:
        return "rows"

    def amount(self, fidelity: float) -> float:
        """Rows that a direct method looks at."""
        return float(len(self.rows(fidelity)))

    def reference(self) -> dict[str, Json]:
        return {**self._source, "name": self.name, "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        total = hashlib.sha256(f"{self.track}:{self.seed}:{self.data.digest()}".encode())
        total.update(self._evaluator.fingerprint().encode())
        return total.hexdigest()

    def floor(self, split: Split = "val") -> dict[str, float]:
        """Scores of one cluster for all rows."""
        if split == "test":
            return self._evaluator.constant_losses() if self._evaluator.knows else {}
        labelled = self.track == "labelled"
        loss = self._evaluator.constant_dev_error() if labelled else 1.0
        return {"val_loss": loss, "val_view_loss": 1.0}

    def card(self) -> dict[str, Json]:
        views: dict[str, Json] = {
            name: {"features": d, "constant_features": d - kept, "observed_rows": int(seen)}
            for name, d, kept, seen in zip(
                self.raw.names, self.raw.dims, self.data.dims, self.raw.mask.sum(axis=0),
                strict=True,
            )
        }  # fmt: skip
        return {
            **self._facts,
            "name": self.name,
            "rows": self.raw.n,
            "views": views,
            "clusters": self.n_clusters,
            "track": self.track,
            "labels_shown_to_the_search": len(self._evaluator.dev_rows),
            "truth": "known to the evaluator" if self._evaluator.knows else "unknown",
            **mask_facts(self.raw.mask),
            "landmarks": [len(self.rows(f)) for f in self.fidelities],
            "fingerprint": self.fingerprint(),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.data!r}, K={self.n_clusters})"


def _nested_order(raw: ViewData, seed: int) -> NDArray[np.int64]:
    """All rows, shuffled, so that every prefix holds each group in its share."""
    rng = np.random.default_rng([seed, 0])
    order: NDArray[np.int64] = rng.permutation(raw.n).astype(np.int64)
    if raw.group is None:
        return order
    place = np.empty(raw.n)
    for g in np.unique(raw.group):
        members = order[raw.group[order] == g]
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return order[np.argsort(place[order], kind="stable")]


_last_scores: WeakKeyDictionary[ClusterProblem, tuple[str, InternalScore]] = WeakKeyDictionary()
"""The last internal score of each problem by a hash of what was scored; no part of its data."""
