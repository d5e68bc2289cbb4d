"""The base class of all rules: everything but the choice of blocks.

A rule says which blocks of keys a block of queries attends to; attention itself, landmarks,
measurement, checkpoints and export are common:

    class WindowSink(Rule[Params]):
        spec = rule_spec(summary="...", paper=...)

        def select(self, q, k, *, scale, layer):
            return blocks_of_mask(...)              # [B, bundles, n_q, n_k] bool -> lists

A landmark runs the validation sequences that it adds under the rule; `evaluate` sums up what they
gave and times attention beside the library's (see `AttentionProblem`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from numpy.random import Generator

from lamps import space as hp
from lamps.errors import MethodFailed
from lamps.method import Method, MethodSpec, Paper, State, Tags
from lamps.types import Evaluation, Json, Split

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor

    from lamps_plugins.sparse_attention._problem import AttentionProblem

__all__ = ["FAMILY", "BlockParams", "Rule", "rule_spec"]

FAMILY = "sparse-attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockParams:
    """What all rules share: blocks, and which are always kept."""

    block: int = hp.choice(128, (64, 128), doc="Tokens of a block of queries or keys, S.")
    sink: int = hp.integer(1, low=0, high=4, doc="First blocks that are always kept.")
    local: int = hp.integer(
        1, low=0, high=64, doc="Blocks before the diagonal that are always kept."
    )


P = TypeVar("P")


def rule_spec(*, summary: str, paper: Paper | None = None, baseline: bool = True) -> MethodSpec:
    """The facts of a rule: it reads no training data and repeats itself bit for bit."""
    return MethodSpec(
        family=FAMILY,
        summary=summary,
        paper=paper,
        tags=Tags(deterministic=True, data_free=True, baseline=baseline),
    )


class Rule(Method["AttentionProblem", P]):
    """A choice of blocks.

    Attributes:
        results_: What each validation sequence gave, by its key: numbers by name.
        seed_: Root of the rule's randomness, drawn from the trial's stream.
    """

    params: P

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.results_: dict[str, dict[str, float]] = {}
        self.seed_ = 0

    @property
    def block(self) -> int:
        """Tokens of a block."""
        assert isinstance(self.params, BlockParams)
        return self.params.block

    @abstractmethod
    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks | None:
        """The kept blocks; None for all of them, by the library's own attention.

        Args:
            q: Queries, the last of the tokens. Shape: [B, H, Lq, D].
            k: Keys. Shape: [B, Hkv, Lk, D].
            scale: Factor on the dot products.
            layer: Number of the layer.

        Returns:
            Lists for ``bundles`` of heads that divide H and are a multiple of Hkv; the diagonal
            is among them.
        """

    # --- common to all -------------------------------------------------------------------------

    def partial_fit(self, problem: AttentionProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; runs the sequences that the landmark adds."""
        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.seed_ = int(rng.integers(2**31))
        for item in problem.items("val", fidelity):
            if item.key not in self.results_:
                self.results_[item.key] = problem.run(self, item)
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: AttentionProblem, split: Split = "val") -> Evaluation:
        """See `Method.evaluate`; measured by `AttentionProblem.measure`."""
        if self.fidelity_ is None:
            raise MethodFailed(f"{self.name()} was never fitted; call partial_fit first")
        return problem.measure(self, split, fidelity=self.fidelity_)

    def state_dict(self) -> State:
        """See `Method.state_dict`: what the sequences gave."""
        return {
            "fidelity_": self.fidelity_,
            "seed_": self.seed_,
            "results_": {key: dict(numbers) for key, numbers in self.results_.items()},
        }

    def load_state_dict(self, state: State, problem: AttentionProblem) -> None:
        """See `Method.load_state_dict`."""
        self.fidelity_, self.seed_ = state["fidelity_"], int(state["seed_"])
        results: Mapping[str, Mapping[str, Any]] = state["results_"]
        self.results_ = {
            key: {name: float(v) for name, v in numbers.items()}
            for key, numbers in results.items()
        }

    def save(self, problem: AttentionProblem, directory: Path) -> None:
        """The rule as JSON, with an example that puts it into a model; see `_export`."""
        from lamps_plugins.sparse_attention import _export

        _export.write(self, problem, directory)

    def card(self) -> dict[str, Json]:
        """What an export says about its rule, enough to make it again."""
        params: dict[str, Json] = hp.as_json(self.params)
        return {
            "method": self.name(),
            "module": type(self).__module__,
            "class": type(self).__qualname__,
            "params": params,
            "seed": self.seed_,
            "fidelity": float(self.fidelity_ or 0.0),
        }
