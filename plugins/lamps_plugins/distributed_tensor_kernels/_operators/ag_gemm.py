"""All-gather of the rows of a matrix into a product with the columns of another.

    C_r = A B_r,    A = [A_0; ...; A_{W-1}] gathered,    A_r [M/W, K], B_r [K, N/W]

Rows of tiles are computed as soon as the chunk that holds them has come. A rank begins with its
own rows, for which it waits for nobody, unless the swizzle says ``none``.

Source: the fused all-gather product of Zheng et al., DITRON, arXiv 2605.02953; ours in detail.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from lamps_kernels.gemm import gemm
from torch import Tensor

from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators._base import (
    Operands,
    Operator,
    Reference,
    Shape,
    gather_rows,
    gemm_reference,
    owned,
)
from lamps_plugins.distributed_tensor_kernels._plan import Plan, chunk_tiles, order, shards
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer, Token

__all__ = ["AgGemm"]


class AgGemm(Operator):
    """See the module."""

    name: ClassVar[str] = "ag_gemm"
    sizes: ClassVar[Shape] = {"m": 512, "n": 512, "k": 512}
    halved: ClassVar[tuple[str, ...]] = ("m", "n", "k")

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        super().__init__(mesh, shape, plan)
        world = mesh.num_ranks()
        self.rows = shards(shape["m"], world)
        first, last = shards(shape["n"], world)[mesh.rank()]
        self.out = torch.empty((shape["m"], last - first), device=mesh.device)
        self.chunks = [self._chunks(last - first) for first, last in self.rows]
        longest = max(last - first for chunks in self.chunks for first, last in chunks)
        self.gathered = self.buffer(
            SymmBuffer(
                mesh,
                (longest, shape["k"]),
                (world - 1) * plan.chunks,
                sources=self.sources(),
            )
        )

    def _chunks(self, rows: int) -> list[tuple[int, int]]:
        """First row and last row + 1 of each chunk of a shard, at borders of tiles."""
        size = self.plan.block_m
        return [
            (min(a * size, rows), min(b * size, rows))
            for a, b in chunk_tiles(-(-rows // size), self.plan.chunks)
        ]

    @classmethod
    def tiles(cls, shape: Shape, world: int, plan: Plan) -> int:
        return -(-max(b - a for a, b in shards(shape["m"], world)) // plan.block_m)

    @classmethod
    def draw(cls, shape: Shape, seed: int) -> Operands:
        generator = torch.Generator().manual_seed(seed)
        return {
            "a": torch.randn(shape["m"], shape["k"], generator=generator),
            "b": torch.randn(shape["k"], shape["n"], generator=generator),
        }

    @classmethod
    def local(cls, full: Operands, shape: Shape, rank: int, world: int) -> Operands:
        rows, columns = (slice(*shards(shape[x], world)[rank]) for x in ("m", "n"))
        return {"a": owned(full["a"][rows]), "b": owned(full["b"][:, columns])}

    @classmethod
    def reference(cls, full: Operands, shape: Shape) -> Reference:
        return gemm_reference(full["a"], full["b"])

    @classmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        return whole[:, slice(*shards(shape["n"], world)[rank])]

    @classmethod
    def flops(cls, shape: Shape) -> float:
        return 2.0 * shape["m"] * shape["n"] * shape["k"]

    @classmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        return 4.0 * (world - 1) * shape["m"] / world * shape["k"]

    @classmethod
    def single(cls, full: Operands, shape: Shape) -> Tensor:
        return full["a"] @ full["b"]

    @classmethod
    def collective(cls, own: Operands, shape: Shape, mesh: DeviceMesh) -> Tensor:
        lengths = [last - first for first, last in shards(shape["m"], mesh.num_ranks())]
        return gather_rows(own["a"], lengths) @ own["b"]

    @classmethod
    def computing(cls, full: Operands, own: Operands, shape: Shape, rank: int, world: int) -> None:
        _ = full["a"] @ own["b"]

    @classmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        longest = max(last - first for first, last in shards(shape["m"], world))
        return 4 * shape["k"] * ((world + 1) * longest + shape["m"])

    def run(self, own: Operands, value: int) -> Tensor:
        mesh, plan = self.mesh, self.plan
        rank, world = mesh.rank(), mesh.num_ranks()
        mesh.begin()
        send = self._forward if plan.mode == "ring" else self._scatter
        mesh.later(lambda: send(own["a"], value))
        if plan.mode == "seq":
            mesh.join()
        slots = range((world - 1) * plan.chunks)
        everything = self.gathered.wait(slots, value) if plan.mode == "seq" else None
        for src in self._turns():
            for chunk, (first, last) in enumerate(self.chunks[src]):
                if src == rank:
                    rows = own["a"][first:last]
                else:
                    rows = self._chunk(src, chunk, value, everything)
                start = self.rows[src][0]
                self._product(rows, own["b"], self.out[start + first : start + last])
        self.finish(value)
        return self.out

    def _turns(self) -> list[int]:
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        if self.plan.mode == "ring" and self.plan.swizzle == "rank":
            return [(rank - step) % world for step in range(world)]  # as they arrive
        return order(rank, world, self.plan.swizzle, own_first=True)

    def _chunk(self, src: int, chunk: int, value: int, token: Token | None = None) -> Tensor:
        slot = self.slot(src, self.mesh.rank(), chunk)
        first, last = self.chunks[src][chunk]
        token = self.gathered.wait([slot], value) if token is None else token
        return self.gathered.consume(slot, token, last - first)

    def _product(self, rows: Tensor, b: Tensor, out: Tensor) -> None:
        gemm(rows, b, out=out, block_m=self.plan.block_m, block_n=self.plan.block_n)

    def _scatter(self, a: Tensor, value: int) -> None:
        """Each chunk to all others, then the next one."""
        rank = self.mesh.rank()
        for chunk, (first, last) in enumerate(self.chunks[rank]):
            for dst in self.receivers():
                self.gathered.send(a[first:last], dst, self.slot(rank, dst, chunk), value)

    def _forward(self, a: Tensor, value: int) -> None:
        """The own shard to the next rank, then each that comes from the one before."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        after = (rank + 1) % world
        for step in range(world - 1):
            src = (rank - step) % world
            for chunk, (first, last) in enumerate(self.chunks[src]):
                rows = self._chunk(src, chunk, value) if step else a[first:last]
                self.gathered.send(rows, after, self.slot(src, after, chunk), value)

    def alone(self, full: Operands, own: Operands) -> None:
        for first, last in self.rows:
            self._product(full["a"][first:last], own["b"], self.out[first:last])
