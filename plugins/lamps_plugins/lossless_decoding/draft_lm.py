"""Speculative decoding: a smaller model writes ahead, the large one verifies.

Paper: Leviathan, Kalman, Matias, Fast Inference from Transformers via Speculative Decoding, ICML
2023, arXiv 2211.17192, section 2; noise shared by both models instead of a test of acceptance:
Daliri, Musco, Suresh, arXiv 2408.07978.

The small model continues the text by ``ahead`` tokens with a cache of its own, by the same rule
and (when sampling) with the same noise at the same places; the large one verifies the chain in one
pass. The text is that of the large model alone. Oracle: a model that is its own draft accepts
everything, ``ahead`` + 1 tokens a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._tree import layout

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of speculative decoding."""

    ahead: int = hp.integer(
        4, low=1, high=8, doc="gamma, tokens that the small model writes ahead."
    )


class DraftLmDrafter(Drafter):
    """One text in the small model's cache.

    Args:
        draft: The small model; its vocabulary must be the large one's.
        ahead: Tokens written ahead.
    """

    def __init__(self, draft: FrozenLm, *, ahead: int = 4) -> None:
        self.draft, self.ahead = draft, ahead
        self.reach = ahead

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """The small model reads the prompt.

        Raises:
            ProblemError: Vocabularies differ, or the small model's context is too short for the
                prompt.
        """
        from lamps_plugins.lossless_decoding._decode import check_prompt

        check_vocabularies(lm, self.draft)
        check_prompt(self.draft, prompt, 1)
        self._sampler = sampler
        self._weight = self.draft.parameters / lm.parameters
        self._cache: Any = self.draft.new_cache(len(prompt) + 64)
        self.draft.prompt_states(self.draft.embed(prompt), layout(()), self._cache)
        self._length = len(prompt)  # of the text up to the root, which is not in the cache
        self._pending: list[int] = []
        self.extra_rows = 0.0
        return Draft()

    def observe(self, outcome: Outcome) -> None:
        """Forget what was not accepted, and note what the small model has not read yet."""
        if outcome.draft.tokens:
            # Its cache holds the root and all tokens that it wrote but the last.
            read = min(1 + len(outcome.path), len(outcome.draft.tokens))
            self._cache.keep(self._length, range(read))
            self._length += read
            unread = outcome.emitted[read - 1 :]
        else:
            unread = [*self._pending, *outcome.emitted]
        self._pending = unread

    def propose(self) -> Draft:
        """A chain that the small model writes; nothing once its context is full."""
        context = self.draft.context
        if context is not None and self._length + len(self._pending) + self.ahead > context:
            return Draft()
        words: list[int] = []
        rows = self._pending
        start = self._length
        for _ in range(self.ahead):
            chain = layout(tuple(range(len(rows) - 1)))
            states = self.draft.states(self.draft.embed(rows), chain, start, self._cache)
            start += len(rows)
            logits = self.draft.logits(states[-1:])
            self.extra_rows += len(rows) * self._weight
            words += self._sampler.choose(logits, [start])
            rows = words[-1:]
        # All of the text but the root lies before what may be forgotten.
        self._length += len(self._pending) - 1
        self.extra_kv_bytes = max(self.extra_kv_bytes, start * self.draft.row_bytes)
        return Draft(words, list(range(len(words))))


def check_vocabularies(lm: FrozenLm, draft: FrozenLm) -> None:
    """Refuse a draft model of another vocabulary.

    Raises:
        ProblemError: They differ in size.
    """
    if draft.vocabulary != lm.vocabulary:
        raise ProblemError(
            f"draft model {draft.name} has a vocabulary of {draft.vocabulary}, {lm.name} one of "
            f"{lm.vocabulary}; a draft model needs the same tokenizer"
        )


class DraftLm(Decoder[Params]):
    """A smaller model in front."""

    spec = MethodSpec(
        family=FAMILY,
        summary="a smaller model of the same vocabulary writes ahead",
        paper=Paper(
            title="Fast Inference from Transformers via Speculative Decoding",
            arxiv="2211.17192",
            venue="ICML 2023",
            section="2",
        ),
        tags=Tags(data_free=True, baseline=True),
    )
    needs_draft = True

    def drafter(self, draft: FrozenLm | None = None) -> DraftLmDrafter:
        """See `Decoder.drafter`.

        Raises:
            ProblemError: There is no draft model.
        """
        if draft is None:
            raise ProblemError(
                "draft-lm needs a smaller model of the same vocabulary; give --draft DIR"
            )
        return DraftLmDrafter(draft, ahead=self.params.ahead)
