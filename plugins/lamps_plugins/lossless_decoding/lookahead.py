"""Lookahead decoding: Jacobi iterations beside the text collect n-grams that are then verified.

Paper: Fu, Bailis, Stoica, Zhang, Break the Sequential Dependency of LLM Inference Using Lookahead
Decoding, ICML 2024, arXiv 2402.02057, section 3.

A window of N - 1 levels and W columns hangs below the root: token (0, i) follows (0, i - 1), token
(j, i) follows (j - 1, i), so that it stands i + j + 1 places behind the root. What the model says
behind the last level completes W n-grams of N tokens; they go into a pool by their first token,
the levels move up by one, and the model's words become the last level. Up to G n-grams that begin
with the root are verified as a tree. Oracle: on a text of a fixed rule the pool soon holds the
right n-gram, and a call emits N tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._tree import chains

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of lookahead decoding."""

    window: int = hp.integer(5, low=2, high=15, doc="W, columns of the window.")
    ngram: int = hp.choice(3, (3, 4, 5), doc="N, tokens of an n-gram.")
    guesses: int = hp.integer(5, low=1, high=15, doc="G, n-grams verified a call.")
    prompt_pool: bool = hp.choice(True, (True, False), doc="Whether the prompt's n-grams count.")


class LookaheadDrafter(Drafter):
    """One text's window and pool of n-grams."""

    def __init__(
        self, *, window: int = 5, ngram: int = 3, guesses: int = 5, prompt_pool: bool = True,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.window, self.ngram, self.guesses = window, ngram, guesses
        self.prompt_pool, self.seed = prompt_pool, seed
        self.reach = window + ngram

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """The window starts as tokens of the prompt in random order."""
        self._lm = lm
        self._rng = np.random.default_rng(self.seed)
        self._prompt = list(prompt)
        self._levels = [
            self._random_words(self.window) for _ in range(self.ngram - 1)
        ]  # N - 1 times W tokens
        self._pool: dict[int, OrderedDict[tuple[int, ...], None]] = {}
        if self.prompt_pool:
            self._learn(self._prompt)
        return self._with_window([], [])

    def _random_words(self, count: int) -> list[int]:
        return [self._prompt[i] for i in self._rng.integers(len(self._prompt), size=count)]

    def _learn(self, tokens: Sequence[int]) -> None:
        for start in range(len(tokens) - self.ngram + 1):
            self._remember(tokens[start : start + self.ngram])

    def _remember(self, ngram: Sequence[int]) -> None:
        tails = self._pool.setdefault(ngram[0], OrderedDict())
        tail = tuple(ngram[1:])
        tails.pop(tail, None)
        tails[tail] = None  # the latest is last
        if len(tails) > self.guesses:
            tails.popitem(last=False)

    def _with_window(self, tokens: list[int], parents: list[int]) -> Draft:
        first, w = len(tokens) + 1, self.window
        above = [0, *range(first, first + w - 1)]
        above += [row for row in range(first, first + w * (self.ngram - 2))]
        words = [word for level in self._levels for word in level]
        return Draft(tokens, parents, self._lm.embed(words), above)

    def observe(self, outcome: Outcome) -> None:
        """Collect n-grams, and move the window as far as the text went."""
        w = self.window
        first = len(outcome.draft.tokens) + 1 + w * (self.ngram - 2)
        words = outcome.probe_logits(range(first, first + w)).argmax(-1).tolist()
        for column, word in enumerate(words):
            self._remember([*(level[column] for level in self._levels), word])
        self._levels = [*self._levels[1:], words]
        # Levels moved up by one place; a longer step takes columns from the left.
        for _ in range(min(len(outcome.emitted) - 1, w)):
            self._levels = [[*level[1:], *self._random_words(1)] for level in self._levels]
        self._root = outcome.emitted[-1]

    def propose(self) -> Draft:
        """The latest n-grams that begin with the root, and the window."""
        tails = list(self._pool.get(self._root, ()))[::-1]
        tree = chains(tails[: self.guesses])
        return self._with_window(tree.tokens, tree.parents)


class Lookahead(Decoder[Params]):
    """N-grams from Jacobi iterations."""

    spec = MethodSpec(
        family=FAMILY,
        summary="collects n-grams by Jacobi iterations in the same pass and verifies them",
        paper=Paper(
            title="Break the Sequential Dependency of LLM Inference Using Lookahead Decoding",
            arxiv="2402.02057",
            venue="ICML 2024",
            section="3",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def drafter(self, draft: FrozenLm | None = None) -> LookaheadDrafter:
        """See `Decoder.drafter`."""
        p = self.params
        return LookaheadDrafter(
            window=p.window, ngram=p.ngram, guesses=p.guesses, prompt_pool=p.prompt_pool
        )
