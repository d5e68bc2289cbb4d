"""Plain cached decoding: one token a pass, the measure of everything else.

Oracle: its own ratio of latencies is 1 up to noise, and it processes one row a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps.method import MethodSpec, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """It has none."""


class PlainDrafter(Drafter):
    """Tries nothing."""

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """No probes."""
        return Draft()

    def propose(self) -> Draft:
        """No nodes: the pass is over the root alone."""
        return Draft()


class Plain(Decoder[Params]):
    """The model as it is."""

    spec = MethodSpec(
        family=FAMILY,
        summary="plain decoding with a cache, one token a pass",
        tags=Tags(data_free=True, baseline=True),
    )

    def drafter(self, draft: FrozenLm | None = None) -> PlainDrafter:
        """See `Decoder.drafter`."""
        return PlainDrafter()
