"""The loop that all ways of decoding share: try a tree, let the model verify it, keep its path.

    t tokens of prompt -> one pass, one token; then, with root a = the token emitted last,
    one pass over a, draft nodes and probes -> x = the model's choice at each row;
    from the root: while a child holds x of its parent, go there; emit the path and the last x

Whatever is tried, what is emitted is the model's own choice at every place, so the text is that of
plain decoding: token by token if greedy, and token by token too when sampling, for one seed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

from lamps.errors import ProblemError
from lamps_plugins.lossless_decoding._cache import TreeCache
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._sampling import GREEDY, Sampler
from lamps_plugins.lossless_decoding._tree import layout

__all__ = ["Decoded", "accepted_path", "check_prompt", "decode"]


@dataclass(slots=True)
class Decoded:
    """A decoded text.

    Args:
        tokens: What was emitted.
        lengths: Tokens that each call after the pass over the prompt emitted.
        rows: Rows of all those calls.
        most_rows: Rows of the largest call.
        seconds: Elapsed from the prompt to the last token.
        extra_rows: Rows processed in other models, in equivalents of this one's.
        extra_kv_bytes: Bytes of keys and values beside those of the text.
    """

    tokens: list[int]
    lengths: list[int] = field(default_factory=list)
    rows: int = 0
    most_rows: int = 1
    seconds: float = 0.0
    extra_rows: float = 0.0
    extra_kv_bytes: int = 0

    @property
    def calls(self) -> int:
        """Passes after the one over the prompt."""
        return len(self.lengths)


def check_prompt(lm: FrozenLm, prompt: Sequence[int], max_new: int, reach: int = 0) -> None:
    """Refuse what cannot be continued.

    Raises:
        ProblemError: The prompt is empty, holds an unknown token, or is too long.
    """
    if not len(prompt):
        raise ProblemError("the prompt is empty, expected at least one token")
    if max_new < 1:
        raise ProblemError(f"max_new is {max_new}, expected 1 or more")
    strange = [t for t in prompt if not 0 <= t < lm.vocabulary]
    if strange:
        raise ProblemError(
            f"token {strange[0]} of the prompt is not in the model's vocabulary of {lm.vocabulary}"
        )
    whole = len(prompt) + max_new + reach
    if lm.context is not None and whole > lm.context:
        raise ProblemError(
            f"prompt of {len(prompt)} tokens + {max_new} new + {reach} of the tree are {whole}, "
            f"more than the model's context of {lm.context}; shorten the prompt or ask for less"
        )


def accepted_path(draft: Draft, chosen: Sequence[int]) -> list[int]:
    """Rows of the nodes that the model would have emitted itself.

    Args:
        draft: The tree.
        chosen: The model's choice after each row.

    Example:
        >>> accepted_path(Draft(tokens=[7, 8, 9], parents=[0, 0, 2]), [8, 1, 9, 4])
        [2, 3]
    """
    children = {
        (parent, token): row
        for row, (parent, token) in enumerate(
            zip(draft.parents, draft.tokens, strict=True), start=1
        )
    }
    path: list[int] = []
    row = children.get((0, chosen[0]))
    while row is not None:
        path.append(row)
        row = children.get((row, chosen[row]))
    return path


def decode(
    lm: FrozenLm,
    drafter: Drafter,
    prompt: Sequence[int],
    *,
    max_new: int,
    sampler: Sampler = GREEDY,
    stop: Collection[int] = (),
) -> Decoded:
    """Continue a prompt.

    Args:
        lm: The model.
        drafter: What is tried; it sees this text from its beginning.
        prompt: Token ids, at least one.
        max_new: Tokens to emit, at most.
        sampler: How the model chooses.
        stop: Tokens after which the text ends; the token itself is emitted.

    Raises:
        ProblemError: The prompt cannot be continued; see `check_prompt`.
        MethodFailed: Logits are not finite.
    """
    check_prompt(lm, prompt, max_new, drafter.reach)
    started = time.perf_counter()
    with torch.inference_mode():
        cache = lm.new_cache(len(prompt) + max_new + 64)
        draft = drafter.begin(lm, prompt, sampler)
        text = _first(lm, drafter, draft, prompt, cache, sampler)
        position = len(prompt)  # of the root, which is not in the cache yet
        while len(text.tokens) < max_new and text.tokens[-1] not in stop:
            draft = drafter.propose()
            nodes = len(draft.tokens)
            plan = layout((*draft.parents, *draft.probe_parents))
            embeds = lm.embed([text.tokens[-1], *draft.tokens])
            if draft.probes is not None:
                embeds = torch.cat([embeds, draft.probes])
            states = lm.states(embeds, plan, position, cache)
            logits = lm.logits(states[: 1 + nodes])
            places = (plan.depth[: 1 + nodes] + position + 1).tolist()
            chosen = sampler.choose(logits, places)
            path = accepted_path(draft, chosen)
            emitted = [chosen[row] for row in (0, *path)]
            cache.keep(position, (0, *path))
            position += len(emitted)
            drafter.observe(Outcome(emitted, path, draft, lm, states, logits))
            kept = _cut(emitted, max_new - len(text.tokens), stop)
            text.tokens += kept
            text.lengths.append(len(kept))
            text.rows += len(plan.depth)
            text.most_rows = max(text.most_rows, len(plan.depth))
    text.extra_rows = drafter.extra_rows
    text.extra_kv_bytes = (text.most_rows - 1) * lm.row_bytes + drafter.extra_kv_bytes
    text.seconds = time.perf_counter() - started
    return text


def _first(
    lm: FrozenLm, drafter: Drafter, draft: Draft, prompt: Sequence[int], cache: TreeCache,
    sampler: Sampler,
) -> Decoded:  # fmt: skip
    """The pass over the prompt, probes at its end included."""
    t = len(prompt)
    embeds = lm.embed(prompt)
    if draft.probes is not None:
        embeds = torch.cat([embeds, draft.probes])
    states = lm.prompt_states(embeds, layout(tuple(draft.probe_parents)), cache)
    cache.keep(0, range(t))
    logits = lm.logits(states[t - 1 : t])
    emitted = sampler.choose(logits, [t])
    drafter.observe(Outcome(emitted, [], draft, lm, states[t - 1 :], logits))
    return Decoded(tokens=list(emitted))


def _cut(emitted: list[int], room: int, stop: Collection[int]) -> list[int]:
    """What of a path still belongs to the text."""
    for place, token in enumerate(emitted[:room], start=1):
        if token in stop:
            return emitted[:place]
    return emitted[:room]
