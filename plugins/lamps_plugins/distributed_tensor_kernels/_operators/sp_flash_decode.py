"""Attention of one new query per sequence over keys that are split over ranks by position.

    q [B, H, D] everywhere, K and V [B, Hkv, S/W, D]  ->  out [B, H, D] everywhere

Each rank attends to its own keys and sends the result with the logarithm of its sum of weights,
D + 1 numbers a head, instead of any key; everybody combines the parts in the order of ranks.
Pieces are heads of keys of a sequence. (A push of the whole is what ``seq`` does here.)

Source: the sequence-parallel decoding of Zheng et al., DITRON, arXiv 2605.02953, over Dao et al.,
Flash-Decoding, 2023.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from lamps_kernels.flash_combine import flash_combine
from lamps_kernels.flash_decode import flash_decode
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators._base import (
    Operands,
    Operator,
    Reference,
    Shape,
    gather_rows,
    owned,
)
from lamps_plugins.distributed_tensor_kernels._plan import Plan, chunk_tiles, shards
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer

__all__ = ["SpFlashDecode"]

RELATIVE = 2e-6
"""Frobenius norm of the error over that of the answer, at most, in float32."""


class SpFlashDecode(Operator):
    """See the module."""

    name: ClassVar[str] = "sp_flash_decode"
    sizes: ClassVar[Shape] = {"b": 2, "h": 8, "hkv": 2, "s": 8192, "d": 64}
    halved: ClassVar[tuple[str, ...]] = ("s",)
    modes: ClassVar[tuple[str, ...]] = ("seq", "ring", "split")
    uses: ClassVar[tuple[str, ...]] = ("mode", "chunks", "swizzle", "splits")

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        super().__init__(mesh, shape, plan)
        groups = shape["b"] * shape["hkv"]
        self.heads = shape["h"] // shape["hkv"]
        self.chunks = chunk_tiles(groups, plan.chunks)
        longest = max(last - first for first, last in self.chunks) * self.heads
        slots, width = (mesh.num_ranks() - 1) * plan.chunks, shape["d"] + 1
        self.parts = self.buffer(SymmBuffer(mesh, (longest, width), slots, sources=self.sources()))
        self.own = mesh.scratch(groups * self.heads, width)
        self.out = torch.empty((groups * self.heads, width), device=mesh.device)

    @classmethod
    def tiles(cls, shape: Shape, world: int, plan: Plan) -> int:
        return shape["b"] * shape["hkv"]

    @classmethod
    def check_shape(cls, shape: Shape, world: int) -> None:
        super().check_shape(shape, world)
        if shape["h"] % shape["hkv"]:
            raise ProblemError(
                f"{shape['h']} heads do not share {shape['hkv']} heads of keys evenly"
            )

    @classmethod
    def draw(cls, shape: Shape, seed: int) -> Operands:
        """The first sequence fills its cache, others end somewhere in it."""
        generator = torch.Generator().manual_seed(seed)
        b, h, hkv, s, d = (shape[name] for name in ("b", "h", "hkv", "s", "d"))
        used = torch.randint(1, s + 1, (b,), generator=generator, dtype=torch.int32)
        used[0] = s
        return {
            "q": torch.randn(b, h, d, generator=generator),
            "k": torch.randn(b, hkv, s, d, generator=generator),
            "v": torch.randn(b, hkv, s, d, generator=generator),
            "kv_len": used,
        }

    @classmethod
    def local(cls, full: Operands, shape: Shape, rank: int, world: int) -> Operands:
        first, last = shards(shape["s"], world)[rank]
        if int(full["kv_len"].max()) > shape["s"]:
            raise ProblemError(
                f"kv_len is {full['kv_len'].tolist()}; only {shape['s']} keys are allocated"
            )
        return {
            "q": owned(full["q"]),
            "k": owned(full["k"][:, :, first:last]),
            "v": owned(full["v"][:, :, first:last]),
            "kv_len": (full["kv_len"] - first).clamp(0, last - first),
        }

    @classmethod
    def reference(cls, full: Operands, shape: Shape) -> Reference:
        """Values [B H, D] beside the logarithms of the sums of weights [B H, 1]."""
        shared = shape["h"] // shape["hkv"]
        k, v = (full[x].double().repeat_interleave(shared, 1) for x in ("k", "v"))
        scores = torch.einsum("bhd,bhsd->bhs", full["q"].double(), k) * shape["d"] ** -0.5
        unused = torch.arange(shape["s"])[None, None] >= full["kv_len"][:, None, None]
        scores = scores.masked_fill(unused, -torch.inf)
        out = torch.einsum("bhs,bhsd->bhd", scores.softmax(2), v)
        lse = scores.logsumexp(2, keepdim=True)
        return Reference(torch.cat([out, lse], 2).flatten(0, 1), None, RELATIVE)

    @classmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        return whole

    @classmethod
    def flops(cls, shape: Shape) -> float:
        return 4.0 * shape["b"] * shape["h"] * shape["s"] * shape["d"]

    @classmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        return 4.0 * (world - 1) * shape["b"] * shape["h"] * (shape["d"] + 1)

    @classmethod
    def single(cls, full: Operands, shape: Shape) -> Tensor:
        """`scaled_dot_product_attention`, with the logarithms from a second pass over scores."""
        b, h, hkv, s = (shape[name] for name in ("b", "h", "hkv", "s"))
        used = (torch.arange(s)[None] < full["kv_len"][:, None])[:, None, None]
        out = torch.nn.functional.scaled_dot_product_attention(
            full["q"][:, :, None], full["k"], full["v"], attn_mask=used, enable_gqa=True
        )
        q = full["q"].view(b, hkv, h // hkv, -1) * shape["d"] ** -0.5
        scores = (q @ full["k"].mT).masked_fill(~used, -torch.inf)
        return torch.cat([out.view(b * h, -1), scores.logsumexp(3).view(b * h, 1)], 1)

    @classmethod
    def collective(cls, own: Operands, shape: Shape, mesh: DeviceMesh) -> Tensor:
        part = _packed(own, shape, 1)
        parts = gather_rows(part, [len(part)] * mesh.num_ranks()).view(
            mesh.num_ranks(), *part.shape
        )
        return _combined(list(parts))

    @classmethod
    def computing(cls, full: Operands, own: Operands, shape: Shape, rank: int, world: int) -> None:
        _packed(own, shape, 1)

    @classmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        return 4 * (2 * world + 2) * shape["b"] * shape["h"] * (shape["d"] + 1)

    def run(self, own: Operands, value: int) -> Tensor:
        mesh, plan = self.mesh, self.plan
        rank, world = mesh.rank(), mesh.num_ranks()
        mesh.begin()
        for chunk in range(plan.chunks):
            at = self._rows(chunk)
            self.own[at] = self._attend(own, chunk)
            if plan.mode == "split":
                mesh.later(partial(self._spread, chunk, value))
            elif plan.mode == "ring":
                mesh.later(partial(self._pass, rank, chunk, value))
        if plan.mode == "seq":
            self._spread(0, value)
        elif plan.mode == "ring":
            for step in range(1, world - 1):
                for chunk in range(plan.chunks):
                    src = (rank - step) % world
                    mesh.later(partial(self._pass, src, chunk, value))
        for chunk in range(plan.chunks):
            at = self._rows(chunk)
            slots = {src: self.slot(src, rank, chunk) for src in mesh.others}
            token = self.parts.wait(list(slots.values()), value)
            self.out[at] = _combined(
                [
                    self.own[at]
                    if src == rank
                    else self.parts.consume(slots[src], token, at.stop - at.start)
                    for src in range(world)
                ]
            )
        self.finish(value)
        return self.out

    def _rows(self, chunk: int) -> slice:
        first, last = self.chunks[chunk]
        return slice(first * self.heads, last * self.heads)

    def _attend(self, own: Operands, chunk: int) -> Tensor:
        return _packed(own, self.shape, self.plan.splits, self.chunks[chunk])

    def _spread(self, chunk: int, value: int) -> None:
        rank = self.mesh.rank()
        for dst in self.receivers():
            self.parts.send(self.own[self._rows(chunk)], dst, self.slot(rank, dst, chunk), value)

    def _pass(self, src: int, chunk: int, value: int) -> None:
        """The own part, or what came from the rank before, to the next rank."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        if world == 1:
            return
        after, at = (rank + 1) % world, self._rows(chunk)
        if src == rank:
            rows = self.own[at]
        else:
            slot = self.slot(src, rank, chunk)
            rows = self.parts.consume(slot, self.parts.wait([slot], value), at.stop - at.start)
        self.parts.send(rows, after, self.slot(src, after, chunk), value)

    def alone(self, full: Operands, own: Operands) -> None:
        for chunk in range(self.plan.chunks):
            self.own[self._rows(chunk)] = self._attend(own, chunk)


