"""Graphs of tile tasks, with dependencies read off the slices that tasks read and write.

A *stage* is one operation of one layer, cut into tiles. Tile i writes the slice ``writes[i]`` of
the stage's buffer and reads slices of other buffers. It depends on the tiles that wrote what it
reads; since tiles of a stage are sorted and side by side, those are a range, found by bisection
for all tiles at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lamps.errors import ProblemError

__all__ = ["Graph", "GraphBuilder", "Stage", "even_slices"]


def even_slices(length: int, size: int) -> np.ndarray:
    """Slices of equal size that cover a buffer; the last may be shorter. Shape: [n, 2] int64.

    Example:
        >>> even_slices(5, 2).tolist()
        [[0, 2], [2, 4], [4, 5]]
    """
    first = np.arange(0, length, size)
    return np.stack([first, np.minimum(first + size, length)], axis=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of one layer.

    Args:
        op: Its name.
        layer: Which layer.
        start: Node number of its first tile.
        writes: Slice of its buffer that each tile writes. Shape: [n, 2] int64.
        cost: Expected seconds of a tile.
        deps: Producer's stage number, and first and last tile + 1 that each tile needs of it.
            Shape: each [n, 2] int64.
    """

    op: str
    layer: int
    start: int
    writes: np.ndarray
    cost: float
    deps: tuple[tuple[int, np.ndarray], ...]

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return len(self.writes)


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages in an order in which each reads only what earlier ones write.

    Args:
        stages: All stages.
        stage_of: Stage of each node. Shape: [n_nodes] int64.
        costs: Expected seconds of each node. Shape: [n_nodes].
    """

    stages: tuple[Stage, ...]
    stage_of: np.ndarray
    costs: np.ndarray

    @property
    def n_nodes(self) -> int:
        """Number of tiles of all stages."""
        return len(self.stage_of)

    def tile(self, node: int) -> tuple[Stage, int]:
        """Stage and tile of a node."""
        stage = self.stages[int(self.stage_of[node])]
        return stage, node - stage.start

    def needs(self, node: int) -> list[tuple[int, int]]:
        """First node and last node + 1 of each range that a node depends on."""
        stage, tile = self.tile(node)
        found = []
        for producer, ranges in stage.deps:
            first, last = ranges[tile]
            if first < last:
                start = self.stages[producer].start
                found.append((start + int(first), start + int(last)))
        return found


@dataclass(slots=True)
class GraphBuilder:
    """Takes stages in their order; buffers are known by name, the latest writer counts."""

    stages: list[Stage] = field(default_factory=list)
    _writer: dict[str, int] = field(default_factory=dict)
    _nodes: int = 0

    def add(
        self,
        op: str,
        layer: int,
        writes: np.ndarray,
        reads: Sequence[tuple[str, np.ndarray]],
        *,
        buffer: str,
        cost: float,
    ) -> int:
        """Append a stage.

        Args:
            op: Name of the operation.
            layer: Which layer.
            writes: What each tile writes, sorted and without overlap. Shape: [n, 2] int64.
            reads: Buffer, and slice of it that each tile reads: [n, 2], or [1, 2] for all tiles.
                Buffers that no stage writes are inputs, and need nobody.
            buffer: What the stage writes.
            cost: Expected seconds of a tile.

        Returns:
            The number of the stage.

        Raises:
            ProblemError: Slices are not sorted, overlap, or reach beyond what is written.
        """
        if (writes[:, 0] >= writes[:, 1]).any() or (writes[1:, 0] < writes[:-1, 1]).any():
            raise ProblemError(f"tiles of {op!r} in layer {layer} are empty, unsorted or overlap")
        deps = []
        for name, slices in reads:
            if name not in self._writer:
                continue
            producer = self._writer[name]
            there = self.stages[producer].writes
            wide = np.broadcast_to(slices, (len(writes), 2))
            if (wide[:, 1] > there[-1, 1]).any():
                raise ProblemError(
                    f"{op!r} in layer {layer} reads {name!r} up to {int(wide[:, 1].max())}, only "
                    f"{int(there[-1, 1])} are written"
                )
            first = np.searchsorted(there[:, 1], wide[:, 0], side="right")
            last = np.searchsorted(there[:, 0], wide[:, 1], side="left")
            deps.append((producer, np.stack([first, np.maximum(first, last)], axis=1)))
        number = len(self.stages)
        self.stages.append(Stage(op, layer, self._nodes, writes, cost, tuple(deps)))
        self._writer[buffer] = number
        self._nodes += len(writes)
        return number

    def build(self) -> Graph:
        """The graph of all stages."""
        lengths = [stage.n_tiles for stage in self.stages]
        stage_of = np.repeat(np.arange(len(lengths)), lengths)
        costs = np.repeat([stage.cost for stage in self.stages], lengths)
        return Graph(tuple(self.stages), stage_of, costs)
