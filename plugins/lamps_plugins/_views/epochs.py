"""The base class of networks that are trained by epochs, in stages.

A method says what its networks are, what one epoch does, and how rows are clustered as they stand:

    class Twin(EpochClusterer[Params]):
        def stages(self): return (("autoencoder", 40), ("joint", 100))
        def build(self, data, rng): self.net_ = ...; self.adam_ = ...
        def modules(self): return {"net": self.net_}
        def optimizers(self): return {"adam": self.adam_}
        def enter(self, stage, data, rng): ...           # once, before its first epoch
        def train_epoch(self, stage, epoch, data, rng): ...; return {"loss": loss}
        def result(self, data): return Clustering(labels=..., embedding=...)

A fidelity is a share of all epochs, stage after stage, over all rows: a landmark goes on where the
last one stopped and throws nothing away. Every epoch draws from a stream of its own (torch's
global generator is seeded by it and put back afterwards), so the numbers at an epoch do not depend
on the stops before it, nor on the process. Learning rates must be functions of stage and epoch.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.random import Generator
from threadpoolctl import threadpool_limits

from lamps.errors import MethodFailed
from lamps.method import State
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from lamps_plugins._views.problem import ClusterProblem

P = TypeVar("P")

BUILD, ENTER, EPOCH, RESULT = range(4)
"""First number of a stream's position: what the stream is for."""


