"""Attention by a rule: check, select blocks, attend to them, and tell what was kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lamps.errors import ProblemError

if TYPE_CHECKING:
    from lamps_kernels._blocks import Blocks
    from torch import Tensor

__all__ = ["Attention", "Selector", "attention", "check", "dense"]

WIDEST = 256
"""Elements of a head, at most: what attention kernels hold in fast memory."""


class Selector(Protocol):
    """What says which blocks are kept."""

    @property
    def block(self) -> int:
        """Tokens of a block."""

    def select(self, q: Tensor, k: Tensor, *, scale: float, layer: int) -> Blocks | None:
        """The kept blocks, or None for all of them by the library's own attention."""


class Attention(NamedTuple):
    """What attention by a rule gave.

    Args:
        out: Shape: [B, H, Lq, D], dtype of the queries.
        lse: Log-sum-exp of what was kept, [B, H, Lq] float32; None where all was kept.
        kept: Pairs of blocks that were kept, over batch and heads; all visible ones where dense.
        visible: Pairs of blocks that causality allows, over batch and heads.
    """

    out: Tensor
    lse: Tensor | None
    kept: int
    visible: int

    @property
    def density(self) -> float:
        """Share of the visible blocks that was kept."""
        return self.kept / self.visible


def attention(
    rule: Selector,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    layer: int = 0,
    checked: bool = False,
) -> Attention:
    """Causal attention of the last ``Lq`` of ``Lk`` tokens, by a rule.

    Args:
        rule: Says which blocks are kept.
        q: Queries, after their rotation. Shape: [B, H, Lq, D] float16, bfloat16 or float32.
        k: Keys. Shape: [B, Hkv, Lk, D], Hkv divides H.
        v: Values. Shape: [B, Hkv, Lk, D].
        scale: Factor on the dot products; ``D ** -0.5`` if None.
        layer: Number of the layer, for rules that draw.
        checked: Whether `check` was called already.

    Raises:
        ProblemError: The tensors cannot be attended; see `check`.
    """
    from lamps_kernels.attend_blocks import attend_blocks

    if not checked:
        check(q, k, v)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    blocks = rule.select(q, k, scale=scale, layer=layer)
    n_visible = visible_pairs(q.shape[2], k.shape[2], rule.block) * q.shape[0] * q.shape[1]
    if blocks is None:
        return Attention(dense(q, k, v, scale), None, n_visible, n_visible)
    found = attend_blocks(q, k, v, *blocks, block=rule.block, scale=scale)
    kept = int(blocks.counts.sum()) * (q.shape[1] // blocks.counts.shape[1])
    return Attention(found.out, found.lse, kept, n_visible)


def visible_pairs(queries: int, keys: int, block: int) -> int:
    """Pairs of a block of queries and a block of keys of which causality allows some part."""
    ends = (min(start + block, queries) for start in range(0, queries, block))
    return sum((keys - queries + end - 1) // block + 1 for end in ends)


def dense(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """The library's causal attention, the measure of all others; queries are the last tokens."""
    import torch

    mask = None
    if 1 < q.shape[2] < k.shape[2]:
        at = torch.arange(k.shape[2], device=q.device)
        mask = at <= at[k.shape[2] - q.shape[2] :, None]
    causal = q.shape[2] > 1 and mask is None
    found: Tensor = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] > k.shape[1]
    )
    return found


def check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse what cannot be attended to; one line that names the tensor.

    Raises:
        ProblemError: A shape, dtype, device or layout that kernels do not take, a gradient that
            is wanted, or numbers that are not finite.
    """
    import torch

    floats = (torch.float16, torch.bfloat16, torch.float32)
    for name, x in (("Q", q), ("K", k), ("V", v)):
        shape = list(x.shape)
        if x.ndim != 4:
            raise ProblemError(f"{name} has shape {shape}; expected [batch, heads, tokens, width]")
        if not x.numel():
            raise ProblemError(f"{name} has shape {shape}: an empty sequence has no attention")
        if x.dtype not in floats:
            raise ProblemError(f"{name} is {x.dtype}; expected float16, bfloat16 or float32")
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise ProblemError(
                f"{name} is {x.dtype} on {x.device}, Q is {q.dtype} on {q.device}; expected one "
                "dtype on one device"
            )
        if x.shape[3] > 1 and x.stride(3) != 1:
            raise ProblemError(
                f"{name} has strides {x.stride()}; expected the elements of a token side by side, "
                "call .contiguous()"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise ProblemError(
                f"{name} wants a gradient; sparse attention has none, call under torch.no_grad()"
            )
        if x.shape[3] > WIDEST:
            raise ProblemError(
                f"{name} has heads of width {x.shape[3]}; expected at most {WIDEST}"
            )
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ProblemError(
            f"Q is {list(q.shape)}, K {list(k.shape)}, V {list(v.shape)}; expected equal batch "
            "and width, and V as K"
        )
    if q.shape[1] % k.shape[1]:
        raise ProblemError(
            f"Q has {q.shape[1]} heads, K has {k.shape[1]}; expected a multiple of those of K"
        )
    if q.shape[2] > k.shape[2]:
        raise ProblemError(
            f"Q has {q.shape[2]} tokens, K has {k.shape[2]}; causality needs as many keys"
        )
    for name, x in (("Q", q), ("K", k)):
        # One sum per tensor: NaN and infinities survive it.
        if not math.isfinite(float(x.abs().amax())):
            raise ProblemError(f"{name} holds NaN or infinite numbers; expected finite ones")
