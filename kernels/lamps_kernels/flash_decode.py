"""Attention of one new query per sequence, with the keys cut into splits that run side by side.

    s_j = scale q . k_j,   m = max_j s_j,   l = sum_j exp(s_j - m),   o = sum_j exp(s_j - m) v_j

for the keys j of each split: o is not yet divided by l, so that splits, and ranks that hold other
keys, are put together by `flash_combine`. Within a split, keys come in blocks with a running
maximum: m' = max(m, max s), l' = exp(m - m') l + sum exp(s - m'), o' likewise. Heads that share
keys (H / Hkv of them) read them once. Memory-bound: ``2 B Hkv S D`` elements read. A split without
keys gives o = 0, l = 0 and m = -inf. NaN spreads to all three.

Source: Dao et al., Flash-Decoding, 2023, and the online softmax of arXiv 2205.14135, algorithm 1;
a tile program of DITRON, arXiv 2605.02953.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

DTYPES = (torch.float16, torch.float32, torch.bfloat16)
TRIED = DTYPES if torch.cuda.is_available() else DTYPES[:2]
"""Element types of the cases: Triton's interpreter has no bfloat16."""


class Partial(NamedTuple):
    """Attention over a part of the keys.

    Args:
        o: Weighted values, not divided by ``l``. Shape: [B, H, P, D] float32.
        m: Largest score. Shape: [B, H, P] float32.
        l: Sum of weights. Shape: [B, H, P] float32.
    """

    o: Tensor
    m: Tensor
    l: Tensor  # noqa: E741 - the name of the papers


def flash_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_len: Tensor,
    *,
    splits: int = 8,
    scale: float | None = None,
    block_n: int = 64,
) -> Partial:
    """Attention over each split of the keys; see the module.

    Args:
        q: Contiguous. Shape: [B, H, D] float32, float16 or bfloat16.
        k: Contiguous, in the dtype of ``q``; Hkv divides H. Shape: [B, Hkv, S, D].
        v: As ``k``.
        kv_len: Keys in use of each sequence, 0 to S. Shape: [B] int32.
        splits: P; each takes a whole number of blocks.
        scale: Factor on scores; 1 / sqrt(D) if None.
        block_n: Keys of a block, a power of two.

    Raises:
        ValueError: Shapes, dtypes or settings other than these.

    Example:
        >>> import torch
        >>> k = torch.zeros(1, 1, 3, 2)
        >>> found = flash_decode(k[:, :, 0], k, k + 1, torch.tensor([3], dtype=torch.int32))
        >>> found.l.sum().item(), found.o.sum(2).flatten().tolist()
        (3.0, [3.0, 3.0])
    """
    call = flash_decode_triton if q.is_cuda and triton is not None else flash_decode_torch
    return call(q, k, v, kv_len, splits=splits, scale=scale, block_n=block_n)


