"""Adaptive n-grams: a table of what the model itself said after the last few tokens.

Paper: Song et al., Accelerated Test-Time Scaling with Model-Free Speculative Sampling (STAND),
EMNLP 2025, arXiv 2506.04708: n-grams that keep probabilities instead of counts, learned while
decoding.

For every ending of up to ``longest`` tokens the table adds up the probabilities of the model's
``kept`` likeliest next tokens wherever it was asked on the accepted path; the prompt counts with
its own tokens. A tree grows from the product of what the longest known ending says, shorter
endings filling up with a factor of 0.4 a step. Oracle: on a text that repeats, what followed is
certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._tree import Options, best_first

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler

_SHORTER = 0.4  # weight of an ending that is one token shorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of adaptive n-grams."""

    longest: int = hp.integer(3, low=1, high=4, doc="Longest ending that is looked up, tokens.")
    rows: int = hp.choice(8, (4, 8, 12, 20, 30, 60), doc="Rows of a call, root included.")
    depth: int = hp.integer(6, low=1, high=12, doc="Deepest node.")
    kept: int = hp.integer(4, low=1, high=10, doc="Likeliest tokens that are kept of each answer.")


class AdaptiveDrafter(Drafter):
    """One text's table."""

    def __init__(self, *, longest: int = 3, rows: int = 8, depth: int = 6, kept: int = 4) -> None:
        self.longest, self.nodes, self.depth, self.kept = longest, rows - 1, depth, kept
        self.reach = depth

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """Count the prompt's own n-grams."""
        self._text: list[int] = []
        self._table: dict[tuple[int, ...], dict[int, float]] = {}
        for token in prompt:
            self._add({token: 1.0})
            self._text.append(token)
        return Draft()

    def _add(self, chances: dict[int, float]) -> None:
        """Learn what may follow the text as it is now."""
        end = len(self._text)
        for n in range(min(self.longest, end) + 1):
            known = self._table.setdefault(tuple(self._text[end - n :]), {})
            for token, chance in chances.items():
                known[token] = known.get(token, 0.0) + chance

    def observe(self, outcome: Outcome) -> None:
        """Learn from the model's answer at each place of the accepted path."""
        rows = [0, *outcome.path]
        best = outcome.logits[rows].float().softmax(-1).topk(self.kept)
        answers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        for (tokens, chances), emitted in zip(answers, outcome.emitted, strict=True):
            self._add(dict(zip(tokens, chances, strict=True)))
            self._text.append(emitted)

    def propose(self) -> Draft:
        """The likeliest nodes by the table."""
        end = self._text[-self.longest :]
        tree = best_first(self.nodes, lambda path: self._options([*end, *path]), depth=self.depth)
        return Draft(tree.tokens, tree.parents)

    def _options(self, text: Sequence[int]) -> Options:
        found: dict[int, float] = {}
        weight = 1.0
        for n in range(min(self.longest, len(text)), -1, -1):
            known = self._table.get(tuple(text[len(text) - n :]))
            if known is None:
                continue
            total = sum(known.values())
            for token, chance in known.items():
                found.setdefault(token, weight * chance / total)
            if len(found) >= self.nodes:
                break
            weight *= _SHORTER
        ordered = sorted(found.items(), key=lambda pair: -pair[1])[: self.nodes]
        return [token for token, _ in ordered], [chance for _, chance in ordered]


class AdaptiveNgram(Decoder[Params]):
    """N-grams with the model's own probabilities."""

    spec = MethodSpec(
        family=FAMILY,
        summary="grows trees from n-grams that keep the model's own probabilities",
        paper=Paper(
            title="Accelerated Test-Time Scaling with Model-Free Speculative Sampling",
            arxiv="2506.04708",
            venue="EMNLP 2025",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def drafter(self, draft: FrozenLm | None = None) -> AdaptiveDrafter:
        """See `Decoder.drafter`."""
        p = self.params
        return AdaptiveDrafter(longest=p.longest, rows=p.rows, depth=p.depth, kept=p.kept)
