"""Where the recall model starts: two heads that together look up what followed a key.

From random weights a model of two layers finds this pair of heads (an induction circuit; Olsson et
al., In-context learning and induction heads, 2022) only after some hundred thousand sequences. So
it is set by hand, and training on ever longer sequences starts from it:

    layer 1, head 1    looks at the place before, by biases that the rotary angles turn towards it,
                       and writes its token into the second half of the state
    layer 2, head 2    compares its own token with that second half, in those dimensions that turn
                       by less than a radian over the context, and copies the token it finds

All other weights stay random and small.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["set_lookup_heads"]

_NEAR = 9.0  # size of the biases that look one place back
_MATCH = 2.5  # size of queries and keys that compare tokens
_COPY = 4.0  # how loudly the found token is said


def set_lookup_heads(model: Any) -> None:
    """Set the two heads, in place.

    Args:
        model: A Llama of two layers and two heads, each half as wide as the state, with biases in
            attention and tied embeddings. Random numbers come from torch's global state.
    """
    import torch

    config = model.config
    half = config.hidden_size // 2
    pairs = half // 2
    theta = float(config.rope_parameters["rope_theta"])
    angles = torch.tensor([theta ** (-i / pairs) for i in range(pairs)])
    first, second = (layer.self_attn for layer in model.model.layers)
    eye = torch.eye(half)
    with torch.no_grad():
        words = model.model.embed_tokens.weight
        words.normal_()
        words[:, half:] = 0.0
        words /= words.norm(dim=1, keepdim=True)
        # A state of length s is scaled to sqrt(width) by the norm before attention.
        one, two = math.sqrt(config.hidden_size), math.sqrt(config.hidden_size / 2)
        first.q_proj.bias[:pairs] = _NEAR
        first.k_proj.bias[:pairs] = _NEAR * angles.cos()
        first.k_proj.bias[pairs:half] = _NEAR * angles.sin()
        first.v_proj.weight[:half, :half] = eye / one
        first.o_proj.weight[half:, :half] = eye
        slow = [i for i in range(pairs) if float(angles[i]) * config.max_position_embeddings < 1.0]
        rows = [half + i for i in (*slow, *(i + pairs for i in slow))]
        basis = torch.linalg.qr(torch.randn(half, half)).Q[: len(rows)]
        for projection, start in ((second.q_proj, 0), (second.k_proj, half)):
            projection.weight[rows, start : start + half] = _MATCH * basis
        second.v_proj.weight[half:, :half] = eye / two
        second.o_proj.weight[:half, half:] = _COPY * eye
