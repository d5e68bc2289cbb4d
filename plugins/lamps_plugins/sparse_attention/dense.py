"""Dense attention by the library itself: what every rule is compared with.

The scaled dot-product attention of torch, causal, with its fused kernel on CPU and GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps_plugins.sparse_attention._rule import Rule, rule_spec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Nothing to set."""


class Dense(Rule[Params]):
    """All blocks."""

    spec = rule_spec(summary="attends to everything with the library's own fused attention")

    @property
    def block(self) -> int:
        """Tokens of the blocks that are counted."""
        return 128

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> None:
        """Nothing to select."""
        return
