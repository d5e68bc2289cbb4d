"""The base class of all methods: everything but what is tried.

Decoding learns nothing that outlives a text, so a landmark is a number of validation prompts, and
what a method keeps is one `Record` a prompt; the next landmark goes on with the next prompt.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from numpy.random import Generator

from lamps.errors import MethodFailed
from lamps.method import Method, State
from lamps.types import Evaluation, Split
from lamps_plugins.lossless_decoding._measure import Record, measure_prompt, summary

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._drafter import Drafter
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._problem import DecodingProblem

FAMILY = "lossless-decoding"
P = TypeVar("P")


class Decoder(Method["DecodingProblem", P]):
    """A way of decoding.

    Attributes:
        records_: What each validation prompt showed, in the order of prompts.
    """

    params: P

    needs_draft: ClassVar[bool] = False
    """Whether it works with a smaller model, so that a problem must have one."""

    upper_bound: ClassVar[bool] = False
    """Whether it is told the text beforehand; such a method enters no default pool."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.records_: list[Record] = []

    @abstractmethod
    def drafter(self, draft: FrozenLm | None = None) -> Drafter:
        """A drafter with the method's params, for one text after the other.

        Args:
            draft: The smaller model, where the method `needs_draft`.

        Raises:
            ConfigError: Params do not fit together.
        """

    def notes(
        self, problem: DecodingProblem, prompt: Sequence[int], tokens: Sequence[int]
    ) -> dict[str, tuple[float, float]]:
        """Sum and number of what else a prompt shows, by name of the signal."""
        return {}

    def partial_fit(self, problem: DecodingProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; continues the validation prompts that the landmark adds."""
        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        first = len(self.records_)
        for number in range(first, problem.n_prompts(fidelity)):
            self.records_.append(measure_prompt(problem, self, "val", number, warm=number > first))
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: DecodingProblem, split: Split = "val") -> Evaluation:
        """See `Method.evaluate`; the test prompts are continued here."""
        if self.fidelity_ is None:
            raise MethodFailed(f"{self.name()} was never fitted; call partial_fit first")
        if split == "val":
            return summary(self.records_, split)
        records = [
            measure_prompt(problem, self, split, number, warm=number > 0)
            for number in range(len(problem.prompts(split)))
        ]
        return summary(records, split)

    def state_dict(self) -> State:
        """See `Method.state_dict`."""
        return {"fidelity_": self.fidelity_, "records": [r.as_list() for r in self.records_]}

    def load_state_dict(self, state: State, problem: DecodingProblem) -> None:
        """See `Method.load_state_dict`."""
        self.fidelity_ = state["fidelity_"]
        self.records_ = [Record.from_list(values) for values in state["records"]]

    def save(self, problem: DecodingProblem, directory: Path) -> None:
        """A folder with the model that `lamps_plugins.lossless_decoding.load` opens."""
        from lamps_plugins.lossless_decoding import _export

        _export.write(problem, self, directory)
