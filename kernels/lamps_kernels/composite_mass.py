"""How much attention goes from each block of queries to each block of keys, as composites see it.

With composite queries q_a (groups of ``group_q`` tokens) and composite keys k_b (``group_k``):

    s_ab = scale q_a . k_b + log n_b,        n_b tokens in group b
    p_ab = softmax of s_ab over the b that a may see
    M[I, J] = mean over the a of query block I of the sum of p_ab over the b of key block J

Under causality a sees b if b begins no later than a ends: ``b group_k <= offset + end(a) - 1``,
where queries are the last tokens, ``offset = keys - queries``. Rows of M sum to 1.

Cost: two passes over ``B H (L / group)^2 D`` multiply-adds, of which causality halves the sum; no
matrix of composites is kept, only M: ``4 B H (L / block)^2`` bytes.

Source: Liu et al., arXiv 2512.14082; that scores become masses in this way is our reading.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lamps_kernels._kernel import Bench, Case, Inputs, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

TILE = 64
"""Composite keys per step of the kernel."""

CHUNK = 1 << 18
"""Scores that the twin holds at a time, so that they stay in the cache."""


def composite_mass(
    q: Tensor,
    k: Tensor,
    *,
    queries: int,
    keys: int,
    group_q: int,
    group_k: int,
    block: int,
    scale: float,
    causal: bool = True,
) -> Tensor:
    """Masses of blocks; see the module.

    Args:
        q: Composite queries; H is a multiple of G. Shape: [B, H, ceil(queries / group_q), D]
            float32.
        k: Composite keys. Shape: [B, G, ceil(keys / group_k), D] float32.
        queries: Tokens behind ``q``.
        keys: Tokens behind ``k``; at least ``queries`` under causality.
        group_q: Tokens of a composite query; divides ``block``.
        group_k: Tokens of a composite key; divides ``block``.
        block: Tokens of a block.
        scale: Factor on the dot products.
        causal: Whether queries see no later keys.

    Returns:
        Shape: [B, H, ceil(queries / block), ceil(keys / block)] float32.

    Raises:
        ValueError: Shapes or settings other than these.

    Example:
        >>> import torch
        >>> composite_mass(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), queries=4, keys=4,
        ...                group_q=2, group_k=2, block=2, scale=1.0).tolist()
        [[[[1.0, 0.0], [0.5, 0.5]]]]
    """
    make = composite_mass_triton if q.is_cuda and triton is not None else composite_mass_torch
    return make(
        q, k, queries=queries, keys=keys, group_q=group_q, group_k=group_k, block=block,
        scale=scale, causal=causal,
    )  # fmt: skip


def _check(
    q: Tensor, k: Tensor, queries: int, keys: int, group_q: int, group_k: int, block: int,
    causal: bool,
) -> None:  # fmt: skip
    for name, group in (("group_q", group_q), ("group_k", group_k)):
        if group < 1 or block < 1 or block % group:
            raise ValueError(f"{name} is {group}; expected a divisor of the block of {block}")
    for name, x, tokens, group in (("q", q, queries, group_q), ("k", k, keys, group_k)):
        if x.ndim != 4 or x.dtype != torch.float32 or not x.numel():
            raise ValueError(
                f"{name} is {x.dtype} {list(x.shape)}; expected float32 [B, H, n, D], none 0"
            )
        if x.shape[2] != -(-tokens // group):
            raise ValueError(
                f"{name} has {x.shape[2]} composites; expected {-(-tokens // group)} of {group} "
                f"tokens for {tokens}"
            )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q is {list(q.shape)} and k is {list(k.shape)}; expected equal batch and width, and "
            "heads of q that are a multiple of those of k"
        )
    if causal and keys < queries:
        raise ValueError(f"{queries} queries see {keys} keys; causality needs as many keys")


def _seen(a: Tensor, queries: int, keys: int, group_q: int, group_k: int, causal: bool) -> Tensor:
    """How many composite keys each composite query ``a`` may see."""
    if not causal:
        return torch.full_like(a, -(-keys // group_k))
    last = keys - queries + ((a + 1) * group_q).clamp_max(queries) - 1
    return last // group_k + 1


def composite_mass_torch(
    q: Tensor,
    k: Tensor,
    *,
    queries: int,
    keys: int,
    group_q: int,
    group_k: int,
    block: int,
    scale: float,
    causal: bool = True,
) -> Tensor:
    """`composite_mass` in torch operations, some query blocks at a time, on any device."""
    _check(q, k, queries, keys, group_q, group_k, block, causal)
    per_q, per_k = block // group_q, block // group_k
    n_q, n_k = -(-queries // block), -(-keys // block)
    (b, h), g, n_b = q.shape[:2], k.shape[1], k.shape[2]
    counts = torch.full((n_b,), float(group_k), device=q.device)
    counts[-1] = keys - (n_b - 1) * group_k
    weight = counts.log()
    mass = q.new_zeros((b, h, n_q, n_k))
    flat_q, flat_k = q.reshape(b, g, h // g, -1, q.shape[3]), k[:, :, None]
    rows = max(1, CHUNK // (per_q * n_b))
    at = torch.arange(q.shape[2], device=q.device)
    column = torch.arange(n_b, device=q.device)
    for start in range(0, n_q, rows):
        a = at[start * per_q : (start + rows) * per_q]
        seen = _seen(a, queries, keys, group_q, group_k, causal)
        # The end of a block of keys, so that the sums over blocks are whole.
        width = min(n_b, -(-int(seen[-1]) // per_k) * per_k)
        hidden = column[:width] >= seen[:, None]
        for part, ours, theirs in zip(
            mass.view(b * g, h // g, n_q, n_k), flat_q.flatten(0, 1), flat_k.flatten(0, 1),
            strict=True,
        ):  # fmt: skip
            s = torch.matmul(ours[:, a[0] : a[-1] + 1] * scale, theirs[:, :width].mT)
            s = (s + weight[:width]).masked_fill_(hidden, -torch.inf).softmax(-1)
            s = torch.nn.functional.pad(s, (0, -width % per_k))
            s = s.view(*s.shape[:-1], -1, per_k).sum(-1)
            for row in range(-(-s.shape[-2] // per_q)):
                one = s[..., row * per_q : (row + 1) * per_q, :].mean(-2)
                part[:, start + row, : one.shape[-1]] = one
    return mass


def composite_mass_float64(
    q: Tensor,
    k: Tensor,
    *,
    queries: int,
    keys: int,
    group_q: int,
    group_k: int,
    block: int,
    scale: float,
    causal: bool = True,
) -> Tensor:
    """The definition in float64, all scores at once."""
    n_a, n_b = q.shape[2], k.shape[2]
    a = torch.arange(n_a, device=q.device)
    b = torch.arange(n_b, device=q.device)
    tokens = ((b + 1) * group_k).clamp_max(keys) - b * group_k
    shared = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    s = scale * q.double() @ shared.mT + tokens.double().log()
    seen = _seen(a, queries, keys, group_q, group_k, causal)
    p = s.masked_fill(b >= seen[:, None], -torch.inf).softmax(-1)
    mass = p.new_zeros((*q.shape[:2], -(-queries // block), -(-keys // block)))
    for i in range(mass.shape[2]):
        mine = p[:, :, i * (block // group_q) : (i + 1) * (block // group_q)].mean(2)
        for j in range(mass.shape[3]):
            per = block // group_k
            mass[:, :, i, j] = mine[:, :, j * per : (j + 1) * per].sum(-1)
    return mass


def composite_mass_triton(
    q: Tensor,
    k: Tensor,
    *,
    queries: int,
    keys: int,
    group_q: int,
    group_k: int,
    block: int,
    scale: float,
    causal: bool = True,
) -> Tensor:
    """`composite_mass` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(q, k, queries, keys, group_q, group_k, block, causal)
    if triton is None:
        raise ValueError(
            "the kernel needs triton, which is not installed; composite_mass_torch does not"
        )
    q, k = q.contiguous(), k.contiguous()
    (b, h, n_a, d), g = q.shape, k.shape[1]
    n_q, n_k = triton.cdiv(queries, block), triton.cdiv(keys, block)
    mass = q.new_zeros((b, h, n_q, n_k))
    padded = triton.next_power_of_2(block // group_k)
    _kernel[(n_q, b * h)](
        q, k, mass, queries, keys, n_a, k.shape[2], n_q, n_k, h // g, d, scale,
        GROUP_Q=group_q, GROUP_K=group_k, PER_Q=block // group_q, PER_K=block // group_k,
        ROWS=max(16, triton.next_power_of_2(block // group_q)),
        BLOCKS=max(1, TILE // padded, 16 // padded), PADDED=padded,
        DIM=max(16, triton.next_power_of_2(d)), CAUSAL=causal,
    )  # fmt: skip
    return mass


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _scores(  # type: ignore[no-untyped-def]
        x, keys_at, j, n_b, keys, seen, d, scale,
        GROUP_K: tl.constexpr, PER_K: tl.constexpr, BLOCKS: tl.constexpr, PADDED: tl.constexpr,
        DIM: tl.constexpr,
    ):  # fmt: skip
        # Composite keys of some blocks, each block padded to a power of two.
        at = tl.arange(0, BLOCKS * PADDED)
        key = (j + at // PADDED) * PER_K + at % PADDED
        real = (at % PADDED < PER_K) & (key < n_b)
        column = tl.arange(0, DIM)
        place = keys_at + key[None, :].to(tl.int64) * d + column[:, None]
        y = tl.load(place, mask=real[None, :] & (column[:, None] < d), other=0.0)
        count = tl.minimum(GROUP_K, tl.maximum(keys - key * GROUP_K, 1)).to(tl.float32)
        s = tl.dot(x, y, input_precision="ieee") * scale + tl.log(count)[None, :]
        return tl.where(real[None, :] & (key[None, :] < seen[:, None]), s, float("-inf"))

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        q, k, mass, queries, keys, n_a, n_b, n_q, n_k, shared, d, scale,
        GROUP_Q: tl.constexpr, GROUP_K: tl.constexpr, PER_Q: tl.constexpr, PER_K: tl.constexpr,
        ROWS: tl.constexpr, BLOCKS: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr,
        CAUSAL: tl.constexpr,
    ):  # fmt: skip
        i = tl.program_id(0)
        head = tl.program_id(1).to(tl.int64)
        row = tl.arange(0, ROWS)
        a = i * PER_Q + row
        mine = (row < PER_Q) & (a < n_a)
        column = tl.arange(0, DIM)
        place = q + (head * n_a + a[:, None]) * d + column[None, :]
        x = tl.load(place, mask=mine[:, None] & (column[None, :] < d), other=0.0)
        theirs = k + (head // shared) * n_b * d
        seen = a * 0 + n_b
        if CAUSAL:
            seen = (keys - queries + tl.minimum((a + 1) * GROUP_Q, queries) - 1) // GROUP_K + 1
        stop = tl.minimum(tl.cdiv(tl.max(seen, 0), PER_K), n_k)
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        for j in range(0, stop, BLOCKS):
            s = _scores(
                x, theirs, j, n_b, keys, seen, d, scale, GROUP_K, PER_K, BLOCKS, PADDED, DIM
            )
            higher = tl.maximum(top, tl.max(s, 1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(s - higher[:, None]), 1)
            top = higher
        share = tl.where(mine, 1.0 / (total * tl.sum(mine.to(tl.float32), 0)), 0.0)
        for j in range(0, stop, BLOCKS):
            s = _scores(
                x, theirs, j, n_b, keys, seen, d, scale, GROUP_K, PER_K, BLOCKS, PADDED, DIM
            )
            p = tl.sum(tl.exp(s - top[:, None]) * share[:, None], 0)
            block = j + tl.arange(0, BLOCKS)
            out = mass + (head * n_q + i) * n_k + block
            tl.store(out, tl.sum(tl.reshape(p, (BLOCKS, PADDED)), 1), mask=block < n_k)


def _inputs(
    q: tuple[int, int, int], k: tuple[int, int, int], *, block: int = 32, causal: bool = True
) -> Case:
    """Standard normal composites; ``q`` and ``k`` are heads, tokens, tokens of a group."""

    def make(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        a, b = (
            torch.randn(2, h, -(-n // size), 32, generator=generator, dtype=dtype).to(device)
            for h, n, size in (q, k)
        )
        return {
            "q": a, "k": b, "queries": q[1], "keys": k[1], "group_q": q[2], "group_k": k[2],
            "block": block, "scale": 0.5, "causal": causal,
        }  # fmt: skip

    name = f"{q[0]}x{q[1]}/{q[2]}-{k[0]}x{k[1]}/{k[2]}" + ("" if causal else "-all")
    return Case(name=name, inputs=make)


def _refused(name: str, match: str, **change: object) -> Refusal:
    x = torch.zeros(1, 1, 4, 8)
    good: Inputs = {
        "q": x, "k": x, "queries": 16, "keys": 16, "group_q": 4, "group_k": 4, "block": 8,
        "scale": 1.0,
    }  # fmt: skip
    return Refusal(name=name, inputs=lambda: good | change, match=match)


def _bench(length: int, *, gpu_only: bool = False) -> Bench:
    h, g, d, group = 4, 2, 64, 8

    def prepare(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], Tensor]]:
        n = length // group
        q, k = torch.randn(1, h, n, d, device=device), torch.randn(1, g, n, d, device=device)
        settings: Inputs = {
            "queries": length, "keys": length, "group_q": group, "group_k": group, "block": 128,
            "scale": d**-0.5,
        }  # fmt: skip

        def whole() -> Tensor:
            s = q @ k.repeat_interleave(h // g, 1).mT * d**-0.5
            hidden = torch.ones(n, n, dtype=torch.bool, device=device).triu(1)
            p: Tensor = s.masked_fill(hidden, -torch.inf).softmax(-1)
            return p.view(1, h, length // 128, 16, length // 128, 16).sum(-1).mean(3)

        return {
            "torch": lambda: composite_mass_torch(q, k, **settings),
            "triton": lambda: composite_mass_triton(q, k, **settings),
            "whole matrix": whole,
        }

    return Bench(
        size=f"L={length} H={h} Hkv={g} D={d} c={group}",
        prepare=prepare,
        gpu_only=gpu_only,
        flops=h * d * (length / group) ** 2,
    )


_NUMBERS = ("queries", "keys", "n_a", "n_b", "n_q", "n_k", "shared", "d")
_FIXED = {
    "GROUP_Q": 8, "GROUP_K": 8, "PER_Q": 16, "PER_K": 16, "ROWS": 16, "BLOCKS": 4, "PADDED": 16,
    "DIM": 64, "CAUSAL": True,
}  # fmt: skip

KERNEL = Kernel(
    name="composite_mass",
    torch=composite_mass_torch,
    triton=composite_mass_triton,
    reference=composite_mass_float64,
    cases=(
        _inputs((2, 128, 4), (2, 128, 4)),
        _inputs((4, 70, 4), (2, 150, 8)),
        _inputs((2, 1, 8), (1, 99, 4)),
        _inputs((1, 64, 32), (1, 100, 32)),
        _inputs((2, 70, 4), (1, 45, 4), causal=False),
        _inputs((1, 75, 3), (1, 75, 3), block=12),
    ),
    refusals=(
        _refused("group", "group_q is 3", group_q=3),
        _refused("composites", "q has 4 composites; expected 5", queries=20, keys=20),
        _refused("future", "16 queries see 15 keys", keys=15),
        _refused("half", "k is torch.float16", k=torch.zeros(1, 1, 4, 8).half()),
        _refused("width", "equal batch and width", k=torch.zeros(1, 1, 4, 7)),
        _refused("heads", "multiple of those of k", k=torch.zeros(1, 2, 4, 8)),
        _refused("empty", "none 0", q=torch.zeros(1, 0, 4, 8)),
    ),
    tolerances={torch.float32: Tolerance(absolute=1e-5, relative=1e-5)},
    signatures=tuple(
        Signature(
            function=_kernel,
            types=dict.fromkeys(("q", "k", "mass"), "*fp32")
            | dict.fromkeys(_NUMBERS, "i32")
            | {"scale": "fp32"}
            | dict.fromkeys(_FIXED, "constexpr"),
            constants=_FIXED,
        )
        for _ in range(triton is not None)
    ),
    benches=(_bench(8192), _bench(65536, gpu_only=True)),
)
