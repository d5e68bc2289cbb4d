"""Which blocks of keys each block of queries attends to: the fewest that hold a share of the mass.

For a row of masses, with the forced blocks F (below) always in,

    t  = the largest t with sum over F + sum over {j not in F : M_j >= t} >= tau
    kept = F and {j : M_j >= t};   everything visible if no t reaches tau, or tau is 1

so that blocks of equal mass are kept together. Then at least ``min_blocks`` and at most
``max_blocks`` are kept, the forced ones first, then by mass, then by position. Forced are the
blocks on the diagonal, the ``local`` ones before it and the first ``sink``. Under causality later
blocks are invisible. Sums run in float64, so that every order of them keeps the same blocks.

The kernel finds t by bisection on the bits of the float32 masses, which is exact after 31 steps,
one program a row; the twin sorts all rows at once. Cost: ``4 B H (L / block)^2`` bytes, read once.

Source: Liu et al., arXiv 2512.14082; this rule is our reading of its selection by blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lamps_kernels._blocks import Blocks, blocks_of_mask, visible_and_forced
from lamps_kernels._kernel import Bench, Case, Inputs, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None


def select_blocks(
    mass: Tensor,
    *,
    queries: int,
    keys: int,
    block: int,
    tau: float = 0.95,
    sink: int = 1,
    local: int = 1,
    min_blocks: int = 1,
    max_blocks: int | None = None,
    causal: bool = True,
) -> Blocks:
    """The kept blocks of each row; see the module.

    Args:
        mass: Not negative; 0 where nothing is visible. Shape: [B, H, ceil(queries / block),
            ceil(keys / block)] float32.
        queries: Tokens behind the rows; they are the last of the keys.
        keys: Tokens behind the columns.
        block: Tokens of a block.
        tau: Share of the mass that is kept, in (0, 1].
        sink: First blocks that are always kept.
        local: Blocks before the diagonal that are always kept.
        min_blocks: Blocks that are kept at least, where as many are visible.
        max_blocks: Blocks that are kept at most, the forced ones in any case; None for no bound.
        causal: Whether blocks behind the diagonal are invisible.

    Raises:
        ValueError: Shapes, dtype or settings other than these, or a mass that is negative or NaN.

    Example:
        >>> import torch
        >>> mass = torch.tensor([[[[0.2, 0.5, 0.3]]]])
        >>> select_blocks(mass, queries=2, keys=6, block=2, tau=0.7, sink=0, local=0).lists
        tensor([[[[ 1,  2, -1]]]], dtype=torch.int32)
    """
    make = select_blocks_triton if mass.is_cuda and triton is not None else select_blocks_torch
    return make(
        mass, queries=queries, keys=keys, block=block, tau=tau, sink=sink, local=local,
        min_blocks=min_blocks, max_blocks=max_blocks, causal=causal,
    )  # fmt: skip


def _check(
    mass: Tensor, queries: int, keys: int, block: int, tau: float, sink: int, local: int,
    min_blocks: int, max_blocks: int | None, causal: bool,
) -> None:  # fmt: skip
    if block < 1:
        raise ValueError(f"block is {block}; expected at least 1 token")
    wanted = [-(-queries // block), -(-keys // block)]
    if mass.ndim != 4 or mass.dtype != torch.float32 or not mass.numel():
        raise ValueError(
            f"mass is {mass.dtype} {list(mass.shape)}; expected float32 [B, H, n_q, n_k], none 0"
        )
    if list(mass.shape[2:]) != wanted:
        raise ValueError(
            f"mass has {list(mass.shape[2:])} blocks; expected {wanted} of {block} tokens for "
            f"{queries} queries and {keys} keys"
        )
    if not bool((mass >= 0).all()):
        raise ValueError("mass holds a negative number or NaN; expected shares of 0 or more")
    if not 0 < tau <= 1:
        raise ValueError(f"tau is {tau}; expected a share in (0, 1]")
    if sink < 0 or local < 0 or min_blocks < 0:
        raise ValueError(
            f"sink, local and min_blocks are {sink}, {local} and {min_blocks}; expected 0 or more"
        )
    if max_blocks is not None and max_blocks < max(1, min_blocks):
        raise ValueError(f"max_blocks is {max_blocks}; expected None or at least 1 and min_blocks")
    if causal and keys < queries:
        raise ValueError(f"{queries} queries see {keys} keys; causality needs as many keys")


def select_blocks_torch(
    mass: Tensor,
    *,
    queries: int,
    keys: int,
    block: int,
    tau: float = 0.95,
    sink: int = 1,
    local: int = 1,
    min_blocks: int = 1,
    max_blocks: int | None = None,
    causal: bool = True,
) -> Blocks:
    """`select_blocks` in torch operations, all rows in one sort, on any device."""
    _check(mass, queries, keys, block, tau, sink, local, min_blocks, max_blocks, causal)
    visible, forced = visible_and_forced(
        queries, keys, block, sink=sink, local=local, causal=causal, device=mass.device
    )
    # Forced before visible before the rest; among equals a stable sort keeps the position.
    key = torch.where(forced, torch.inf, mass).masked_fill(~visible, -torch.inf)
    order = key.sort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order.indices)
    position = torch.arange(rank.shape[-1], device=rank.device)
    rank.scatter_(-1, order.indices, position.expand_as(rank))
    n_forced, n_visible = forced.sum(-1), visible.sum(-1)
    if tau >= 1:
        n = n_visible.expand(mass.shape[:-1])
    else:
        held = mass.masked_fill(~visible, 0).double().gather(-1, order.indices).cumsum(-1)
        n = ((held < tau).sum(-1) + 1).clamp(n_forced, n_visible)
        # Equal masses go together.
        least = order.values.gather(-1, n[..., None].sub(1).clamp_min(0))
        n = torch.where(n > n_forced, (key >= least).sum(-1), n)
    n = n.clamp_min(n_visible.clamp_max(min_blocks))
    if max_blocks is not None:
        n = n.minimum(n_forced.clamp_min(max_blocks))
    return blocks_of_mask(rank < n[..., None])


def select_blocks_float64(mass: Tensor, **settings: object) -> Blocks:
    """The definition, row by row, in Python's float64."""
    return _plain(mass, **settings)  # type: ignore[arg-type]


