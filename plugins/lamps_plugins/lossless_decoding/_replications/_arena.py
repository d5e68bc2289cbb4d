"""Prompts of one seed, decoded by any drafter; plain texts are decoded once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lamps.replication import Ask, Profile
from lamps.types import Split
from lamps_plugins.lossless_decoding._decode import Decoded, decode
from lamps_plugins.lossless_decoding._drafter import Drafter
from lamps_plugins.lossless_decoding._problem import DecodingProblem
from lamps_plugins.lossless_decoding._sampling import GREEDY, Sampler
from lamps_plugins.lossless_decoding._tree import static_shape
from lamps_plugins.lossless_decoding.adaptive_ngram import AdaptiveDrafter
from lamps_plugins.lossless_decoding.esp import EspDrafter
from lamps_plugins.lossless_decoding.lookahead import LookaheadDrafter
from lamps_plugins.lossless_decoding.plain import PlainDrafter
from lamps_plugins.lossless_decoding.prompt_lookup import LookupDrafter
from lamps_plugins.lossless_decoding.unigram_prior import PriorDrafter

__all__ = [
    "BASELINES",
    "MAX_NEW",
    "N_PROMPTS",
    "ROWS",
    "SMOLLM2_SIZE",
    "TREES",
    "Arena",
    "Tally",
]

ROWS = 20
"""Rows of a call that every drafter may take at most."""

Make = Callable[[], Drafter]

N_PROMPTS: Mapping[Profile, int] = {"quick": 20, "full": 65}
MAX_NEW: Mapping[Profile, int] = {"quick": 48, "full": 128}
SMOLLM2_SIZE: Mapping[Profile, tuple[int, int]] = {"quick": (10, 32), "full": (65, 128)}
"""Prompts of each split and new tokens with SmolLM2-135M."""

TREES: dict[str, dict[str, Any]] = {
    f"k={k} {kind}": {
        "k": k, "rows": ROWS,
        "shape": static_shape(k, ROWS // (k + 1) - 1) if kind == "static" else None,
    }
    for k, kind in product((1, 2, 3), ("static", "dynamic"))
}  # fmt: skip
"""Trees of ESP among which validation prompts choose."""

BASELINES: dict[str, Make] = {
    "prompt-lookup": LookupDrafter,
    "lookahead N=3": lambda: LookaheadDrafter(window=5, ngram=3, guesses=4),
    "lookahead N=4": lambda: LookaheadDrafter(window=3, ngram=4, guesses=3),
    "adaptive-ngram": lambda: AdaptiveDrafter(rows=ROWS),
    "unigram-prior": lambda: PriorDrafter(rows=ROWS),
    "bigram-prior": lambda: PriorDrafter(rows=ROWS, order=2, depth=4),
}
"""Training-free drafters with at most as many rows, of which validation prompts choose one."""


@dataclass(slots=True)
class Tally:
    """Sums over the prompts of a kind."""

    emitted: int = 0
    calls: int = 0
    equal: int = 0
    texts: int = 0

    @property
    def tau(self) -> float:
        """Tokens a call; 1 where there was none."""
        return self.emitted / self.calls if self.calls else 1.0


class Arena:
    """The problem of one seed.

    Args:
        problem: Prompts and model.
        ask: Profile, and where to tell what is going on.
    """

    def __init__(self, problem: DecodingProblem, ask: Ask) -> None:
        self.problem, self.ask = problem, ask
        self.lm = problem.lm()
        self._plain: dict[tuple[Split, int, Sampler], list[int]] = {}

    def texts(self, split: Split, tasks: Sequence[str] | None = None) -> Iterator[int]:
        """Numbers of the prompts of some kinds."""
        for number, prompt in enumerate(self.problem.prompts(split)):
            if tasks is None or prompt.task in tasks:
                yield number

    def run(
        self, drafter: Drafter, split: Split, number: int, sampler: Sampler = GREEDY
    ) -> Decoded:
        """One prompt decoded."""
        prompt = self.problem.prompts(split)[number]
        return decode(
            self.lm, drafter, prompt.tokens, max_new=self.problem.max_new, sampler=sampler,
            stop=self.lm.stop_ids,
        )  # fmt: skip

    def plain(self, split: Split, number: int, sampler: Sampler = GREEDY) -> list[int]:
        """The text of plain decoding."""
        key = (split, number, sampler)
        if key not in self._plain:
            self._plain[key] = self.run(PlainDrafter(), split, number, sampler).tokens
        return self._plain[key]

    def tally(
        self, make: Make, split: Split, *, tasks: Sequence[str] | None = None,
        sampler: Sampler = GREEDY,
    ) -> dict[str, Tally]:  # fmt: skip
        """Sums by kind of prompts."""
        found: dict[str, Tally] = {}
        for number in self.texts(split, tasks):
            text = self.run(make(), split, number, sampler)
            own = found.setdefault(self.problem.prompts(split)[number].task, Tally())
            own.emitted += sum(text.lengths)
            own.calls += text.calls
            own.equal += text.tokens == self.plain(split, number, sampler)
            own.texts += 1
        return found

    @property
    def tree(self) -> str:
        """The tree of ESP with the most tokens a call on validation prompts."""
        return self._tree[0]

    @property
    def on_val(self) -> dict[str, Tally]:
        """ESP with that tree on validation prompts, by kind."""
        return self._tree[1]

    @functools.cached_property
    def on_test(self) -> dict[str, Tally]:
        """ESP with that tree on test prompts, by kind."""
        make = self.esp(self.tree)
        self.ask.say(f"seed {self.ask.seed}: ESP ({self.tree}) on test prompts")
        return self.tally(make, "test")

    @functools.cached_property
    def _tree(self) -> tuple[str, dict[str, Tally]]:
        self.ask.say(f"seed {self.ask.seed}: trees of ESP on validation prompts")
        return self._best({name: self.esp(name) for name in TREES})

    def chosen_baseline(self) -> str:
        """The baseline with the most tokens a call on validation prompts."""
        self.ask.say(f"seed {self.ask.seed}: baselines on validation prompts")
        return self._best(BASELINES)[0]

    def _best(self, drafters: Mapping[str, Make]) -> tuple[str, dict[str, Tally]]:
        sums = {name: self.tally(make, "val") for name, make in drafters.items()}
        taus = {
            name: sum(t.emitted for t in found.values()) / sum(t.calls for t in found.values())
            for name, found in sums.items()
        }
        best = max(taus, key=taus.__getitem__)
        return best, sums[best]

    def esp(self, tree: str, **more: Any) -> Make:
        """A drafter of ESP by the name of its tree."""
        return lambda: EspDrafter(**TREES[tree], **{"seed": self.ask.seed, **more})
