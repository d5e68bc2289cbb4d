"""One decoding step of a transformer as a graph of tile tasks, split over ranks by heads.

For each layer: rmsnorm, product for q, k and v, attention over the cache with the new key in it,
product with the output weights, sum over ranks, rmsnorm, products for gate and up, swiglu, product
with the down weights, sum over ranks. Each is cut into tiles of ``block_n`` columns (heads of keys
for attention); a tile runs as soon as the slices it reads are there, also across operations, and a
finished tile of a partial sum leaves at once. Sums run over ranks 0 to W-1, so neither the
schedule nor the number of workers changes a bit.

Source: the task level of Zheng et al., DITRON, arXiv 2605.02953, after the scheduler of its
public system; ours in detail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
import torch.distributed as dist
from lamps_kernels.add_reduce import add_reduce
from lamps_kernels.flash_combine import flash_combine
from lamps_kernels.flash_decode import flash_decode
from lamps_kernels.gemm import tile_product
from lamps_kernels.rmsnorm import rmsnorm
from lamps_kernels.swiglu import swiglu
from torch import Tensor
from torch.nn import functional as nnf

from lamps.errors import ProblemError
from lamps_plugins.distributed_tensor_kernels._graph import Graph, GraphBuilder, even_slices
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators._base import (
    Operands,
    Operator,
    Reference,
    Shape,
    owned,
)
from lamps_plugins.distributed_tensor_kernels._plan import Plan, shards
from lamps_plugins.distributed_tensor_kernels._schedule import schedule
from lamps_plugins.distributed_tensor_kernels._scoreboard import Scoreboard
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer

__all__ = ["DecodeStep", "step_graph"]

RELATIVE = 1e-5
"""Frobenius norm of the error over that of the answer, at most."""

BYTES_S = 6e9
"""Bytes of weights a second that the costs of tiles assume; only their order matters."""

TASK_S = 3e-5
"""Seconds of any task besides its bytes, as the costs assume."""


def step_graph(shape: Shape, block_n: int, heads: int, keys: int, f: int) -> Graph:
    """The graph of one rank.

    Args:
        shape: Sizes of the problem.
        block_n: Columns of a tile.
        heads: Heads of this rank.
        keys: Heads of keys of this rank.
        f: Columns of gate and up of this rank.
    """
    b, d = shape["b"], shape["d"]
    wide = d // shape["h"]
    group = heads // max(keys, 1) * wide
    builder = GraphBuilder()

    def product(op: str, layer: int, inner: int, n: int, reads: str, writes: str) -> None:
        cost = TASK_S + 4 * inner * min(block_n, n) / BYTES_S
        whole = np.array([[0, inner]])
        builder.add(op, layer, even_slices(n, block_n), [(reads, whole)], buffer=writes, cost=cost)

    one, tiles = np.array([[0, d]]), even_slices(d, block_n)
    q = even_slices(heads * wide, group)
    k = even_slices(keys * wide, wide) + heads * wide
    attend = TASK_S + 8 * b * shape["s"] * wide / BYTES_S
    for layer in range(shape["layers"]):
        builder.add("norm", layer, one, [("x", one)], buffer="normed", cost=TASK_S)
        product("qkv", layer, d, (heads + 2 * keys) * wide, "normed", "qkv")
        reads = [("qkv", q), ("qkv", k), ("qkv", k + keys * wide)]
        builder.add("attend", layer, q, reads, buffer="attended", cost=attend)
        product("out", layer, heads * wide, d, "attended", "partial")
        builder.add("put", layer, tiles, [("partial", tiles)], buffer="put", cost=TASK_S)
        reads = [("put", tiles), ("x", tiles)]
        builder.add("sum", layer, tiles, reads, buffer="mid", cost=TASK_S)
        builder.add("norm2", layer, one, [("mid", one)], buffer="normed2", cost=TASK_S)
        product("gate", layer, d, f, "normed2", "gate")
        product("up", layer, d, f, "normed2", "up")
        act = even_slices(f, 2 * block_n)
        builder.add("act", layer, act, [("gate", act), ("up", act)], buffer="act", cost=TASK_S)
        product("down", layer, f, d, "act", "partial2")
        builder.add("put2", layer, tiles, [("partial2", tiles)], buffer="put2", cost=TASK_S)
        reads = [("put2", tiles), ("mid", tiles)]
        builder.add("sum2", layer, tiles, reads, buffer="x", cost=TASK_S)
    return builder.build()


class DecodeStep(Operator):
    """See the module."""

    name: ClassVar[str] = "decode_step"
    sizes: ClassVar[Shape] = {
        "layers": 2, "b": 2, "d": 512, "h": 8, "hkv": 4, "f": 1024, "s": 2048,
    }  # fmt: skip
    halved: ClassVar[tuple[str, ...]] = ("d", "f", "s")
    modes: ClassVar[tuple[str, ...]] = ("seq",)  # the graph decides what overlaps
    uses: ClassVar[tuple[str, ...]] = ("block_n", "scheduler", "workers")

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        super().__init__(mesh, shape, plan)
        world, rank, (b, d) = mesh.num_ranks(), mesh.rank(), (shape["b"], shape["d"])
        self.wide = d // shape["h"]
        first, last = shards(shape["hkv"], world)[rank]
        self.keys, self.group = last - first, shape["h"] // shape["hkv"]
        heads = self.keys * self.group
        f_first, f_last = shards(shape["f"], world)[rank]
        self.graph = step_graph(shape, plan.block_n, heads, self.keys, f_last - f_first)
        self.columns = even_slices(d, plan.block_n).tolist()
        # Two sums a layer; a slot is a tile of one of them.
        self.n_sums = 2 * shape["layers"]
        sources = [src for src in mesh.others for _ in range(self.n_sums * len(self.columns))]
        self.sums = self.buffer(
            SymmBuffer(mesh, (b, min(plan.block_n, d)), len(sources), sources=sources)
        )
        width = {
            "x": d, "normed": d, "qkv": (heads + 2 * self.keys) * self.wide,
            "attended": heads * self.wide, "partial": d, "mid": d, "normed2": d,
            "gate": f_last - f_first, "up": f_last - f_first, "act": f_last - f_first,
            "partial2": d,
        }  # fmt: skip
        self.held = {name: mesh.scratch(b, n) for name, n in width.items()}
        self.own: Operands = {}
        self.value, self.local_only = 0, False
        conditions = mesh.conditions
        self.board = Scoreboard(
            schedule(self.graph, plan.workers, plan.scheduler),
            self.graph.n_nodes,
            self._body,
            wait_s=(world + 1) * mesh.transport.wait_s,
            name=self.name,
            heed=conditions.heed,
        )
        self.turns = 0
        self.bodies: dict[str, Callable[[int, int, int, int], None]] = {
            "norm": lambda layer, tile, a, b: self._norm("x", "norm1", "normed", layer),
            "qkv": lambda layer, tile, a, b: self._product("normed", "qkv", "qkv", layer, a, b),
            "attend": lambda layer, tile, a, b: self._attend(layer, tile),
            "out": lambda layer, tile, a, b: self._product(
                "attended", "out", "partial", layer, a, b
            ),
            "put": lambda layer, tile, a, b: self._put("partial", 2 * layer, tile, a, b),
            "sum": lambda layer, tile, a, b: self._sum(
                "partial", "x", "mid", 2 * layer, tile, a, b
            ),
            "norm2": lambda layer, tile, a, b: self._norm("mid", "norm2", "normed2", layer),
            "gate": lambda layer, tile, a, b: self._product(
                "normed2", "gate", "gate", layer, a, b
            ),
            "up": lambda layer, tile, a, b: self._product("normed2", "up", "up", layer, a, b),
            "act": lambda layer, tile, a, b: self._act(a, b),
            "down": lambda layer, tile, a, b: self._product(
                "act", "down", "partial2", layer, a, b
            ),
            "put2": lambda layer, tile, a, b: self._put("partial2", 2 * layer + 1, tile, a, b),
            "sum2": lambda layer, tile, a, b: self._sum(
                "partial2", "mid", "x", 2 * layer + 1, tile, a, b
            ),
        }

    # --- the problem ---------------------------------------------------------------------------

    @classmethod
    def check_shape(cls, shape: Shape, world: int) -> None:
        super().check_shape(shape, world)
        if shape["h"] % shape["hkv"] or shape["d"] % shape["h"]:
            raise ProblemError(
                f"decode_step: d={shape['d']}, h={shape['h']}, hkv={shape['hkv']}; hkv must "
                "divide h and h must divide d"
            )
        if shape["hkv"] < world or shape["f"] < world:
            raise ProblemError(
                f"decode_step: hkv={shape['hkv']} and f={shape['f']} on {world} ranks; expected "
                "one a rank or more"
            )

    @classmethod
    def tiles(cls, shape: Shape, world: int, plan: Plan) -> int:
        return -(-shape["d"] // plan.block_n)

    @classmethod
    def draw(cls, shape: Shape, seed: int) -> Operands:
        generator = torch.Generator().manual_seed(seed)
        layers, b, d, f, s = (shape[name] for name in ("layers", "b", "d", "f", "s"))
        wide = d // shape["h"]
        keys = shape["hkv"] * wide

        def matrix(inner: int, n: int) -> Tensor:
            return torch.randn(layers, inner, n, generator=generator) / math.sqrt(inner)

        cache = (layers, shape["hkv"], b, 1, s, wide)
        return {
            "x": torch.randn(b, d, generator=generator),
            "norm1": 1 + 0.1 * torch.randn(layers, d, generator=generator),
            "norm2": 1 + 0.1 * torch.randn(layers, d, generator=generator),
            "q": matrix(d, d), "wk": matrix(d, keys), "wv": matrix(d, keys), "out": matrix(d, d),
            "gate": matrix(d, f), "up": matrix(d, f), "down": matrix(f, d),
            "k": torch.randn(cache, generator=generator),
            "v": torch.randn(cache, generator=generator),
        }  # fmt: skip

    @classmethod
    def local(cls, full: Operands, shape: Shape, rank: int, world: int) -> Operands:
        wide = shape["d"] // shape["h"]
        group = shape["h"] // shape["hkv"] * wide
        first, last = shards(shape["hkv"], world)[rank]
        f = slice(*shards(shape["f"], world)[rank])
        heads, keys = slice(first * group, last * group), slice(first * wide, last * wide)
        own = {name: owned(full[name]) for name in ("x", "norm1", "norm2")}
        parts = [full["q"][:, :, heads], full["wk"][:, :, keys], full["wv"][:, :, keys]]
        return own | {
            "qkv": torch.cat(parts, 2), "out": owned(full["out"][:, heads]),
            "gate": owned(full["gate"][:, :, f]), "up": owned(full["up"][:, :, f]),
            "down": owned(full["down"][:, f]),
            "k": owned(full["k"][:, first:last]), "v": owned(full["v"][:, first:last]),
        }  # fmt: skip

    @classmethod
    def reference(cls, full: Operands, shape: Shape) -> Reference:
        wide = {name: x.double() for name, x in cls.local(full, shape, 0, 1).items()}
        return Reference(_eager(wide, shape, lambda x: x), None, RELATIVE)

    @classmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        return whole

    @classmethod
    def flops(cls, shape: Shape) -> float:
        d, keys = shape["d"], shape["hkv"] * shape["d"] // shape["h"]
        weights = 2 * d * d + 2 * d * keys + 3 * d * shape["f"]
        return 2.0 * shape["layers"] * shape["b"] * (weights + 2 * shape["s"] * d)

    @classmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        return 8.0 * shape["layers"] * (world - 1) * shape["b"] * shape["d"]

    @classmethod
    def single(cls, full: Operands, shape: Shape) -> Tensor:
        return _eager(cls.local(full, shape, 0, 1), shape, lambda x: x)

    @classmethod
    def collective(cls, own: Operands, shape: Shape, mesh: DeviceMesh) -> Tensor:
        def summed(x: Tensor) -> Tensor:
            dist.all_reduce(x)
            return x

        return _eager(own, shape, summed)

    @classmethod
    def computing(cls, full: Operands, own: Operands, shape: Shape, rank: int, world: int) -> None:
        _eager(own, shape, lambda x: x)

    @classmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        # The largest moment of a layer: a copy of its cache with the new key and value.
        keys = -(-shape["hkv"] // world) * shape["d"] // shape["h"]
        return 4 * 2 * shape["b"] * shape["s"] * keys

    # --- one rank ------------------------------------------------------------------------------

    def run(self, own: Operands, value: int) -> Tensor:
        self.mesh.begin()
        self._step(own, value, local_only=False)
        self.finish(value)
        return self.held["x"]

    def alone(self, full: Operands, own: Operands) -> None:
        self._step(own, 0, local_only=True)

    def _step(self, own: Operands, value: int, *, local_only: bool) -> None:
        self.own, self.value, self.local_only = own, value, local_only
        self.held["x"].copy_(own["x"])
        self.turns += 1
        self.board.run(self.turns)

    def close(self) -> None:
        self.board.close()
        super().close()

    def _body(self, node: int) -> None:
        stage, tile = self.graph.tile(node)
        first, last = stage.writes[tile].tolist()
        self.bodies[stage.op](stage.layer, tile, first, last)

    def _norm(self, x: str, weight: str, out: str, layer: int) -> None:
        rmsnorm(self.held[x], self.own[weight][layer], out=self.held[out])

    def _product(self, x: str, w: str, out: str, layer: int, first: int, last: int) -> None:
        tile_product(
            self.held[x], self.own[w][layer][:, first:last], self.held[out][:, first:last]
        )

    def _attend(self, layer: int, head: int) -> None:
        """Put the new key and value last in the cache, then attend to all of it."""
        wide, heads = self.wide, self.group
        qkv = self.held["qkv"]
        start = self.keys * heads * wide
        at = slice(start + head * wide, start + (head + 1) * wide)
        behind = slice(at.start + self.keys * wide, at.stop + self.keys * wide)
        k, v = self.own["k"][layer, head], self.own["v"][layer, head]
        k[:, 0, -1], v[:, 0, -1] = qkv[:, at], qkv[:, behind]
        q = qkv[:, head * heads * wide : (head + 1) * heads * wide]
        b = len(q)
        used = torch.full((b,), k.shape[2], dtype=torch.int32)
        found = flash_decode(q.reshape(b, heads, wide).contiguous(), k, v, used, splits=1)
        out = flash_combine(*(x.flatten(0, 1) for x in found)).out
        columns = slice(head * heads * wide, (head + 1) * heads * wide)
        self.held["attended"][:, columns] = out.view(b, -1)

    def _act(self, first: int, last: int) -> None:
        gate, up, out = (self.held[x][:, first:last] for x in ("gate", "up", "act"))
        swiglu(gate, up, out=out)

    def _slot(self, src: int, dst: int, which: int, tile: int) -> int:
        place = (src - dst - 1) % self.mesh.num_ranks()
        return (place * self.n_sums + which) * len(self.columns) + tile

    def _put(self, partial: str, which: int, tile: int, first: int, last: int) -> None:
        """Send a tile of a partial sum to all others."""
        if self.local_only or self.mesh.num_ranks() == 1:
            return
        rank, b, value = self.mesh.rank(), self.shape["b"], self.value
        chunk = torch.zeros((b, self.sums.shape[1]), device=self.mesh.device)
        chunk[:, : last - first] = self.held[partial][:, first:last]

        def send() -> None:
            for dst in self.receivers():
                self.sums.send(chunk, dst, self._slot(rank, dst, which, tile), value)

        self.mesh.later(send)

    def _sum(
        self, partial: str, before: str, out: str, which: int, tile: int, first: int, last: int
    ) -> None:
        """Add a tile of all ranks, and what was before the layer's branch."""
        rank, world = self.mesh.rank(), self.mesh.num_ranks()
        own = self.held[partial][:, first:last].contiguous()
        parts = [own]
        if world > 1 and not self.local_only:
            slots = {src: self._slot(src, rank, which, tile) for src in self.mesh.others}
            token = self.sums.wait(list(slots.values()), self.value)
            parts = [
                own
                if src == rank
                else self.sums.consume(slots[src], token, self.shape["b"])[:, : last - first]
                for src in range(world)
            ]
        total = add_reduce([part.contiguous() for part in parts])
        self.held[out][:, first:last] = self.held[before][:, first:last] + total