def _plain(
    mass: Tensor, *, queries: int, keys: int, block: int, tau: float = 0.95, sink: int = 1,
    local: int = 1, min_blocks: int = 1, max_blocks: int | None = None, causal: bool = True,
) -> Blocks:  # fmt: skip
    offset = max(keys - queries, 0)
    kept = torch.zeros(mass.shape, dtype=torch.bool)
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in mass.shape[:3])).tolist():
        row = [float(m) for m in mass[b, h, i]]
        last = min((offset + min((i + 1) * block, queries) - 1) // block, len(row) - 1)
        first = min((offset + i * block) // block, last)
        visible = range(last + 1) if causal else range(len(row))
        forced = {j for j in visible if j < sink or first - local <= j <= last}
        free = sorted((j for j in visible if j not in forced), key=lambda j: (-row[j], j))
        chosen = set(forced)
        total = sum(row[j] for j in forced)
        for position, j in enumerate(free):
            tied = position > 0 and row[j] == row[free[position - 1]] and len(chosen) > len(forced)
            if total >= tau and tau < 1 and not tied:
                break
            chosen.add(j)
            total += row[j]
        n = max(len(chosen), min(min_blocks, len(visible)))
        if max_blocks is not None:
            n = min(n, max(max_blocks, len(forced)))
        kept[b, h, i, (sorted(forced) + free)[:n]] = True
    return blocks_of_mask(kept.to(mass.device))


def select_blocks_triton(
    mass: Tensor,
    *,
    queries: int,
    keys: int,
    block: int,
    tau: float = 0.95,
    sink: int = 1,
    local: int = 1,
    min_blocks: int = 1,
    max_blocks: int | None = None,
    causal: bool = True,
) -> Blocks:
    """`select_blocks` as one Triton kernel; on CPU tensors under ``TRITON_INTERPRET=1``."""
    _check(mass, queries, keys, block, tau, sink, local, min_blocks, max_blocks, causal)
    if triton is None:
        raise ValueError(
            "the kernel needs triton, which is not installed; select_blocks_torch does not"
        )
    mass = mass.contiguous()
    n_q, n_k = mass.shape[2:]
    counts = torch.empty(mass.shape[:-1], dtype=torch.int32, device=mass.device)
    lists = torch.full(mass.shape, -1, dtype=torch.int32, device=mass.device)
    # A double as two floats' worth of bits would be rounded on the way, so tau travels in memory.
    share = torch.tensor([tau], dtype=torch.float64, device=mass.device)
    _kernel[(counts.numel(),)](
        mass, share, counts, lists, queries, keys, n_q, n_k, block, sink, local, min_blocks,
        n_k if max_blocks is None else max_blocks,
        ALL=tau >= 1, CAUSAL=causal, BLOCK=triton.next_power_of_2(n_k),
    )  # fmt: skip
    return Blocks(counts, lists)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        mass, share, counts, lists, queries, keys, n_q, n_k, block, sink, local, at_least, at_most,
        ALL: tl.constexpr, CAUSAL: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0).to(tl.int64)
        row = tl.program_id(0) % n_q
        column = tl.arange(0, BLOCK)
        m = tl.load(mass + program * n_k + column, mask=column < n_k, other=0.0)
        offset = tl.maximum(keys - queries, 0)
        last = (offset + tl.minimum((row + 1) * block, queries) - 1) // block
        first = tl.minimum((offset + row * block) // block, n_k - 1)
        last = tl.minimum(last, n_k - 1)
        visible = column < n_k
        if CAUSAL:
            visible = column <= last
        forced = visible & ((column < sink) | ((column >= first - local) & (column <= last)))
        free = visible & (forced == 0)
        n_forced = tl.sum(forced.to(tl.int32), 0)
        n_visible = tl.sum(visible.to(tl.int32), 0)
        # Bits of floats that are not negative are ordered as the floats are; -1 is not free.
        bits = tl.where(free, m.to(tl.int32, bitcast=True), -1)
        wide = m.to(tl.float64)
        if ALL:
            kept = visible
        else:
            tau = tl.load(share)
            held = tl.sum(tl.where(forced, wide, 0.0), 0)
            t = 0
            for step in range(31):
                trial = t | (1 << (30 - step))
                enough = held + tl.sum(tl.where(bits >= trial, wide, 0.0), 0) >= tau
                t = tl.where(enough, trial, t)
            kept = forced | (bits >= t)
        n = tl.sum(kept.to(tl.int32), 0)
        wanted = tl.maximum(n, tl.minimum(at_least, n_visible))
        wanted = tl.minimum(wanted, tl.maximum(at_most, n_forced))
        if wanted != n:
            more = wanted - n_forced
            t = 0
            for step in range(31):
                trial = t | (1 << (30 - step))
                t = tl.where(tl.sum((bits >= trial).to(tl.int32), 0) >= more, trial, t)
            above = bits > t
            equal = bits == t
            left = more - tl.sum(above.to(tl.int32), 0)
            kept = forced | above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= left))
        place = tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(lists + program * n_k + place, column, mask=kept)
        tl.store(counts + program, tl.sum(kept.to(tl.int32), 0))


