"""Exact attention to listed blocks of keys with an online softmax; the others are not read.

    O_i = sum_j p_ij v_j,   p_ij = softmax over the listed keys j of scale q_i . k_j

for query i of block I and the keys of the blocks in the list of I; under causality a query sees
no later keys. Queries are the last tokens, ``offset = keys - queries``. Heads of queries share the
keys of a group (H / Hkv of them) and the list of a bundle, which may be that group or smaller.

Cost: ``4 B H L^2 D density`` floating-point operations, density counted over all blocks of keys.
Each list of each bundle reads its blocks of K and V once. Inference alone: there is no gradient.

Source: Liu et al., arXiv 2512.14082; the online softmax is Milakov and Gimelshein, arXiv
1805.02867, in the tiled form of Dao et al., FlashAttention, arXiv 2205.14135.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lamps_kernels._blocks import blocks_of_mask, check_lists, visible_and_forced
from lamps_kernels._kernel import Bench, Case, Inputs, Kernel, Refusal, Signature, Tolerance
from lamps_kernels._rows import attend_row

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

DTYPES = (torch.float16, torch.bfloat16, torch.float32)

LOG2_E = 1.4426950408889634


class Attended(NamedTuple):
    """What attention gives.

    Args:
        out: Shape: [B, H, Lq, D], dtype of the queries.
        lse: Logarithm of the sum of exponentials of each row. Shape: [B, H, Lq] float32.
    """

    out: Tensor
    lse: Tensor


def attend_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor,
    lists: Tensor,
    *,
    block: int,
    causal: bool = True,
    scale: float | None = None,
) -> Attended:
    """Attention to listed blocks; see the module.

    Args:
        q: Queries. Shape: [B, H, Lq, D] float16, bfloat16 or float32.
        k: Keys, of the same type. Shape: [B, Hkv, Lk, D].
        v: Values, of the same type. Shape: [B, Hkv, Lk, D].
        counts: Listed blocks, at least 1 a row. Shape: [B, bundles, ceil(Lq / block)] int32;
            bundles divide H and are a multiple of Hkv.
        lists: Their numbers, ascending. Shape: [B, bundles, ceil(Lq / block), n_max] int32.
        block: Tokens of a block.
        causal: Whether queries see no later keys; every query must then see a listed one, so
            list the blocks of the diagonal.
        scale: Factor on the dot products; ``D ** -0.5`` if None.

    Raises:
        ValueError: Shapes, dtypes or settings other than these, or a gradient that is wanted.

    Example:
        >>> import torch
        >>> x = torch.eye(2)[None, None]
        >>> one = torch.ones(1, 1, 1, dtype=torch.int32)
        >>> attend_blocks(x, x, x, one, one[..., None] - 1, block=2, scale=0.0).out[0, 0]
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]])
    """
    make = attend_blocks_triton if q.is_cuda and triton is not None else attend_blocks_torch
    return make(q, k, v, counts, lists, block=block, causal=causal, scale=scale)


def _check(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, lists: Tensor, block: int, causal: bool
) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4 or not x.numel() or x.dtype not in DTYPES:
            raise ValueError(
                f"{name} is {x.dtype} {list(x.shape)}; expected float16, bfloat16 or float32 "
                "[B, H, L, D], none of them 0"
            )
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, q is {q.dtype} on {q.device}; expected one "
                "dtype on one device"
            )
        if x.shape[3] > 1 and x.stride(3) != 1:
            raise ValueError(
                f"{name} has strides {x.stride()}; expected the elements of a token side by side"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} wants a gradient, there is none; call under torch.no_grad()")
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"q is {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}; expected [B, H, Lq, D], "
            "[B, Hkv, Lk, D] and the shape of k"
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q has {q.shape[1]} heads, k has {k.shape[1]}; expected a multiple of those of k"
        )
    if block < 1:
        raise ValueError(f"block is {block}; expected at least 1 token")
    if causal and k.shape[2] < q.shape[2]:
        raise ValueError(
            f"{q.shape[2]} queries see {k.shape[2]} keys; causality needs as many keys"
        )
    check_lists(q, k, counts, lists, block, causal)


def attend_blocks_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor,
    lists: Tensor,
    *,
    block: int,
    causal: bool = True,
    scale: float | None = None,
) -> Attended:
    """`attend_blocks` in torch operations on any device: one gather and one dense call a list."""
    _check(q, k, v, counts, lists, block, causal)
    (b, h, n_q, d), (g, n_k) = q.shape, k.shape[1:3]
    bundles = counts.shape[1]
    scale = d**-0.5 if scale is None else scale
    out = torch.empty((b, h, n_q, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((b, h, n_q), dtype=torch.float32, device=q.device)
    offset = n_k - n_q
    for batch in range(b):
        for bundle in range(bundles):
            heads = slice(bundle * (h // bundles), (bundle + 1) * (h // bundles))
            group = bundle // (bundles // g)
            rows = lists[batch, bundle].tolist()
            ours, theirs, values = q[batch, heads], k[batch, group], v[batch, group]
            for row, n in enumerate(counts[batch, bundle].tolist()):
                mine = slice(row * block, min((row + 1) * block, n_q))
                first = offset + row * block if causal else n_k
                out[batch, heads, mine], lse[batch, heads, mine] = attend_row(
                    ours[:, mine], theirs, values, rows[row][:n], block, first, scale
                )
    return Attended(out, lse)


def attend_blocks_float64(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor,
    lists: Tensor,
    *,
    block: int,
    causal: bool = True,
    scale: float | None = None,
) -> Attended:
    """The definition in float64: dense scores under the mask of the listed blocks."""
    (_, h, n_q, d), n_k = q.shape, k.shape[2]
    scale = d**-0.5 if scale is None else scale
    k, v = (x.double().repeat_interleave(h // k.shape[1], 1) for x in (k, v))
    listed = torch.arange(lists.shape[-1], device=q.device) < counts[..., None]
    blocks = lists.long().masked_fill(~listed, -1)
    columns = torch.arange(n_k, device=q.device) // block
    kept = (blocks[..., None] == columns).any(-2)  # [B, bundles, n_rows, Lk]
    kept = kept.repeat_interleave(block, 2)[:, :, :n_q]
    kept = kept.repeat_interleave(h // counts.shape[1], 1)
    if causal:
        at = n_k - n_q + torch.arange(n_q, device=q.device)
        kept = kept & (torch.arange(n_k, device=q.device) <= at[:, None])
    s = (scale * q.double() @ k.mT).masked_fill(~kept, -torch.inf)
    return Attended(s.softmax(-1) @ v, s.logsumexp(-1))


def attend_blocks_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor,
    lists: Tensor,
    *,
    block: int,
    causal: bool = True,
    scale: float | None = None,
) -> Attended:
    """`attend_blocks` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(q, k, v, counts, lists, block, causal)
    if triton is None:
        raise ValueError(
            "the kernel needs triton, which is not installed; attend_blocks_torch does not"
        )
    (b, h, n_q, d), (g, n_k) = q.shape, k.shape[1:3]
    out = torch.empty((b, h, n_q, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((b, h, n_q), dtype=torch.float32, device=q.device)
    counts, lists = counts.contiguous(), lists.contiguous()
    dim = max(16, triton.next_power_of_2(d))
    most = 64 if q.dtype == torch.float32 else 128
    rows = max(16, min(most, triton.next_power_of_2(block)))
    tile = max(16, min(64, triton.next_power_of_2(block)))
    parts = triton.cdiv(block, rows)
    _kernel[(counts.shape[2] * parts, b * h)](
        q, k, v, counts, lists, out, lse, n_q, n_k, h, g, counts.shape[1], counts.shape[2],
        lists.shape[3], d, (d**-0.5 if scale is None else scale) * LOG2_E,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        BLOCK=block, ROWS=rows, TILE=tile, DIM=dim, CAUSAL=causal,
        num_warps=4 if dim <= 64 else 8, num_stages=2,
    )  # fmt: skip
    return Attended(out, lse)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        q, k, v, counts, lists, out, lse, n_q, n_k, h, g, bundles, n_rows, n_max, d, scale,
        q_b, q_h, q_l, k_b, k_h, k_l, v_b, v_h, v_l,
        BLOCK: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr,
        CAUSAL: tl.constexpr,
    ):  # fmt: skip
        PARTS: tl.constexpr = (BLOCK + ROWS - 1) // ROWS
        # Long lists come last in a causal sequence; started first, they do not trail.
        row = n_rows - 1 - tl.program_id(0) // PARTS
        part = tl.program_id(0) % PARTS
        batch = (tl.program_id(1) // h).to(tl.int64)
        head = tl.program_id(1) % h
        within = part * ROWS + tl.arange(0, ROWS)
        at = row * BLOCK + within
        mine = (within < BLOCK) & (at < n_q)
        column = tl.arange(0, DIM)
        wide = column < d
        place = q + batch * q_b + head.to(tl.int64) * q_h
        place += at[:, None].to(tl.int64) * q_l + column[None, :]
        x = tl.load(place, mask=mine[:, None] & wide[None, :], other=0.0)
        group = (head // (h // g)).to(tl.int64)
        k += batch * k_b + group * k_h
        v += batch * v_b + group * v_h
        line = (batch * bundles + head // (h // bundles)) * n_rows + row
        sees = at * 0 + n_k
        if CAUSAL:
            sees = n_k - n_q + at + 1
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, DIM), tl.float32)
        for n in range(tl.load(counts + line)):
            j = tl.load(lists + line * n_max + n)
            stop = tl.minimum((j + 1) * BLOCK, n_k)
            for sub in range(0, BLOCK, TILE):
                key = j * BLOCK + sub + tl.arange(0, TILE)
                there = key < stop
                far = key.to(tl.int64)
                y = tl.load(
                    k + far[None, :] * k_l + column[:, None],
                    mask=there[None, :] & wide[:, None], other=0.0,
                )  # fmt: skip
                s = tl.dot(x, y, input_precision="ieee") * scale
                s = tl.where(key[None, :] < tl.minimum(sees, stop)[:, None], s, float("-inf"))
                # The first tile has a key for every query, so this is finite.
                higher = tl.maximum(top, tl.max(s, 1))
                old = tl.exp2(top - higher)
                p = tl.exp2(s - higher[:, None])
                total = total * old + tl.sum(p, 1)
                z = tl.load(
                    v + far[:, None] * v_l + column[None, :],
                    mask=there[:, None] & wide[None, :], other=0.0,
                )  # fmt: skip
                acc = acc * old[:, None] + tl.dot(p.to(z.dtype), z, input_precision="ieee")
                top = higher
        place = (batch * h + head) * n_q + at
        acc = acc / total[:, None]
        kept = mine[:, None] & wide[None, :]
        tl.store(out + place[:, None] * d + column[None, :], acc.to(x.dtype), mask=kept)
        tl.store(lse + place, (top + tl.log2(total)) / 1.4426950408889634, mask=mine)


def _drawn(
    h: int, g: int, bundles: int, n_q: int, n_k: int, *, d: int = 32, block: int = 32,
    share: float = 0.4, causal: bool = True,
) -> Case:  # fmt: skip
    """Normal queries, keys and values with gaps in memory, and random lists with the diagonal."""

    def make(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        def tokens(n: int, heads: int) -> Tensor:
            x = torch.randn(2, n, heads, d + 8, generator=generator).to(device, dtype)
            return x[..., :d].transpose(1, 2)

        visible, forced = visible_and_forced(n_q, n_k, block, causal=causal)
        some = torch.rand(2, bundles, *visible.shape, generator=generator) < share
        blocks = blocks_of_mask((some & visible | forced).to(device))
        return {
            "q": tokens(n_q, h), "k": tokens(n_k, g), "v": tokens(n_k, g), **blocks._asdict(),
            "block": block, "causal": causal,
        }  # fmt: skip

    name = f"{h}-{bundles}-{g}-{n_q}of{n_k}-D{d}-S{block}-{share:g}" + ("" if causal else "-all")
    return Case(name=name, inputs=make, dtypes=DTYPES_TRIED)


def _refused(name: str, match: str, **change: object) -> Refusal:
    x = torch.zeros(1, 2, 8, 16)
    blocks = blocks_of_mask(torch.ones(1, 1, 2, 2, dtype=torch.bool).tril())
    good: Inputs = {"q": x, "k": x[:, :1], "v": x[:, :1], **blocks._asdict(), "block": 4}
    return Refusal(name=name, inputs=lambda: good | change, match=match)


def band_mask(length: int, kept: int, device: torch.device | str) -> BlockMask:
    """The diagonal and the blocks before it, ``kept`` of 128 tokens in all, causal."""
    from torch.nn.attention.flex_attention import create_block_mask  # slow to import

    def inside(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query // 128 - key // 128 < kept)

    return create_block_mask(inside, None, None, length, length, device=str(device))


def flex_band(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Tensor:
    """The library's attention under a mask of blocks."""
    from torch.nn.attention.flex_attention import flex_attention

    out = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    assert isinstance(out, Tensor)
    return out


def _bench(
    length: int, d: int, kept: int, h: int = 4, g: int = 2, *, gpu_only: bool = False
) -> Bench:
    """The diagonal and the blocks before it, ``kept`` in all; the library does all of them."""
    n = length // 128

    def prepare(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
        q, k, v = (torch.randn(1, x, length, d, device=device, dtype=dtype) for x in (h, g, g))
        mask = torch.ones(1, g, n, n, dtype=torch.bool, device=device)
        blocks = blocks_of_mask(mask.tril().triu(1 - kept))
        calls: dict[str, Callable[[], object]] = {
            "torch": lambda: attend_blocks_torch(q, k, v, *blocks, block=128),
            "triton": lambda: attend_blocks_triton(q, k, v, *blocks, block=128),
            "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            ),
        }
        if device.type == "cuda":  # elsewhere it holds all scores, which measures nothing
            flex = torch.compile(flex_band, dynamic=False)
            band = band_mask(length, kept, device)
            calls["flex_attention"] = lambda: flex(q, k, v, band)
        return calls

    done = kept * n - kept * (kept - 1) // 2
    return Bench(
        size=f"L={length} H={h} Hkv={g} D={d}",
        prepare=prepare,
        gpu_only=gpu_only,
        flops=4.0 * h * d * 128**2 * done,
        density=done / (n * (n + 1) / 2),
    )


TOLERANCES = {
    torch.float32: Tolerance(absolute=1e-5, relative=2e-6),
    torch.float16: Tolerance(absolute=2e-3, relative=1e-3),
    torch.bfloat16: Tolerance(absolute=2e-2, relative=6e-3),
}
# Triton's interpreter has no bfloat16.
DTYPES_TRIED = tuple(TOLERANCES)[: 3 if torch.cuda.is_available() else 2]
_POINTERS = ("q", "k", "v", "out")
_NUMBERS = ("n_q", "n_k", "h", "g", "bundles", "n_rows", "n_max", "d")
_STRIDES = tuple(f"{x}_{axis}" for x in "qkv" for axis in "bhl")
_FIXED = {"BLOCK": 128, "TILE": 64, "DIM": 64, "CAUSAL": True}

KERNEL = Kernel(
    name="attend_blocks",
    torch=attend_blocks_torch,
    triton=attend_blocks_triton,
    reference=attend_blocks_float64,
    cases=(
        _drawn(4, 2, 2, 70, 150),
        _drawn(4, 1, 2, 100, 100, share=1.0),
        _drawn(8, 1, 1, 40, 64, share=0.0),
        _drawn(2, 2, 2, 1, 90),
        _drawn(2, 1, 2, 50, 33, d=20, causal=False),
        _drawn(2, 2, 2, 30, 30, block=12),
    ),
    refusals=(
        _refused("empty", "none of them 0", q=torch.zeros(1, 2, 0, 16)),
        _refused("double", "q is torch.float64", q=torch.zeros(1, 2, 8, 16).double()),
        _refused("mixed", "k is torch.float16 on cpu", k=torch.zeros(1, 1, 8, 16).half()),
        _refused("columns", "side by side", v=torch.zeros(1, 1, 16, 8).mT),
        _refused("gradient", "wants a gradient", q=torch.zeros(1, 2, 8, 16, requires_grad=True)),
        _refused("values", "the shape of k", v=torch.zeros(1, 1, 9, 16)),
        _refused("heads", "q has 3 heads", q=torch.zeros(1, 3, 8, 16), k=torch.zeros(1, 2, 8, 16),
                 v=torch.zeros(1, 2, 8, 16)),
        _refused("future", "8 queries see 7", k=torch.zeros(1, 1, 7, 16),
                 v=torch.zeros(1, 1, 7, 16)),
        _refused("lists", "expected int32", counts=torch.ones(1, 1, 3, dtype=torch.int32)),
        _refused("nothing", "counts run from 0", counts=torch.zeros(1, 1, 2, dtype=torch.int32)),
        _refused("absent", "not there", lists=torch.full((1, 1, 2, 2), 2, dtype=torch.int32)),
        _refused("hidden", "list the diagonal", lists=torch.ones(1, 1, 2, 2, dtype=torch.int32)),
    ),
    tolerances=TOLERANCES,
    signatures=tuple(
        Signature(
            function=_kernel,
            types=dict.fromkeys(_POINTERS, f"*{dtype}")
            | {"counts": "*i32", "lists": "*i32", "lse": "*fp32"}
            | dict.fromkeys(_NUMBERS, "i32")
            | {"scale": "fp32"}
            | dict.fromkeys(_STRIDES, "i64")
            | dict.fromkeys((*_FIXED, "ROWS"), "constexpr"),
            constants=_FIXED | {"ROWS": rows},
        )
        for dtype, rows in (("fp32", 64), ("bf16", 128))
        if triton is not None
    ),
    benches=(
        _bench(8192, 64, 8),
        _bench(16384, 128, 128, 32, 8, gpu_only=True),
        _bench(65536, 128, 128, 32, 8, gpu_only=True),
    ),
)  # fmt: skip
