"""How often masks foresee the text: one pass over a known text with masks behind every token.

Mask i behind token j should say token j + 1 + i, since the model itself says token j + 1. Masks of
different places do not see each other, so thousands of places cost one pass (teacher forcing).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._masks import Init, MaskTokens
from lamps_plugins.lossless_decoding._tree import Layout

__all__ = ["TOPS", "Hits", "mask_hits"]

TOPS = (1, 10)
"""Ranks up to which a mask's answer counts as a hit."""

Hits = dict[str, tuple[float, float]]
"""Hits and places by name: ``mask1_top1``, ..., and ``mask1_top1_plain`` for plain places."""


def mask_hits(
    lm: FrozenLm,
    prompt: Sequence[int],
    tokens: Sequence[int],
    *,
    k: int,
    init: Init,
    rate: float,
    seed: int = 0,
    blank: Callable[[int], bool] = lambda token: False,
) -> Hits:
    """Count hits of k masks on a text.

    Args:
        lm: The model.
        prompt: What precedes the text.
        tokens: The text, such as the model's own continuation.
        k: Masks a place.
        init: See `MaskTokens`.
        rate: See `MaskTokens`; masks follow the text as they do while decoding.
        seed: See `MaskTokens`.
        blank: Whether a token is white space. Places whose aim is blank or repeats the token
            before it are easy, so the others are counted again by themselves as plain ones.

    Returns:
        Hits and places by name; empty where the text is too short.
    """
    text = [*prompt, *tokens]
    t, places = len(prompt), len(tokens) - k
    if places < 1:
        return {}
    with torch.inference_mode():
        masks = MaskTokens(lm, prompt, k=k, init=init, rate=rate, seed=seed)
        probes = []
        parents = list(range(len(text) - 1))
        for place in range(places):
            # Behind token j: what was emitted up to j has been followed.
            j = t - 1 + place
            if place:
                masks.follow(text[j : j + 1])
            first = len(text) + place * k
            probes.append(masks.vectors)
            parents += [j, *range(first, first + k - 1)]
        embeds = torch.cat([lm.embed(text), *probes])
        states = lm.states(embeds, Layout(tuple(parents)), 0, lm.new_cache(len(embeds)))
        best = lm.logits(states[len(text) :]).topk(max(TOPS)).indices.view(places, k, -1).tolist()
    hits: Hits = {}
    for place in range(places):
        for i in range(k):
            aim = t + place + i + 1
            plain = not blank(text[aim]) and text[aim] != text[aim - 1]
            for top in TOPS:
                hit = float(text[aim] in best[place][i][:top])
                name = f"mask{i + 1}_top{top}"
                for key in (name, f"{name}_plain") if plain else (name,):
                    total, n = hits.get(key, (0.0, 0.0))
                    hits[key] = (total + hit, n + 1.0)
    return hits
