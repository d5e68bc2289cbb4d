"""What a way of decoding has to say: which tokens to try next, and what it learns from the try.

The loop of `_decode` calls, for one text,

    begin(lm, prompt, sampler)   once; returns the probes that ride on the pass over the prompt
    observe(outcome)             after every pass, that over the prompt included
    propose()                    before every later pass

A drafter never decides what is emitted: verification does, so it cannot change the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler

__all__ = ["Draft", "Drafter", "Outcome"]


@dataclass(slots=True)
class Draft:
    """Rows of one forward pass behind the root; see `_tree`.

    Args:
        tokens: Token of each node.
        parents: Row of each node's parent.
        probes: Embeddings of the probes. Shape: [m, d]; None for none.
        probe_parents: Row of each probe's parent, probes counted on after the nodes.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probes: Tensor | None = None
    probe_parents: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """What came of a forward pass.

    Args:
        emitted: Tokens that the text grew by: the accepted path, and the model's own choice after
            it.
        path: Rows of the accepted nodes.
        draft: What was tried.
        lm: The model.
        states: Hidden state of each row. Shape: [rows, d]; row 0 is the root.
        logits: Of root and nodes. Shape: [1 + n, V].
    """

    emitted: list[int]
    path: list[int]
    draft: Draft
    lm: FrozenLm
    states: Tensor
    logits: Tensor

    @property
    def last(self) -> int:
        """Row of the last accepted node; 0 where none was."""
        return self.path[-1] if self.path else 0

    def probe_logits(self, rows: Sequence[int]) -> Tensor:
        """Logits of some rows, probes included; computed when asked for. Shape: [n, V]."""
        return self.lm.logits(self.states[list(rows)])


class Drafter(ABC):
    """Proposes trees for one text after the other.

    Attributes:
        reach: Deepest row below the root that it ever asks for.
        extra_rows: Rows that it processed in other models, in equivalents of the large model's.
        extra_kv_bytes: Bytes of keys and values that it keeps besides.
    """

    reach: int = 0
    extra_rows: float = 0.0
    extra_kv_bytes: int = 0

    def foresee(self, tokens: Sequence[int]) -> None:
        """Told what will be emitted, where that is known; only upper bounds make use of it."""
        return

    @abstractmethod
    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """Start a text; the draft has probes only, and its root is the prompt's last token."""

    @abstractmethod
    def propose(self) -> Draft:
        """What to try in the next pass."""

    def observe(self, outcome: Outcome) -> None:
        """Learn from a pass."""
        return