def _masses(queries: int, keys: int, **settings: object) -> Case:
    """Shares of blocks of 8 tokens, some of them equal and some 0."""

    def make(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        shape = (2, 2, -(-queries // 8), -(-keys // 8))
        drawn = torch.randint(0, 9, shape, generator=generator).to(dtype).exp()
        visible, _ = visible_and_forced(
            queries, keys, 8, causal=bool(settings.get("causal", True))
        )
        drawn = drawn * visible * (torch.rand(shape, generator=generator) < 0.9) + 1e-30
        mass = drawn / drawn.sum(-1, keepdim=True)
        return {"mass": mass.to(device), "queries": queries, "keys": keys, "block": 8, **settings}

    words = "-".join(f"{k}={v}" for k, v in settings.items())
    return Case(name=f"{queries}of{keys}-{words}", inputs=make)


def _refused(name: str, match: str, **change: object) -> Refusal:
    good: Inputs = {"mass": torch.full((1, 1, 2, 2), 0.5), "queries": 8, "keys": 8, "block": 4}
    return Refusal(name=name, inputs=lambda: good | change, match=match)


def _bench(length: int, *, gpu_only: bool = False) -> Bench:
    def prepare(device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
        n = length // 128
        mass = torch.rand(1, 8, n, n, device=device).pow(8).tril()
        mass /= mass.sum(-1, keepdim=True)
        return {
            "torch": lambda: select_blocks_torch(mass, queries=length, keys=length, block=128),
            "triton": lambda: select_blocks_triton(mass, queries=length, keys=length, block=128),
            "sort": lambda: mass.sort(-1),
        }

    return Bench(
        size=f"L={length} H=8 S=128",
        prepare=prepare,
        gpu_only=gpu_only,
        bytes=8 * (length / 128) ** 2 * 8.0,
    )


_POINTERS = {"mass": "*fp32", "share": "*fp64", "counts": "*i32", "lists": "*i32"}
_NUMBERS = (
    "queries", "keys", "n_q", "n_k", "block", "sink", "local", "at_least", "at_most",
)  # fmt: skip
_FIXED = {"ALL": False, "CAUSAL": True, "BLOCK": 64}

KERNEL = Kernel(
    name="select_blocks",
    torch=select_blocks_torch,
    triton=select_blocks_triton,
    reference=select_blocks_float64,
    cases=(
        _masses(40, 61, tau=0.8),
        _masses(40, 61, tau=0.95, sink=2, local=2, min_blocks=4),
        _masses(40, 40, tau=0.6, sink=0, local=0, max_blocks=2),
        _masses(33, 47, tau=0.7, causal=False, min_blocks=3, max_blocks=3),
        _masses(1, 60, tau=1.0),
        _masses(24, 24, tau=1e-6, sink=0, local=0),
        _masses(3, 3, tau=0.5),
    ),
    refusals=(
        _refused("tau", "tau is 0", tau=0.0),
        _refused("more", "tau is 1.5", tau=1.5),
        _refused("blocks", "expected .3, 3. of 4", queries=12, keys=12),
        _refused("future", "8 queries see 7 keys", keys=7),
        _refused("negative", "negative number or NaN", mass=torch.full((1, 1, 2, 2), -0.5)),
        _refused("nan", "negative number or NaN", mass=torch.full((1, 1, 2, 2), torch.nan)),
        _refused("double", "torch.float64", mass=torch.ones(1, 1, 2, 2).double()),
        _refused("sink", "0 or more", sink=-1),
        _refused("most", "max_blocks is 1", min_blocks=2, max_blocks=1),
    ),
    tolerances={torch.float32: Tolerance(absolute=0.0, relative=0.0)},
    exact=True,
    compare=lambda blocks: (blocks.counts.double(), blocks.lists.double()),
    signatures=tuple(
        Signature(
            function=_kernel,
            types=_POINTERS | dict.fromkeys(_NUMBERS, "i32") | dict.fromkeys(_FIXED, "constexpr"),
            constants=_FIXED,
        )
        for _ in range(triton is not None)
    ),
    benches=(_bench(8192), _bench(131072, gpu_only=True)),
)