def _packed(
    own: Operands, shape: Shape, splits: int, groups: tuple[int, int] | None = None
) -> Tensor:
    """Attention over the own keys and the logarithm of its sum of weights.

    Args:
        own: This rank's operands.
        shape: Sizes.
        splits: Parts of the keys.
        groups: First and last + 1 of the pairs of sequence and head of keys; all if None.

    Returns:
        Shape: [groups * H / Hkv, D + 1] float32.
    """
    d, heads, hkv = shape["d"], shape["h"] // shape["hkv"], shape["hkv"]
    at = slice(None) if groups is None else slice(*groups)
    q = own["q"].view(-1, heads, d)[at]
    k, v = (own[x].flatten(0, 1)[at, None] for x in ("k", "v"))
    kv_len = own["kv_len"].repeat_interleave(hkv)[at]
    found = flash_decode(q, k, v, kv_len, splits=splits)
    o, m, weight = (x.flatten(0, 1) for x in found)
    out, lse = flash_combine(o, m, weight)
    return torch.cat([out, lse[:, None]], 1)


def _combined(parts: list[Tensor]) -> Tensor:
    """Parts of all ranks, in their order. Shape: W times [R, D + 1], gives [R, D + 1]."""
    stacked = torch.stack(parts, 1)
    lse = stacked[:, :, -1].contiguous()
    out, total = flash_combine(stacked[:, :, :-1].contiguous(), lse, torch.ones_like(lse))
    return torch.cat([out, total[:, None]], 1)
