"""How good a small model became, on what it did not see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lamps.types import Json
from lamps_plugins._small_lms import _corpus, _tokens, recall
from lamps_plugins._small_lms._specs import LmSpec

__all__ = ["bits_per_byte", "measured", "recall_accuracy"]

_BLOCKS = 24


def measured(spec: LmSpec, model: Any) -> dict[str, Json]:
    """Facts by name: bits per byte at two lengths for code, accuracy by length for recall."""
    if spec.material == "code":
        lengths: tuple[int, ...] = (512, 4096) if spec.phases[-1].length >= 4096 else (512,)
        return {f"bits_per_byte_{n}": bits_per_byte(spec, model, n) for n in lengths}
    if spec.material == "recall":
        lengths = tuple(sorted({phase.length for phase in spec.phases}))
        return {f"recall_{n}": recall_accuracy(model, n) for n in lengths}
    return {}


def bits_per_byte(spec: LmSpec, model: Any, length: int) -> float:
    """Mean code length of held-out sources in blocks of ``length`` tokens, in bits a byte.

    Blocks are spread evenly over all held-out files; in each the first token is given.
    """
    import torch

    texts = _corpus.stdlib().held_out.values()
    ids = _tokens.encode(spec, texts)
    per_token = sum(len(t.encode()) for t in texts) / len(ids)
    count = max(1, min(_BLOCKS * 512 // length, len(ids) // (length + 1)))
    starts = np.linspace(0, len(ids) - length - 1, count).astype(int)
    losses = []
    for start in starts:
        row = torch.from_numpy(ids[start : start + length + 1])[None]
        with torch.inference_mode():
            logits = model(input_ids=row[:, :-1], use_cache=False).logits[0]
            losses.append(float(torch.nn.functional.cross_entropy(logits, row[0, 1:])))
    return float(np.mean(losses)) / math.log(2) / per_token


def recall_accuracy(model: Any, length: int, *, n: int = 8, seed: int = 10_000) -> float:
    """Share of queries answered rightly, in fresh sequences of ``length`` tokens."""
    import torch

    made = recall.batch(n, length, rng=np.random.default_rng([seed, length]))
    right = asked = 0
    for tokens, targets in zip(made.tokens, made.targets, strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0]
        where = targets != recall.IGNORED
        found = logits.argmax(-1).numpy()
        right += int((found == targets)[where].sum())
        asked += int(where.sum())
    return right / asked