def split_length(s: int, splits: int, block_n: int) -> int:
    """Keys of each split but the last: a whole number of blocks, at least one."""
    blocks = -(-s // block_n)
    return max(1, -(-blocks // splits)) * block_n


def _check(q: Tensor, k: Tensor, v: Tensor, kv_len: Tensor, splits: int, block_n: int) -> None:
    if q.ndim != 3 or k.ndim != 4 or k.shape != v.shape or q.shape[::2] != k.shape[::3]:
        raise ValueError(
            f"q is {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}; expected [B, H, D] and "
            "twice [B, Hkv, S, D]"
        )
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} heads do not share {k.shape[1]} heads of keys evenly")
    if q.dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(
            f"q is {q.dtype}, k {k.dtype}, v {v.dtype}; expected one of float32, float16 and "
            "bfloat16 for all"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not x.is_contiguous():
            raise ValueError(f"{name} has strides {x.stride()}; expected a contiguous tensor")
    if kv_len.shape != q.shape[:1] or kv_len.dtype != torch.int32:
        raise ValueError(
            f"kv_len is {kv_len.dtype} {list(kv_len.shape)}; expected int32 [{len(q)}]"
        )
    if len(kv_len) and not kv_len.is_cuda and int(kv_len.min()) < 0:
        raise ValueError(f"kv_len is {kv_len.tolist()}; expected none negative")
    if len(kv_len) and not kv_len.is_cuda and int(kv_len.max()) > k.shape[2]:
        raise ValueError(f"kv_len is {kv_len.tolist()}; only {k.shape[2]} keys are allocated")
    if splits < 1:
        raise ValueError(f"splits is {splits}; expected 1 or more")
    if block_n < 16 or block_n & (block_n - 1):
        raise ValueError(f"block_n is {block_n}; expected a power of two from 16 up")


def flash_decode_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_len: Tensor,
    *,
    splits: int = 8,
    scale: float | None = None,
    block_n: int = 64,
) -> Partial:
    """`flash_decode` in torch operations, a split at a time, on any device."""
    _check(q, k, v, kv_len, splits, block_n)
    (b, h, d), shared = q.shape, k.shape[1]
    scale = d**-0.5 if scale is None else scale
    o = q.new_zeros((b, h, splits, d), dtype=torch.float32)
    m = torch.full((b, h, splits), -torch.inf, device=q.device)
    total = torch.zeros_like(m)
    span = split_length(k.shape[2], splits, block_n)
    for batch, length in enumerate(kv_len.tolist()):
        for head in range(shared):
            rows = slice(head * (h // shared), (head + 1) * (h // shared))
            for split in range(min(splits, -(-length // span))):
                at = slice(split * span, min((split + 1) * span, length))
                keys, values = k[batch, head, at].float(), v[batch, head, at].float()
                s = (q[batch, rows].float() @ keys.T) * scale
                top = s.amax(1)
                weights = torch.exp(s - top[:, None])
                o[batch, rows, split] = weights @ values
                m[batch, rows, split] = top
                total[batch, rows, split] = weights.sum(1)
    return Partial(o, m, total)


def flash_decode_float64(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_len: Tensor,
    *,
    splits: int = 8,
    scale: float | None = None,
    block_n: int = 64,
) -> Partial:
    """The definition in float64, query by query."""
    (b, h, d), shared = q.shape, k.shape[1]
    scale = d**-0.5 if scale is None else scale
    o = torch.zeros((b, h, splits, d), dtype=torch.float64)
    m = torch.full((b, h, splits), -torch.inf, dtype=torch.float64)
    total = torch.zeros_like(m)
    span = split_length(k.shape[2], splits, block_n)
    for i in range(b):
        for j in range(h):
            s = scale * (k[i, j * shared // h].double() @ q[i, j].double())
            s = s[: int(kv_len[i])].cpu()
            values = v[i, j * shared // h].double().cpu()
            for split in range(splits):
                part = s[split * span : (split + 1) * span]
                if len(part):
                    m[i, j, split] = part.max()
                    weights = torch.exp(part - part.max())
                    total[i, j, split] = weights.sum()
                    o[i, j, split] = weights @ values[split * span :][: len(part)]
    return Partial(o, m, total)


def flash_decode_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_len: Tensor,
    *,
    splits: int = 8,
    scale: float | None = None,
    block_n: int = 64,
) -> Partial:
    """`flash_decode` as one Triton launch; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(q, k, v, kv_len, splits, block_n)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    (b, h, d), shared = q.shape, k.shape[1]
    o = q.new_empty((b, h, splits, d), dtype=torch.float32)
    m, total = (q.new_empty((b, h, splits), dtype=torch.float32) for _ in range(2))
    if b:
        heads = h // shared
        _kernel[(b * shared, splits)](
            q, k, v, kv_len.to(q.device), o, m, total, k.shape[2], d, shared, heads,
            split_length(k.shape[2], splits, block_n), d**-0.5 if scale is None else scale,
            SPLITS=splits, HEADS=max(16, triton.next_power_of_2(heads)),
            DIM=max(16, triton.next_power_of_2(d)), BLOCK=block_n,
        )  # fmt: skip
    return Partial(o, m, total)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        q, k, v, kv_len, o, m, total, s, d, shared, heads, span, scale,
        SPLITS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        group, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
        head, column = tl.arange(0, HEADS), tl.arange(0, DIM)
        used = (head[:, None] < heads) & (column[None, :] < d)
        query = (group * heads + head).to(tl.int64)
        x = tl.load(q + query[:, None] * d + column[None, :], mask=used, other=0.0)
        first = split * span
        last = tl.minimum(first + span, tl.load(kv_len + group // shared))
        best = tl.full((HEADS,), float("-inf"), tl.float32)
        weight = tl.zeros((HEADS,), tl.float32)
        out = tl.zeros((HEADS, DIM), tl.float32)
        for start in range(first, last, BLOCK):
            key = start + tl.arange(0, BLOCK)
            place = (group * s + key[:, None]) * d + column[None, :]
            inside = (key[:, None] < last) & (column[None, :] < d)
            keys = tl.load(k + place, mask=inside, other=0.0)
            values = tl.load(v + place, mask=inside, other=0.0)
            scores = tl.dot(x, tl.trans(keys), input_precision="ieee") * scale
            scores = tl.where(key[None, :] < last, scores, float("-inf"))
            top = tl.maximum(best, tl.max(scores, 1))
            # Where every score is NaN the maximum may still be -inf; 0 keeps the NaN in sight.
            base = tl.where(top == float("-inf"), 0.0, top)
            shrink = tl.exp(best - base)
            p = tl.exp(scores - base[:, None])
            weight = weight * shrink + tl.sum(p, 1)
            part = tl.dot(p, values.to(tl.float32), input_precision="ieee")
            out = out * shrink[:, None] + part
            best = top
        at = query * SPLITS + split
        best = tl.where(weight == weight, best, weight)
        tl.store(m + at, best, mask=head < heads)
        tl.store(total + at, weight, mask=head < heads)
        tl.store(o + at[:, None] * d + column[None, :], out, mask=used)


def _drawn(
    b: int, h: int, shared: int, s: int, d: int, lengths: tuple[int, ...], splits: int
) -> Callable[..., dict[str, Any]]:
    def inputs(
        device: torch.device, dtype: torch.dtype, generator: torch.Generator
    ) -> dict[str, Any]:
        shapes = ((b, h, d), (b, shared, s, d), (b, shared, s, d))
        q, k, v = (torch.randn(x, generator=generator).to(device, dtype) for x in shapes)
        kv_len = torch.tensor(lengths, dtype=torch.int32)
        return {"q": q, "k": k, "v": v, "kv_len": kv_len, "splits": splits, "block_n": 32}

    return inputs


def _tensors(found: Partial) -> tuple[Tensor, ...]:
    """Weighted values, sums of weights, and the maxima without those of empty splits."""
    return found.o, found.l, torch.where(found.l == 0, 0, found.m.double())


def _bad(**changes: Any) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        k = torch.zeros(1, 2, 8, 4)
        lengths = torch.tensor([8], dtype=torch.int32)
        return {"q": torch.zeros(1, 4, 4), "k": k, "v": k.clone(), "kv_len": lengths} | changes

    return inputs


def _bench(s: int) -> Callable[[torch.device, torch.dtype], Mapping[str, Callable[[], Any]]]:
    def prepare(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
        generator = torch.Generator().manual_seed(0)
        made = _drawn(1, 8, 2, s, 64, (s,), 8)(device, dtype, generator) | {"block_n": 64}
        q, k, v = made["q"], made["k"], made["v"]
        attend = torch.nn.functional.scaled_dot_product_attention
        return {
            "SDPA": lambda: attend(q[:, :, None], k, v, enable_gqa=True),
            "torch": lambda: flash_decode_torch(**made),
            "triton": lambda: flash_decode_triton(**made),
        }

    return prepare


KERNEL = Kernel(
    name="flash_decode",
    torch=flash_decode_torch,
    triton=flash_decode_triton,
    reference=flash_decode_float64,
    compare=_tensors,
    cases=(
        Case(name="even", inputs=_drawn(1, 2, 2, 128, 32, (128,), 2), dtypes=TRIED),
        Case(name="ragged", inputs=_drawn(2, 4, 2, 150, 24, (97, 150), 3)),
        Case(name="empty-splits", inputs=_drawn(2, 2, 1, 64, 16, (0, 5), 4)),
    ),
    refusals=(
        Refusal(name="shapes", inputs=_bad(q=torch.zeros(1, 4, 5)), match="expected .B, H, D."),
        Refusal(name="heads", inputs=_bad(q=torch.zeros(1, 3, 4)), match="evenly"),
        Refusal(name="dtypes", inputs=_bad(q=torch.zeros(1, 4, 4).half()), match="for all"),
        Refusal(
            name="too-long", inputs=_bad(kv_len=torch.tensor([9], dtype=torch.int32)),
            match="only 8 keys",
        ),
        Refusal(
            name="negative", inputs=_bad(kv_len=torch.tensor([-1], dtype=torch.int32)),
            match="none negative",
        ),
        Refusal(name="splits", inputs=_bad(splits=0), match="splits is 0"),
        Refusal(name="block", inputs=_bad(block_n=48), match="block_n is 48"),
    ),
    tolerances={
        torch.float32: Tolerance(absolute=1e-5, relative=2e-6),
        torch.float16: Tolerance(absolute=1e-4, relative=1e-4),
        torch.bfloat16: Tolerance(absolute=5e-3, relative=6e-3),
    },
    signatures=() if triton is None else tuple(
        Signature(
            function=_kernel,
            types={
                "q": f"*{t}", "k": f"*{t}", "v": f"*{t}", "kv_len": "*i32", "o": "*fp32",
                "m": "*fp32", "total": "*fp32", "s": "i32", "d": "i32", "shared": "i32",
                "heads": "i32", "span": "i32", "scale": "fp32",
                **dict.fromkeys(("SPLITS", "HEADS", "DIM", "BLOCK"), "constexpr"),
            },
            constants={"SPLITS": 8, "HEADS": 16, "DIM": 64, "BLOCK": 64},
        )
        for t in ("fp32", "bf16")
    ),
    benches=(
        Bench(
            size="B=1 H=8 Hkv=2 S=4096 D=64", prepare=_bench(4096), flops=4 * 8 * 4096 * 64,
            bytes=2 * 4 * 2 * 4096 * 64,
        ),
        Bench(
            size="B=1 H=8 Hkv=2 S=32768 D=64", prepare=_bench(32768), gpu_only=True,
            flops=4 * 8 * 32768 * 64, bytes=2 * 2 * 2 * 32768 * 64,
        ),
    ),
)  # fmt: skip
