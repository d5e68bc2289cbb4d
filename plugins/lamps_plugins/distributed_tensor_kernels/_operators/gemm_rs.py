"""A product over a split inner dimension, summed over ranks: reduce-scatter and all-reduce.

    C = sum_r A_r B_r,    A_r [M, K/W], B_r [K/W, N]
    `GemmRs` leaves rows of C at their owner, [M/W, N]; `GemmAr` then gives all of C to everybody

A chunk leaves as soon as its tiles are computed. A rank begins with the shard of the next rank and
ends with its own, which nobody waits for, unless the swizzle says ``none``. Sums run over ranks 0
to W-1, whoever adds: in mode ``ring`` a running sum passes from rank 0 to rank W-1 and on to its
owner, elsewhere the owner adds what has come.

Source: the fused products of Zheng et al., DITRON, arXiv 2605.02953; the order of sums is our
rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from lamps_kernels.add_reduce import add_reduce
from lamps_kernels.gemm import gemm
from torch import Tensor

from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators._base import (
    Operands,
    Operator,
    Reference,
    Shape,
    gemm_reference,
    owned,
)
from lamps_plugins.distributed_tensor_kernels._operators.ag_gemm import AgGemm
from lamps_plugins.distributed_tensor_kernels._plan import Plan, chunk_tiles, order, shards
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer

__all__ = ["GemmAr", "GemmRs"]


class GemmRs(Operator):
    """Rows of the sum at their owner."""

    name: ClassVar[str] = "gemm_rs"
    sizes: ClassVar[Shape] = {"m": 512, "n": 512, "k": 512}
    halved: ClassVar[tuple[str, ...]] = ("m", "n", "k")

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        super().__init__(mesh, shape, plan)
        world, size, n = mesh.num_ranks(), plan.block_m, shape["n"]
        self.rows = shards(shape["m"], world)
        self.chunks = [
            [
                (min(first + a * size, last), min(first + b * size, last))
                for a, b in chunk_tiles(-(-(last - first) // size), plan.chunks)
            ]
            for first, last in self.rows
        ]
        longest = max(last - first for chunks in self.chunks for first, last in chunks)
        first, last = self.rows[mesh.rank()]
        self.out = torch.empty((last - first, n), device=mesh.device)
        # Two chunks under way; in `seq` everything is computed before anything leaves.
        whole = (world - 1) * plan.chunks
        self.scratch = [
            mesh.scratch(longest, n) for _ in range(max(whole, 1) if plan.mode == "seq" else 2)
        ]
        if plan.mode == "ring":
            before = (mesh.rank() - 1) % world
            sources = [before] * (world * plan.chunks) + [world - 1] * plan.chunks
        else:
            self.own = mesh.scratch(last - first, n)
            sources = self.sources()
        self.partial = self.buffer(SymmBuffer(mesh, (longest, n), len(sources), sources=sources))

    @classmethod
    def tiles(cls, shape: Shape, world: int, plan: Plan) -> int:
        return AgGemm.tiles(shape, world, plan)

    @classmethod
    def draw(cls, shape: Shape, seed: int) -> Operands:
        return AgGemm.draw(shape, seed)

    @classmethod
    def local(cls, full: Operands, shape: Shape, rank: int, world: int) -> Operands:
        inner = slice(*shards(shape["k"], world)[rank])
        return {"a": owned(full["a"][:, inner]), "b": owned(full["b"][inner])}

    @classmethod
    def reference(cls, full: Operands, shape: Shape) -> Reference:
        return gemm_reference(full["a"], full["b"])

    @classmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        return whole[slice(*shards(shape["m"], world)[rank])]

    @classmethod
    def flops(cls, shape: Shape) -> float:
        return AgGemm.flops(shape)

    @classmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        return 4.0 * (world - 1) * shape["m"] / world * shape["n"]

    @classmethod
    def single(cls, full: Operands, shape: Shape) -> Tensor:
        return full["a"] @ full["b"]

    @classmethod
    def collective(cls, own: Operands, shape: Shape, mesh: DeviceMesh) -> Tensor:
        whole = own["a"] @ own["b"]
        dist.all_reduce(whole)  # gloo scatters equal parts only, and these may differ by a row
        return cls.part(whole, shape, mesh.rank(), mesh.num_ranks())

    @classmethod
    def computing(cls, full: Operands, own: Operands, shape: Shape, rank: int, world: int) -> None:
        _ = own["a"] @ own["b"]

    @classmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        return 4 * shape["m"] * shape["n"]

    def run(self, own: Operands, value: int) -> Tensor:
        self.mesh.begin()
        if self.plan.mode == "ring":
            self._chain(own, value)
            self.mesh.join()
            self._take_delivered(value)
        else:
            self._compute(own, value)
            self._reduce(value)
        self.finish(value)
        return self.out

    def _pieces(self) -> Iterator[tuple[int, int, int, int]]:
        """Owner, chunk, first row and last row + 1 in the order of computing."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        for owner in order(rank, world, self.plan.swizzle, own_first=False):
            for chunk, (first, last) in enumerate(self.chunks[owner]):
                yield owner, chunk, first, last

    def _product(self, own: Operands, first: int, last: int, out: Tensor) -> Tensor:
        block: dict[str, Any] = {"block_m": self.plan.block_m, "block_n": self.plan.block_n}
        return gemm(own["a"][first:last], own["b"], out=out, **block)

    def _compute(self, own: Operands, value: int) -> None:
        """All partial products; those of others leave at once, in ``seq`` at the end."""
        rank, mine = self.mesh.rank(), self.rows[self.mesh.rank()][0]
        kept, under_way, sent = [], deque[Future[Any]](), 0
        for owner, chunk, first, last in self._pieces():
            if owner == rank:
                self._product(own, first, last, self.own[first - mine : last - mine])
                continue
            if self.plan.mode != "seq" and len(under_way) == len(self.scratch):
                self.mesh.result(under_way.popleft())
            scratch = self.scratch[sent % len(self.scratch)][: last - first]
            sent += 1
            piece = (self._product(own, first, last, scratch), owner, chunk)
            if self.plan.mode == "seq":
                kept.append(piece)
            else:
                under_way.append(self.mesh.later(partial(self._send, *piece, value)))
        for piece in kept:
            self.mesh.later(partial(self._send, *piece, value))

    def _send(self, piece: Tensor, owner: int, chunk: int, value: int) -> None:
        rank = self.mesh.rank()
        self.partial.send(piece, owner, self.slot(rank, owner, chunk), value)

    def _reduce(self, value: int) -> None:
        """Add the partial products of the own rows, chunk by chunk."""
        rank, mine = self.mesh.rank(), self.rows[self.mesh.rank()][0]
        if self.plan.mode == "seq":
            self.mesh.join()
            self.partial.wait(range(len(self.mesh.others)), value)
        for chunk, (first, last) in enumerate(self.chunks[rank]):
            at = slice(first - mine, last - mine)
            slots = {src: self.slot(src, rank, chunk) for src in self.mesh.others}
            token = self.partial.wait(list(slots.values()), value)
            parts = [
                self.own[at]
                if src == rank
                else self.partial.consume(slots[src], token, last - first)
                for src in range(self.mesh.num_ranks())
            ]
            add_reduce(parts, out=self.out[at])
            self.reduced(chunk, first, last, value)

    def _chain(self, own: Operands, value: int) -> None:
        """Running sums from rank 0 to rank W-1, and on to the owner."""
        under_way = deque[Future[Any]]()
        for i, (owner, chunk, first, last) in enumerate(self._pieces()):
            if len(under_way) == len(self.scratch):
                self.mesh.result(under_way.popleft())
            scratch = self.scratch[i % len(self.scratch)][: last - first]
            piece = (self._product(own, first, last, scratch), owner, chunk)
            under_way.append(self.mesh.later(partial(self._add, *piece, value)))

    def _add(self, piece: Tensor, owner: int, chunk: int, value: int) -> None:
        rank, last = self.mesh.rank(), self.mesh.num_ranks() - 1
        slot = owner * self.plan.chunks + chunk
        if rank:
            token = self.partial.wait([slot], value)
            before = self.partial.consume(slot, token, len(piece))
            add_reduce([before, piece], out=piece)
        if rank < last:
            self.partial.send(piece, rank + 1, slot, value)
        elif owner < last:
            self.partial.send(piece, owner, (last + 1) * self.plan.chunks + chunk, value)
        else:
            mine = self.rows[rank][0]
            first, end = self.chunks[rank][chunk]
            self.out[first - mine : end - mine] = piece

    def _take_delivered(self, value: int) -> None:
        """Copy finished sums from the last rank."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        mine = self.rows[rank][0]
        for chunk, (first, last) in enumerate(self.chunks[rank]):
            if rank < world - 1:
                slot = world * self.plan.chunks + chunk
                token = self.partial.wait([slot], value)
                found = self.partial.consume(slot, token, last - first)
                self.out[first - mine : last - mine] = found
            self.reduced(chunk, first, last, value)

    def reduced(self, chunk: int, first: int, last: int, value: int) -> None:
        """Called when a chunk of the own rows is final."""

    def alone(self, full: Operands, own: Operands) -> None:
        for i, (_, _, first, last) in enumerate(self._pieces()):
            self._product(own, first, last, self.scratch[i % len(self.scratch)][: last - first])


class GemmAr(GemmRs):
    """The sum on every rank: finished rows go from their owner to all others."""

    name: ClassVar[str] = "gemm_ar"

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        super().__init__(mesh, shape, plan)
        self.spread = self.buffer(
            SymmBuffer(
                mesh,
                self.partial.shape,
                len(mesh.others) * plan.chunks,
                sources=self.sources(),
            )
        )
        self.all = torch.empty((shape["m"], shape["n"]), device=mesh.device)

    @classmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        return whole

    @classmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        return 2 * super().wire_bytes(shape, world)

    @classmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        return 0  # summed in place

    def reduced(self, chunk: int, first: int, last: int, value: int) -> None:
        """Send finished rows on, in ``seq`` only when all are finished."""
        if self.plan.mode != "seq":
            self.mesh.later(lambda: self._spread(chunk, first, last, value))

    def _spread(self, chunk: int, first: int, last: int, value: int) -> None:
        rank = self.mesh.rank()
        mine = self.rows[rank][0]
        for dst in self.receivers():
            rows = self.out[first - mine : last - mine]
            self.spread.send(rows, dst, self.slot(rank, dst, chunk), value)

    def run(self, own: Operands, value: int) -> Tensor:
        super().run(own, value)
        return self.all

    def finish(self, value: int) -> None:
        """Collect the rows of all others, then end."""
        rank = self.mesh.rank()
        if self.plan.mode == "seq":
            for chunk, (first, last) in enumerate(self.chunks[rank]):
                self._spread(chunk, first, last, value)
        self.all[slice(*self.rows[rank])] = self.out
        for src in self.mesh.others:
            for chunk, (first, last) in enumerate(self.chunks[src]):
                slot = self.slot(src, rank, chunk)
                token = self.spread.wait([slot], value)
                self.all[first:last] = self.spread.consume(slot, token, last - first)
        super().finish(value)
