"""An upper bound that knows the answer: the true continuation is tried as a chain.

What verification alone costs, and what the best possible drafter of ``depth`` tokens would reach;
no way to decode anything faster, since it has to be told the text first (it decodes plainly where
nobody tells it). Oracle: every call emits ``depth`` + 1 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the upper bound."""

    depth: int = hp.integer(3, low=1, high=16, log=True, doc="True tokens tried a call.")


class OracleDrafter(Drafter):
    """Tries what it was told by `foresee`; nothing where it was told nothing."""

    def __init__(self, *, depth: int = 3) -> None:
        self.depth = depth
        self.reach = depth
        self._truth: list[int] = []

    def foresee(self, tokens: Sequence[int]) -> None:
        """Keep the answer."""
        self._truth = list(tokens)

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """No probes."""
        self._done = 0
        return Draft()

    def observe(self, outcome: Outcome) -> None:
        """How far the text is."""
        self._done += len(outcome.emitted)

    def propose(self) -> Draft:
        """The next true tokens."""
        words = self._truth[self._done : self._done + self.depth]
        return Draft(words, list(range(len(words))))


class OracleTree(Decoder[Params]):
    """The best that any drafter could do."""

    spec = MethodSpec(
        family=FAMILY,
        summary="upper bound: is told the text before it decodes it",
        tags=Tags(data_free=True),
    )
    upper_bound = True

    def drafter(self, draft: FrozenLm | None = None) -> OracleDrafter:
        """See `Decoder.drafter`."""
        return OracleDrafter(depth=self.params.depth)
