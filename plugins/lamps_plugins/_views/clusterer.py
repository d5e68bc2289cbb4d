"""The base class of all clusterers: everything but the clustering itself.

    class ConcatKmeans(Clusterer[Params]):
        spec = MethodSpec(family="multi-view-clustering", summary="...")

        def cluster(self, data, *, rng):
            return Clustering(labels=..., embedding=...)      # of the rows of `data`, no others

A direct method is fitted anew on the rows of each landmark, from the same stream, so what it
gives does not depend on earlier stops. Fits run with one thread in BLAS and OpenMP: on shared
cores more threads cost more time than they save, and seconds would be noise.

New rows are assigned by the method's own `assign`, or by `ClassMeans` where it has none; how often
that rule agrees with the method's own labels is a signal, ``rule_agreement``.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lamps.errors import ContractError, MethodFailed
from lamps.method import Method, State
from lamps.space import as_json
from lamps.types import Evaluation, Json, Split
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.rule import ClassMeans

if TYPE_CHECKING:
    from lamps_plugins._views.problem import ClusterProblem

__all__ = ["Clusterer", "Clustering"]

P = TypeVar("P")

Assignment = tuple[NDArray[np.int64], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """What a clusterer says of n rows.

    Args:
        labels: Values 0..K-1; clusters may be empty. Shape: [n] int64.
        embedding: What the labels were read off; the label-free score looks at it. Shape: [n, q].
        soft: Share of each cluster in each row, or None. Shape: [n, K] float32.
        imputed: All views with hidden cells filled, or None. Shape: V times [n, d_v].
        trace: One row a checkpoint: losses, internal scores.
    """

    labels: NDArray[np.int64]
    embedding: NDArray[np.float32]
    soft: NDArray[np.float32] | None = None
    imputed: tuple[NDArray[np.float32], ...] | None = None
    trace: tuple[Mapping[str, float], ...] = ()


class Clusterer(Method["ClusterProblem", P]):
    """A method that labels rows of several views.

    Attributes:
        result_: What it says of `rows_`; None before the first landmark.
        rows_: Rows of the problem that it was fitted on, in the order of `result_`.
        rule_: Class means of those rows.
    """

    params: P

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.result_: Clustering | None = None
        self.rows_: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.rule_: ClassMeans | None = None

    # --- what a method says -------------------------------------------------------------------

    @abstractmethod
    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Cluster all rows of ``data``.

        Args:
            data: Standardised views; hidden cells are 0 and mean nothing, see ``data.mask``.
            rng: All randomness comes from here.
        """

    def assign(self, data: ViewData) -> Assignment:
        """Labels [n] and shares [n, K] of rows that were not fitted; changes nothing.

        Args:
            data: Views standardised as the fitted rows were, with their own mask.
        """
        assert self.rule_ is not None
        return self.rule_.assign(data)

    def signals(self) -> dict[str, float]:
        """Diagnostic numbers of the method's own that go with an evaluation."""
        return {}

    def model_state(self) -> State:
        """What `assign` needs beside the class means; arrays and JSON."""
        return {}

    def load_model_state(self, state: State) -> None:
        """The inverse of `model_state`."""
        return

    # --- common to all ------------------------------------------------------------------------

    def partial_fit(self, problem: ClusterProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; fits the rows of the landmark from scratch."""
        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        if fidelity <= 0.0:
            self.keep(problem, _one_cluster(problem.data), fidelity=fidelity)
            return self
        rows = problem.rows(fidelity)
        if self.result_ is None or not self.fidelity_ or not np.array_equal(rows, self.rows_):
            stream = np.random.default_rng(int(rng.integers(2**63)))
            data = problem.data.take(rows)
            with threadpool_limits(1):
                self.keep(problem, self.cluster(data, rng=stream), fidelity=fidelity, rows=rows)
        self.fidelity_ = fidelity
        return self

    def keep(
        self,
        problem: ClusterProblem,
        clustering: Clustering,
        *,
        fidelity: float,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Take over what was found; refuses what is no clustering of the rows.

        Args:
            problem: The instance.
            clustering: Labels and the rest.
            fidelity: Where the method now stands.
            rows: Rows of the problem that it is about; all, in their order, if None.

        Raises:
            MethodFailed: Labels or embedding do not fit the rows, or are not finite.
        """
        rows = np.arange(problem.data.n, dtype=np.int64) if rows is None else rows
        self.result_ = self._checked(clustering, len(rows), problem.n_clusters)
        self.rows_ = rows
        self.rule_ = ClassMeans.fit(problem.data.take(rows), self.result_.labels)
        self.fidelity_ = fidelity

    def _checked(self, found: Clustering, n: int, k: int) -> Clustering:
        labels = np.asarray(found.labels)
        embedding = np.asarray(found.embedding, dtype=np.float32)
        if labels.shape != (n,) or embedding.ndim != 2 or len(embedding) != n:
            raise ContractError(
                f"{self.name()} gave labels {list(labels.shape)} and an embedding "
                f"{list(embedding.shape)} for {n} rows, expected [n] and [n, q]"
            )
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= k:
            raise ContractError(
                f"{self.name()} gave labels of type {labels.dtype} from {labels.min()} to "
                f"{labels.max()}, expected integers from 0 to {k - 1}"
            )
        if not np.isfinite(embedding).all():
            raise MethodFailed(f"{self.name()}: the embedding is not finite")
        return dataclasses.replace(found, labels=labels.astype(np.int64), embedding=embedding)

    def require_fitted(self) -> Clustering:
        """The result; refuses to work before the first landmark."""
        if self.result_ is None:
            raise MethodFailed(f"{self.name()} was never fitted; call partial_fit first")
        return self.result_

    def labels_of_all(self, problem: ClusterProblem) -> NDArray[np.int64]:
        """Labels of every row of the problem: its own, and by `assign` where it has none. [n]."""
        found = self.require_fitted()
        labels = np.empty(problem.data.n, dtype=np.int64)
        labels[self.rows_] = found.labels
        rest = np.setdiff1d(np.arange(problem.data.n), self.rows_)
        if len(rest):
            with threadpool_limits(1):
                labels[rest] = self.assign(problem.data.take(rest))[0]
        return labels

    def evaluate(self, problem: ClusterProblem, split: Split = "val") -> Evaluation:
        """See `Method.evaluate`; measured by `ClusterProblem.score`.

        The label-free score looks at the fitted rows. Scores against labels look at all rows they
        are allowed to, so that every method answers for the same ones at every landmark.
        """
        found = self.require_fitted()
        labels, embedding, rows = found.labels, found.embedding, self.rows_
        if split == "test" or problem.track == "labelled":
            labels, rows = self.labels_of_all(problem), np.arange(problem.data.n, dtype=np.int64)
        with threadpool_limits(1):
            objectives = problem.score(labels, embedding, rows, split)
            if split == "test":
                return Evaluation(
                    objectives, problem.score_signals(labels, embedding, rows, split)
                )
            signals = problem.score_signals(found.labels, embedding, self.rows_, split)
        signals |= {"rule_agreement": self._agreement(problem), **self.signals()}
        if found.imputed is not None:
            signals |= problem.imputation(found.imputed, self.rows_)
        return Evaluation({**objectives, "size_bytes": float(self.size_bytes)}, signals)

    def _agreement(self, problem: ClusterProblem) -> float:
        assert self.rule_ is not None
        ruled = self.rule_.assign(problem.data.take(self.rows_))[0]
        return float((ruled == self.require_fitted().labels).mean())

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays that assign new rows."""
        own = self.model_state().values()
        arrays = [value for value in own if hasattr(value, "nbytes")]
        if not arrays and self.rule_ is not None:
            arrays = list(self.rule_.means)
        return int(sum(value.nbytes for value in arrays))

    # --- checkpoints and export ---------------------------------------------------------------

    def state_dict(self) -> State:
        """See `Method.state_dict`: the result, the class means and the method's own model."""
        state: State = {"fidelity_": self.fidelity_, "rows_": self.rows_}
        if self.result_ is None or self.rule_ is None:
            return state
        found = self.result_
        state |= {
            "labels": found.labels,
            "embedding": found.embedding,
            "trace": [dict(row) for row in found.trace],
            "rule/used": self.rule_.used,
        }
        state |= {f"rule/mean/{v}": mean for v, mean in enumerate(self.rule_.means)}
        if found.soft is not None:
            state["soft"] = found.soft
        for v, array in enumerate(found.imputed or ()):
            state[f"imputed/{v}"] = array
        return state | {f"model/{name}": value for name, value in self.model_state().items()}

    def load_state_dict(self, state: State, problem: ClusterProblem) -> None:
        """See `Method.load_state_dict`."""
        self.fidelity_ = state["fidelity_"]
        self.rows_ = np.asarray(state["rows_"], dtype=np.int64)
        if "labels" not in state:
            return
        imputed = _numbered(state, "imputed/")
        self.result_ = Clustering(
            labels=np.asarray(state["labels"]),
            embedding=np.asarray(state["embedding"]),
            soft=np.asarray(state["soft"]) if "soft" in state else None,
            imputed=imputed or None,
            trace=tuple(state["trace"]),
        )
        self.rule_ = ClassMeans(_numbered(state, "rule/mean/"), np.asarray(state["rule/used"]))
        own = {k.removeprefix("model/"): v for k, v in state.items() if k.startswith("model/")}
        self.load_model_state(own)

    def save(self, problem: ClusterProblem, directory: Path) -> None:
        """Labels, shares and embedding as NPZ, and a model that `lamps predict` reads."""
        from lamps_plugins._views import export

        export.write(self, problem, directory)

    def card(self) -> dict[str, Json]:
        """What an export says about its method."""
        params: dict[str, Json] = as_json(self.params)
        return {
            "method": self.name(),
            "module": type(self).__module__,
            "class": type(self).__qualname__,
            "params": params,
            "fidelity": float(self.fidelity_ or 0.0),
        }


def _numbered(state: Mapping[str, Any], prefix: str) -> tuple[NDArray[np.float32], ...]:
    count = sum(key.startswith(prefix) for key in state)
    return tuple(np.asarray(state[f"{prefix}{v}"]) for v in range(count))


def _one_cluster(data: ViewData) -> Clustering:
    """What is known before anything is fitted."""
    return Clustering(
        labels=np.zeros(data.n, dtype=np.int64), embedding=np.zeros((data.n, 1), np.float32)
    )
