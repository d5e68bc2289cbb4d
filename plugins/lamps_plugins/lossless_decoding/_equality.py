"""The law of the family: what was decoded is what plain decoding emits.

Texts are compared token by token. In floating point a pass over many rows rounds otherwise than
one over a single row, so where the two best tokens are a hair apart the choice may flip, and the
texts part from there on. Such a text is right if every token of it is, by one plain pass over
prompt and text, a best one up to that hair; flips are counted. Anything else is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from lamps.errors import MethodFailed
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._sampling import Sampler
from lamps_plugins.lossless_decoding._tree import layout

__all__ = ["TIES", "near_ties"]

TIES = {torch.float64: 1e-9, torch.float32: 1e-4}
"""How far apart two logits may lie that count as a tie; 1e-3 in other types."""


def near_ties(
    lm: FrozenLm,
    prompt: Sequence[int],
    reference: Sequence[int],
    found: Sequence[int],
    *,
    max_new: int,
    sampler: Sampler,
    stop: Collection[int],
    where: str,
) -> int:
    """Compare a text with that of plain decoding.

    Args:
        lm: The model.
        prompt: What was continued.
        reference: Tokens of plain decoding.
        found: Tokens of the method.
        max_new: Tokens that were asked for.
        sampler: How they were chosen.
        stop: Tokens that end a text.
        where: Method and prompt, for the message.

    Returns:
        How many choices between near ties fell otherwise; 0 for equal texts.

    Raises:
        MethodFailed: The texts differ by more.
    """
    if list(found) == list(reference):
        return 0
    at = next(
        (i for i, (a, b) in enumerate(zip(reference, found, strict=False)) if a != b),
        min(len(reference), len(found)),
    )
    gaps = _gaps(lm, prompt, found, sampler)
    whole = len(found) == max_new or (bool(found) and found[-1] in stop)
    inner_stop = any(token in stop for token in found[:-1])
    if whole and not inner_stop and max(gaps) <= TIES.get(lm.dtype, 1e-3):
        return max(1, sum(gap > 0.0 for gap in gaps))
    wanted = reference[at] if at < len(reference) else "the end"
    got = found[at] if at < len(found) else "the end"
    gap = f"{gaps[at]:.3g}" if at < len(gaps) else "not measurable"
    raise MethodFailed(
        f"{where}: token {at} is {got}, plain decoding emits {wanted} (its score is {gap} below "
        "the best); the method changes the text, which it must not"
    )


def _gaps(
    lm: FrozenLm, prompt: Sequence[int], found: Sequence[int], sampler: Sampler
) -> list[float]:
    """How far each token's score lies below the best, by one plain pass without a tree."""
    t = len(prompt)
    with torch.inference_mode():
        embeds = lm.embed([*prompt, *found[:-1]])
        states = lm.prompt_states(embeds, layout(()), lm.new_cache(len(embeds)))
        scores = sampler.scores(lm.logits(states[t - 1 :]), range(t, t + len(found)))
        own = scores.gather(1, torch.tensor(found, device=scores.device)[:, None])[:, 0]
        gaps: list[float] = (scores.max(-1).values - own).tolist()
    return gaps
