"""Prompt lookup: what followed the same few tokens earlier in the text is tried as a chain.

Source: Saxena, Prompt Lookup Decoding, 2023; in transformers as ``prompt_lookup_num_tokens``.

The longest ending of the text (up to ``longest`` tokens) that occurs before gives the next
``copied`` tokens, from its latest place. Oracle: on a text that repeats itself with period p,
every call emits ``copied`` + 1 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._ngrams import SuffixIndex
from lamps_plugins.lossless_decoding._tree import chains

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of prompt lookup."""

    longest: int = hp.integer(3, low=1, high=5, doc="Longest ending that is looked for, tokens.")
    copied: int = hp.integer(10, low=1, high=20, log=True, doc="Tokens that are copied.")


class LookupDrafter(Drafter):
    """One text and what followed where."""

    def __init__(self, *, longest: int = 3, copied: int = 10) -> None:
        self.longest, self.copied = longest, copied
        self.reach = copied

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """No probes."""
        self._index = SuffixIndex(self.longest)
        self._index.extend(prompt)
        return Draft()

    def observe(self, outcome: Outcome) -> None:
        """The text grows."""
        self._index.extend(outcome.emitted)

    def propose(self) -> Draft:
        """A chain, or nothing where no ending is known."""
        tree = chains(self._index.followers(self.copied, 1))
        return Draft(tree.tokens, tree.parents)


class PromptLookup(Decoder[Params]):
    """Copies from the text itself."""

    spec = MethodSpec(
        family=FAMILY,
        summary="tries what followed the same tokens earlier in the text",
        tags=Tags(data_free=True, baseline=True),
    )

    def drafter(self, draft: FrozenLm | None = None) -> LookupDrafter:
        """See `Decoder.drafter`."""
        return LookupDrafter(longest=self.params.longest, copied=self.params.copied)
