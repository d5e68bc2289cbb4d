"""A tree of the commonest tokens of the text so far: what any drafter has to beat.

A tree of the same rows a call as another method's, filled by frequency alone: of single tokens
(``order=1``), or of what followed the same token (``order=2``), single tokens behind. Small models
repeat themselves, and then this is hard to beat. Oracle: a text of one token accepts the whole
chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._tree import Tree, best_first

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler

_SINGLE = 0.4  # weight of single tokens where pairs are known


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the prior."""

    rows: int = hp.choice(8, (4, 6, 8, 12, 20, 30, 60), doc="Rows of a call, root included.")
    order: int = hp.choice(1, (1, 2), doc="Frequency of single tokens, or of pairs.")
    depth: int = hp.integer(3, low=1, high=6, doc="Deepest node.")


class PriorDrafter(Drafter):
    """One text's frequencies."""

    def __init__(self, *, rows: int = 8, order: int = 1, depth: int = 3) -> None:
        self.nodes, self.order, self.depth = rows - 1, order, depth
        self.reach = depth

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """Count the prompt."""
        self._single: Counter[int] = Counter()
        self._after: dict[int, Counter[int]] = {}
        self._last: int | None = None
        self._count(prompt)
        return Draft()

    def _count(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._single[token] += 1
            if self._last is not None:
                self._after.setdefault(self._last, Counter())[token] += 1
            self._last = token

    def observe(self, outcome: Outcome) -> None:
        """Count what was emitted."""
        self._count(outcome.emitted)

    def propose(self) -> Draft:
        """The likeliest nodes if tokens came by their frequency."""
        tree = self.tree()
        return Draft(tree.tokens, tree.parents)

    def tree(self) -> Tree:
        """The tree as it stands."""
        total = self._single.total()
        common = self._single.most_common(self.nodes)
        single = ([t for t, _ in common], [n / total for _, n in common])

        def options(path: tuple[int, ...]) -> tuple[list[int], list[float]]:
            after = self._after.get(path[-1] if path else self._last or 0)
            if self.order == 1 or not after:
                return single
            n = after.total()
            chances = {t: count / n for t, count in after.most_common(self.nodes)}
            for token, chance in zip(*single, strict=True):
                chances.setdefault(token, _SINGLE * chance)
            ordered = sorted(chances.items(), key=lambda pair: -pair[1])[: self.nodes]
            return [t for t, _ in ordered], [c for _, c in ordered]

        return best_first(self.nodes, options, depth=self.depth)


class UnigramPrior(Decoder[Params]):
    """Frequencies of the text."""

    spec = MethodSpec(
        family=FAMILY,
        summary="tries the commonest tokens of the text, a control at equal rows a call",
        tags=Tags(data_free=True, baseline=True),
    )

    def drafter(self, draft: FrozenLm | None = None) -> PriorDrafter:
        """See `Decoder.drafter`."""
        p = self.params
        return PriorDrafter(rows=p.rows, order=p.order, depth=p.depth)
