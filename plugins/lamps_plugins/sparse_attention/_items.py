"""Sequences that attention is measured on, and what a source of them offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from lamps.types import Json, Split

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.sparse_attention._attend import Selector

__all__ = ["Heads", "Item", "Source"]

Numbers = dict[str, float]
"""What a sequence gave, by name; the same names for all sequences of a source."""


@dataclass(frozen=True, slots=True)
class Item:
    """One sequence.

    Args:
        split: ``val`` or ``test``.
        length: Its tokens.
        number: From 0 among those of its split and length.
    """

    split: Split
    length: int
    number: int

    @property
    def key(self) -> str:
        """Its name."""
        return f"{self.split}-{self.length}-{self.number}"


class Heads(NamedTuple):
    """What attention of one layer receives.

    Shape:
        q: [1, H, L, D] float32. k, v: [1, Hkv, L, D] float32.
    """

    layer: int
    q: Tensor
    k: Tensor
    v: Tensor


class Source(ABC):
    """Where sequences come from, and how good attention by a rule is on them."""

    kind: ClassVar[str]
    """Word for cards."""

    quality: ClassVar[str]
    """What `error` compares, as a sentence."""

    @abstractmethod
    def run(self, rule: Selector, item: Item) -> Numbers:
        """Run one sequence under a rule.

        Returns:
            What `error` sums up, the dense numbers included, and ``kept`` and ``visible`` pairs of
            blocks over all layers.
        """

    @abstractmethod
    def error(self, numbers: Sequence[Mapping[str, float]]) -> float:
        """Loss against dense attention over some sequences: 0 where nothing was lost."""

    @abstractmethod
    def heads(self, item: Item) -> tuple[Heads, ...]:
        """Queries, keys and values of one or two layers of a sequence, under dense attention."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of everything that sequences and models depend on."""

    @abstractmethod
    def card(self) -> dict[str, Json]:
        """What it is, for people."""
