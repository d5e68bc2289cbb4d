"""What all methods of the family share: a plan is checked and timed, and its times are kept."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import ProblemError
from lamps.method import Method, State
from lamps.types import Evaluation, Split
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._problem import TileProblem

__all__ = ["FAMILY", "MATRICES", "PIECES", "Planned", "method_class"]

FAMILY = "distributed-tensor-kernels"

MATRICES = ("ag_gemm", "gemm_rs", "gemm_ar")
"""Operators that are one product of matrices."""

PIECES = (*MATRICES, "a2a_grouped_gemm", "sp_flash_decode")
"""Operators that are cut into shards and chunks."""

ParamsT = TypeVar("ParamsT")


def method_class(name: str) -> type[Planned[Any]]:
    """The class of a method of this family by its name."""
    module = import_module(f"{__package__}.{name.replace('-', '_')}")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Planned)
        and value.__module__ == module.__name__
    ]
    return found[0]


class Planned(Method[TileProblem, ParamsT]):
    """A plan, or a library call, and how long it took.

    Attributes:
        library: ``collective``, ``single`` or ``numpy`` for a library call; empty for a plan.
        operators: Operators it can do; all if None.
        times_: What was measured at the fidelity that was reached.
    """

    library: ClassVar[str] = ""
    operators: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, params: ParamsT) -> None:
        super().__init__(params)
        self.times_: dict[str, Any] = {}

    def plan(self) -> Plan | None:
        """The plan; None for a library call."""
        return None

    def plan_for(self, problem: TileProblem, fidelity: float) -> Plan | None:
        """The plan, with tiles halved where the sizes are."""
        from lamps_plugins.distributed_tensor_kernels._operators import operator_class

        cls, plan, sizes = operator_class(problem.operator), self.plan(), problem.sizes(fidelity)
        plan = None if plan is None else cls.relevant(plan)
        if plan is None or sizes == problem.shape:
            return plan
        half = dataclasses.replace(
            plan, block_m=max(plan.block_m // 2, 16), block_n=max(plan.block_n // 2, 16)
        )
        tiles = cls.tiles(sizes, problem.ranks, half)
        return dataclasses.replace(half, chunks=min(half.chunks, max(tiles, 1)))

    def check(self, problem: TileProblem) -> None:
        """Refuse a problem that this plan cannot do.

        Raises:
            ProblemError: The message says why.
        """
        from lamps_plugins.distributed_tensor_kernels._operators import operator_class

        if self.operators is not None and problem.operator not in self.operators:
            raise ProblemError(
                f"{self.name()} does {', '.join(self.operators)}, got {problem.operator}"
            )
        if self.library == "collective" and problem.transport not in ("gloo", "shm"):
            raise ProblemError(
                f"collectives do not cross transport {problem.transport!r}; use gloo or shm"
            )
        plan = self.plan()
        if plan is not None:
            operator_class(problem.operator).legal(problem.shape, problem.ranks, plan)

    def partial_fit(self, problem: TileProblem, fidelity: float, *, rng: Generator) -> Self:
        """Time more repetitions."""
        from lamps_plugins.distributed_tensor_kernels import _measure

        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.check(problem)
        known = self.times_ if self.times_.get("sizes") == problem.sizes(fidelity) else {}
        self.times_ = _measure.extended(self, problem, fidelity, known)
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: TileProblem, split: Split = "val") -> Evaluation:
        """Medians of what was timed; on the test split, of other operands timed now."""
        from lamps_plugins.distributed_tensor_kernels import _measure

        if self.fidelity_ is None:
            raise ProblemError(f"{self.name()} was not run yet; call partial_fit first")
        if split == "test":
            return _measure.tested(self, problem, self.fidelity_)
        return _measure.summary(self.times_, problem)

    def state_dict(self) -> State:
        """Times of all repetitions, and what was seen once."""
        return {"fidelity": self.fidelity_, **self.times_}

    def load_state_dict(self, state: State, problem: TileProblem) -> None:
        """Times of an earlier process."""
        self.fidelity_ = state["fidelity"]
        self.times_ = {
            k: np.asarray(v) if k.endswith("_ms") else v
            for k, v in state.items()
            if k != "fidelity"
        }

    def save(self, problem: TileProblem, directory: Path) -> None:
        """The plan as JSON, and how to run it."""
        from lamps_plugins.distributed_tensor_kernels import _export

        if self.fidelity_ is None:
            raise ProblemError(f"{self.name()} was not run yet; there is nothing to save")
        _export.write(self, problem, directory)