class EpochClusterer(Clusterer[P]):
    """Networks trained by epochs; see the module's docstring.

    Attributes:
        epochs_: Epochs that were run, over all stages.
        seed_: Root of the method's randomness, drawn from the trial's stream.
        trace_: What each epoch reported, oldest first.
        signals_: Diagnostic numbers that `evaluate` passes on; kept in checkpoints.
    """

    params: P

    DIVERGED: ClassVar[float] = 1e8
    """Size beyond which a reported loss counts as diverged."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.epochs_ = 0
        self.seed_: int | None = None
        self.trace_: list[dict[str, float]] = []
        self.signals_: dict[str, float] = {}
        self.built_: dict[str, Any] | None = None

    # --- what a method says ---------------------------------------------------------------------

    @abstractmethod
    def stages(self) -> tuple[tuple[str, int], ...]:
        """Name and number of epochs of each stage, in order."""

    @abstractmethod
    def build(self, data: ViewData, rng: Generator) -> None:
        """Make networks and optimisers; torch is seeded already.

        Reads names, widths and ``n_clusters`` only: a checkpoint is opened without any rows.
        """

    @abstractmethod
    def modules(self) -> Mapping[str, nn.Module]:
        """Everything with weights or buffers, by name."""

    @abstractmethod
    def optimizers(self) -> Mapping[str, Optimizer]:
        """All optimisers, by name; their parameters are in the order of `build`."""

    @abstractmethod
    def train_epoch(
        self, stage: str, epoch: int, data: ViewData, rng: Generator
    ) -> Mapping[str, float]:
        """One pass over the rows.

        Args:
            stage: Its name.
            epoch: Counted from 0 inside the stage.
            data: All rows, standardised.
            rng: The stream of this epoch; torch's global generator is seeded from it too.

        Returns:
            Means over the pass for the trace, finite.
        """

    @abstractmethod
    def result(self, data: ViewData) -> Clustering:
        """Labels and embedding of rows by the networks as they stand; changes nothing.

        The trace is filled in.
        """

    def check(self, data: ViewData) -> None:
        """Refuse data that the method cannot use, before anything is built.

        Raises:
            ProblemError: It cannot; one line names the culprit.
        """
        return

    def enter(self, stage: str, data: ViewData, rng: Generator) -> None:
        """Called once before the first epoch of a stage; torch is seeded from ``rng``."""
        return

    def more_state(self) -> dict[str, Any]:
        """Arrays and JSON beside networks and optimisers."""
        return {}

    def load_more_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `more_state`."""
        return

    # --- common to all --------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """The stage of the last epoch that was run; the first where none was."""
        done = 0
        for name, epochs in self.stages():
            done += epochs
            if epochs and self.epochs_ <= done:
                return name
        return self.stages()[-1][0]

    @property
    def total_epochs(self) -> int:
        """Epochs of all stages."""
        return sum(epochs for _, epochs in self.stages())

    def stream(self, *position: int) -> Generator:
        """A stream that depends on the trial and the position alone."""
        assert self.seed_ is not None
        return np.random.default_rng([self.seed_, *position])

    def entered(self, stage: str) -> bool:
        """Whether at least one epoch of a stage was run."""
        done = 0
        for name, epochs in self.stages():
            if name == stage:
                return epochs > 0 and self.epochs_ > done
            done += epochs
        return False

    def partial_fit(self, problem: ClusterProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`: runs the epochs up to that share of all."""
        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        if fidelity <= 0.0:
            return super().partial_fit(problem, fidelity, rng=rng)
        data = problem.data
        with one_thread():
            if self.built_ is None:
                self.seed_ = int(rng.integers(2**63))
                self.check(data)
                self._build(data)
            for index in range(self.epochs_, round(fidelity * self.total_epochs)):
                self._run(index, data)
            clustering = self._result(data)
        self.keep(problem, clustering, fidelity=fidelity)
        return self

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """All epochs at once, for use without a problem; see `Clusterer.cluster`."""
        with one_thread():
            self.seed_, self.epochs_, self.trace_ = int(rng.integers(2**63)), 0, []
            self.check(data)
            self._build(data)
            for index in range(self.total_epochs):
                self._run(index, data)
            return self._result(data)

    def _build(self, data: ViewData) -> None:
        stream = self.stream(BUILD)
        with seeded(stream):
            self.build(data, stream)
        self.built_ = {
            "names": list(data.names),
            "widths": [int(array.shape[1]) for array in data.arrays],
            "n_clusters": data.n_clusters,
        }

    def _run(self, index: int, data: ViewData) -> None:
        number, (name, epoch) = self._place(index)
        if epoch == 0:
            stream = self.stream(ENTER, number)
            with seeded(stream):
                self.enter(name, data, stream)
        stream = self.stream(EPOCH, number, epoch)
        with seeded(stream):
            found = {k: float(v) for k, v in self.train_epoch(name, epoch, data, stream).items()}
        for part, value in found.items():
            if not np.isfinite(value) or abs(value) > self.DIVERGED:
                raise MethodFailed(
                    f"{self.name()} diverged: {part} is {value:g} in epoch {epoch + 1} of stage "
                    f"{name!r}. Lower the learning rate"
                )
        self.epochs_ = index + 1
        self.trace_.append({"epoch": float(index + 1), "stage": float(number), **found})

    def _place(self, index: int) -> tuple[int, tuple[str, int]]:
        for number, (name, epochs) in enumerate(self.stages()):
            if index < epochs:
                return number, (name, index)
            index -= epochs
        raise MethodFailed(f"{self.name()} has no epoch {index} beyond its last stage")

    def _result(self, data: ViewData) -> Clustering:
        with seeded(self.stream(RESULT)):
            found = self.result(data)
        return dataclasses.replace(found, trace=tuple(self.trace_))

    # --- checkpoints ----------------------------------------------------------------------------

    def model_state(self) -> State:
        """See `Clusterer.model_state`: the networks, and what makes them again."""
        if self.built_ is None:
            return {}
        state: State = {"built": self.built_, "seed": str(self.seed_), "epochs": self.epochs_}
        for name, module in self.modules().items():
            for key, value in module.state_dict().items():
                state[f"module/{name}/{key}"] = value.detach().clone()
        return state | {f"more/{key}": value for key, value in self.more_state().items()}

    def load_model_state(self, state: State) -> None:
        """See `Clusterer.load_model_state`; needs no problem."""
        if not state:
            return  # nothing was trained yet
        self.seed_, self.epochs_ = int(state["seed"]), int(state["epochs"])
        with one_thread():
            self._build(_without_rows(state["built"]))
        for name, module in self.modules().items():
            module.load_state_dict(_tensors_under(state, f"module/{name}/"))
        self.load_more_state(
            {k.removeprefix("more/"): v for k, v in state.items() if k.startswith("more/")}
        )

    def state_dict(self) -> State:
        """See `Method.state_dict`: the networks with the moments of their optimisers."""
        state = super().state_dict()
        state["signals_"] = dict(self.signals_)
        if self.built_ is None:
            return state
        for name, optimizer in self.optimizers().items():
            for index, moments in optimizer.state_dict()["state"].items():
                for key, value in moments.items():
                    state[f"optimizer/{name}/{index}/{key}"] = value.detach().clone()
        return state

    def load_state_dict(self, state: State, problem: ClusterProblem) -> None:
        """See `Method.load_state_dict`."""
        super().load_state_dict(state, problem)
        self.signals_ = {str(k): float(v) for k, v in state["signals_"].items()}
        self.trace_ = [dict(row) for row in self.result_.trace] if self.result_ else []
        if self.built_ is None:
            return
        for name, optimizer in self.optimizers().items():
            moments: dict[int, dict[str, Any]] = {}
            for place, value in _tensors_under(state, f"optimizer/{name}/").items():
                index, _, key = place.partition("/")
                # The optimiser updates its moments in place; the checkpoint stays as it is.
                moments.setdefault(int(index), {})[key] = value.clone()
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def signals(self) -> dict[str, float]:
        """The last epoch's numbers and the method's own diagnostics."""
        last = self.trace_[-1] if self.trace_ else {}
        return {**super().signals(), "epochs": float(self.epochs_), **last, **self.signals_}


@contextlib.contextmanager
def seeded(rng: Generator) -> Iterator[None]:
    """Torch's global generator starts from ``rng`` inside, and is put back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        yield


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """BLAS, OpenMP and torch work with one thread inside: same numbers and honest seconds."""
    import torch

    before = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _tensors_under(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    import torch

    return {
        k.removeprefix(prefix): torch.as_tensor(v)
        for k, v in state.items()
        if k.startswith(prefix)
    }


def _without_rows(built: Mapping[str, Any]) -> ViewData:
    widths = [int(width) for width in built["widths"]]
    return ViewData(
        names=tuple(str(name) for name in built["names"]),
        arrays=tuple(np.zeros((0, width), np.float32) for width in widths),
        mask=np.zeros((0, len(widths)), bool),
        n_clusters=int(built["n_clusters"]),
    )