def _eager(own: Operands, shape: Shape, summed: Callable[[Tensor], Tensor]) -> Tensor:
    """The step operation by operation, in the dtype of the operands.

    Args:
        own: Operands of a rank; the cache is left alone.
        shape: Sizes of the problem.
        summed: Adds a partial sum over ranks.
    """
    x, eps = own["x"], 1e-6
    wide, keys = shape["d"] // shape["h"], own["k"].shape[1]
    heads = own["out"].shape[1] // wide
    for layer in range(shape["layers"]):
        h = nnf.rms_norm(x, x.shape[1:], own["norm1"][layer], eps)
        q, k, v = torch.split(h @ own["qkv"][layer], [n * wide for n in (heads, keys, keys)], 1)
        cache = []
        for name, new in (("k", k), ("v", v)):
            old = own[name][layer, :, :, 0, :-1].transpose(0, 1)  # [b, keys, s - 1, wide]
            cache.append(torch.cat([old, new.view(len(x), keys, 1, wide)], 2))
        attended = nnf.scaled_dot_product_attention(
            q.view(len(x), heads, 1, wide), cache[0], cache[1], enable_gqa=True
        )
        x = x + summed(attended.reshape(len(x), -1) @ own["out"][layer])
        h = nnf.rms_norm(x, x.shape[1:], own["norm2"][layer], eps)
        gated = nnf.silu(h @ own["gate"][layer]) * (h @ own["up"][layer])
        x = x + summed(gated @ own["down"][layer])
    return x
