"""A layer of experts: tokens go to the ranks of their experts, through their weights, and back.

    out[t] = sum_j x[t] w[e(t, j)],    x [T, K], e [T, k] split by token, w [E, K, N] by expert

Each rank sorts the copies of its tokens by expert. What goes to a rank is one run of rows, cut at
borders of tiles into chunks of any length; the length for each expert travels in the header, so
nothing is padded. A chunk is multiplied when it comes and its rows go straight back. Tiles never
mix tokens of two ranks, so cutting differently changes no bit; the sum over j runs from 0 to k-1.

Source: the expert layer of Zheng et al., DITRON, arXiv 2605.02953; ours in detail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.distributed as dist
from lamps_kernels.grouped_gemm import grouped_gemm
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators._base import (
    UNIT,
    Operands,
    Operator,
    Reference,
    Shape,
    owned,
)
from lamps_plugins.distributed_tensor_kernels._plan import Plan, chunk_tiles, order, shards
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer

__all__ = ["A2aGroupedGemm", "Route", "route"]


@dataclass(frozen=True, slots=True)
class Route:
    """Where the copies of a rank's tokens go.

    Args:
        rows: Index of the copy (token * k + j) at each place after sorting. Shape: [T k] int64.
        counts: Copies of each expert. Shape: [E] int64.
    """

    rows: Tensor
    counts: Tensor


def route(experts: Tensor, n_experts: int) -> Route:
    """Sort copies of tokens by expert, in the order of tokens within each.

    Args:
        experts: Expert of each copy. Shape: [T, k] int64.
        n_experts: E.

    Raises:
        ProblemError: An expert does not exist.

    Example:
        >>> import torch
        >>> found = route(torch.tensor([[1], [0], [1]]), 3)
        >>> found.rows.tolist(), found.counts.tolist()
        ([1, 0, 2], [1, 2, 0])
    """
    flat = experts.reshape(-1)
    if flat.numel() and not 0 <= int(flat.min()) <= int(flat.max()) < n_experts:
        raise ProblemError(
            f"expert ids reach from {int(flat.min())} to {int(flat.max())}; there are "
            f"{n_experts} experts, 0 to {n_experts - 1}"
        )
    rows = torch.sort(flat, stable=True).indices
    return Route(rows, torch.bincount(flat, minlength=n_experts))


class A2aGroupedGemm(Operator):
    """See the module."""

    name: ClassVar[str] = "a2a_grouped_gemm"
    sizes: ClassVar[Shape] = {"t": 512, "k": 512, "n": 512, "e": 8, "top": 2}
    halved: ClassVar[tuple[str, ...]] = ("t", "k", "n")
    modes: ClassVar[tuple[str, ...]] = ("seq", "push", "split")

    def __init__(self, mesh: DeviceMesh, shape: Shape, plan: Plan) -> None:
        super().__init__(mesh, shape, plan)
        world, rank = mesh.num_ranks(), mesh.rank()
        self.tokens, self.experts = shards(shape["t"], world), shards(shape["e"], world)
        most = max(last - first for first, last in self.experts)
        copies = max(last - first for first, last in self.tokens) * shape["top"]
        # Routing is data: a chunk may hold every copy, in the worst case.
        tiles = -(-(copies // plan.block_m + most) // plan.chunks)
        capacity = min(copies, tiles * plan.block_m)
        slots = (world - 1) * plan.chunks
        self.there, self.back = (
            self.buffer(
                SymmBuffer(mesh, (capacity, width), slots, sources=self.sources(), counts=n)
            )
            for width, n in ((shape["k"], most), (shape["n"], 0))
        )
        first, last = self.tokens[rank]
        self.sorted = mesh.scratch((last - first) * shape["top"], shape["n"])
        self.out = torch.empty((last - first, shape["n"]), device=mesh.device)

    @classmethod
    def tiles(cls, shape: Shape, world: int, plan: Plan) -> int:
        tokens = max(last - first for first, last in shards(shape["t"], world))
        return -(-tokens * shape["top"] // world // plan.block_m)

    @classmethod
    def check_shape(cls, shape: Shape, world: int) -> None:
        super().check_shape(shape, world)
        if shape["e"] < world:
            raise ProblemError(f"{shape['e']} experts on {world} ranks; expected one a rank")
        if shape["top"] > shape["e"]:
            raise ProblemError(f"top={shape['top']} of {shape['e']} experts a token")

    @classmethod
    def draw(cls, shape: Shape, seed: int) -> Operands:
        """Experts differ in how often they are chosen; the last one never is, if others can be."""
        generator = torch.Generator().manual_seed(seed)
        liking = torch.randn(shape["e"], generator=generator)
        if shape["e"] > shape["top"]:
            liking[-1] = -torch.inf
        scores = torch.randn(shape["t"], shape["e"], generator=generator) + liking
        return {
            "x": torch.randn(shape["t"], shape["k"], generator=generator),
            "experts": scores.topk(shape["top"]).indices,
            "w": torch.randn(shape["e"], shape["k"], shape["n"], generator=generator),
        }

    @classmethod
    def local(cls, full: Operands, shape: Shape, rank: int, world: int) -> Operands:
        tokens, experts = (slice(*shards(shape[x], world)[rank]) for x in ("t", "e"))
        return {
            "x": owned(full["x"][tokens]),
            "experts": owned(full["experts"][tokens]),
            "w": owned(full["w"][experts]),
        }

    @classmethod
    def reference(cls, full: Operands, shape: Shape) -> Reference:
        x, w = full["x"].double(), full["w"].double()
        value = torch.zeros((shape["t"], shape["n"]), dtype=torch.float64)
        size = torch.zeros_like(value)
        for j in range(shape["top"]):
            for expert in range(shape["e"]):
                at = full["experts"][:, j] == expert
                value[at] += x[at] @ w[expert]
                size[at] += x[at].abs() @ w[expert].abs()
        terms = shape["k"] * shape["top"]
        relative = 1e-6 * max(1.0, terms**0.5 / 4)
        return Reference(value, (2 * terms * UNIT * size).clamp_min(1e-300), relative)

    @classmethod
    def part(cls, whole: Tensor, shape: Shape, rank: int, world: int) -> Tensor:
        return whole[slice(*shards(shape["t"], world)[rank])]

    @classmethod
    def flops(cls, shape: Shape) -> float:
        return 2.0 * shape["t"] * shape["top"] * shape["k"] * shape["n"]

    @classmethod
    def wire_bytes(cls, shape: Shape, world: int) -> float:
        away = shape["t"] / world * shape["top"] * (world - 1) / world
        return 4.0 * away * (shape["k"] + shape["n"])

    @classmethod
    def single(cls, full: Operands, shape: Shape) -> Tensor:
        return _through(full["x"], full["experts"], full["w"])

    @classmethod
    def collective(cls, own: Operands, shape: Shape, mesh: DeviceMesh) -> Tensor:
        world = mesh.num_ranks()
        path = route(own["experts"], shape["e"])
        ends = [path.counts[slice(*s)].sum() for s in shards(shape["e"], world)]
        leave = [int(n) for n in ends]
        width = max(last - first for first, last in shards(shape["e"], world))
        told = torch.zeros((world, width), dtype=torch.int64)
        for dst, (first, last) in enumerate(shards(shape["e"], world)):
            told[dst, : last - first] = path.counts[first:last]
        come = torch.empty_like(told)
        dist.all_to_all_single(come, told)
        arrive = come.sum(1).tolist()
        rows = own["x"].new_empty((sum(arrive), shape["k"]))
        dist.all_to_all_single(rows, own["x"][path.rows // shape["top"]], arrive, leave)
        expert = torch.cat([torch.repeat_interleave(torch.arange(width), row) for row in come])
        made = _through(rows, expert[:, None], own["w"])
        back = own["x"].new_empty((sum(leave), shape["n"]))
        dist.all_to_all_single(back, made, leave, arrive)
        out = torch.empty_like(back)
        out[path.rows] = back
        return out.view(-1, shape["top"], shape["n"]).sum(1)

    @classmethod
    def computing(cls, full: Operands, own: Operands, shape: Shape, rank: int, world: int) -> None:
        first, last = shards(shape["e"], world)[rank]
        chosen = full["experts"]
        for j in range(shape["top"]):
            mine = (chosen[:, j] >= first) & (chosen[:, j] < last)
            _through(full["x"][mine], chosen[mine, j : j + 1] - first, own["w"])

    @classmethod
    def collective_bytes(cls, shape: Shape, world: int) -> int:
        copies = -(-shape["t"] // world) * shape["top"]  # leaving; as many arrive on average
        return 4 * 2 * copies * (shape["k"] + shape["n"])

    def run(self, own: Operands, value: int) -> Tensor:
        mesh, plan = self.mesh, self.plan
        rank, world = mesh.rank(), mesh.num_ranks()
        mesh.begin()
        path = route(own["experts"], self.shape["e"])
        starts = torch.cat([path.counts.new_zeros(1), path.counts.cumsum(0)]).tolist()
        pieces = [self._pieces(path.counts, starts, dst) for dst in range(world)]
        mesh.later(lambda: self._scatter(own["x"], path, pieces, value))
        slots = list(range((world - 1) * plan.chunks))
        if plan.mode == "seq":
            mesh.join()
            self.there.wait(slots, value)
        for src in order(rank, world, plan.swizzle, own_first=True):
            if src == rank:
                for first, last, counts in pieces[rank]:
                    rows = own["x"][path.rows[first:last] // self.shape["top"]]
                    self._product(rows, own["w"], counts, self.sorted[first:last])
                continue
            for chunk in range(plan.chunks):
                self._answer(src, chunk, own["w"], value)
        for dst in mesh.others:
            for chunk, (first, last, _) in enumerate(pieces[dst]):
                slot = self.slot(dst, rank, chunk)
                token = self.back.wait([slot], value)
                self.sorted[first:last] = self.back.consume(slot, token, last - first)
        self._combine(path)
        self.finish(value)
        return self.out

    def _pieces(
        self, counts: Tensor, starts: list[int], dst: int
    ) -> list[tuple[int, int, list[int]]]:
        """First row, last row + 1 and rows for each expert of each chunk to a rank."""
        first_expert, last_expert = self.experts[dst]
        size = self.plan.block_m
        ends = [starts[first_expert]]  # of tiles, none of which holds two experts
        for expert in range(first_expert, last_expert):
            stop = starts[expert + 1]
            ends += [min(at + size, stop) for at in range(starts[expert], stop, size)]
        found = []
        for a, b in chunk_tiles(len(ends) - 1, self.plan.chunks):
            first, last = ends[a], ends[b]
            rows = [
                max(0, min(last, starts[e + 1]) - max(first, starts[e]))
                for e in range(first_expert, last_expert)
            ]
            found.append((first, last, rows))
        return found

    def _scatter(
        self,
        x: Tensor,
        path: Route,
        pieces: list[list[tuple[int, int, list[int]]]],
        value: int,
    ) -> None:
        rank = self.mesh.rank()
        for chunk in range(self.plan.chunks):
            for dst in self.receivers():
                first, last, counts = pieces[dst][chunk]
                rows = x[path.rows[first:last] // self.shape["top"]]
                self.there.send(rows, dst, self.slot(rank, dst, chunk), value, counts)

    def _answer(self, src: int, chunk: int, w: Tensor, value: int) -> None:
        """Multiply a chunk that came, and send its rows back."""
        slot = self.slot(src, self.mesh.rank(), chunk)
        token = self.there.wait([slot], value)
        rows = self.there.consume(slot, token)
        counts = self.there.counts(slot, token)[: len(w)]
        made = rows.new_empty((len(rows), self.shape["n"]))
        self._product(rows, w, counts, made)
        back = self.slot(self.mesh.rank(), src, chunk)
        self.mesh.later(lambda: self.back.send(made, src, back, value))

    def _product(self, rows: Tensor, w: Tensor, counts: list[int], out: Tensor) -> None:
        offsets = torch.tensor([0, *counts]).cumsum(0).int()
        block = {"block_m": self.plan.block_m, "block_n": self.plan.block_n}
        grouped_gemm(rows, w, offsets, out=out, **block)

    def _combine(self, path: Route) -> None:
        """Back to the order of tokens, and the sum over their experts."""
        made = torch.empty_like(self.sorted)
        made[path.rows] = self.sorted
        copies = made.view(-1, self.shape["top"], self.shape["n"])
        self.out.copy_(copies[:, 0])
        for j in range(1, self.shape["top"]):
            self.out += copies[:, j]

    def alone(self, full: Operands, own: Operands) -> None:
        first, last = self.experts[self.mesh.rank()]
        path = route(full["experts"], self.shape["e"])
        start = int(path.counts[:first].sum())
        counts = path.counts[first:last].tolist()
        rows = full["x"][path.rows[start : start + sum(counts)] // self.shape["top"]]
        self._product(rows, own["w"], counts, rows.new_empty((len(rows), self.shape["n"])))


def _through(x: Tensor, experts: Tensor, w: Tensor) -> Tensor:
    """Rows through the weights of their experts, one product an expert, summed over j."""
    out = x.new_zeros((len(x), w.shape[2]))
    for j in range(experts.shape[1]):
        for expert in range(len(w)):
            at = (experts[:, j] == expert).nonzero().flatten()
            if len(at):
                out[at] += x[at] @ w[expert]
    return out
