"""A plan: how one fused operator is cut into tiles and chunks, and in which order they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lamps.errors import ProblemError, did_you_mean
from lamps.types import Json

__all__ = ["MODES", "SCHEDULERS", "SWIZZLES", "TILES", "Plan", "chunk_tiles", "order", "shards"]

MODES = ("seq", "ring", "push", "split")
SWIZZLES = ("none", "rank", "xor")
TILES = (16, 32, 64, 128, 256)
"""Sides of tiles that are searched."""

SCHEDULERS = ("rr", "zigzag", "list")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is chosen for one operator; which fields matter depends on the operator.

    Args:
        mode: ``seq`` (all communication before or after all computing), ``ring`` (through the
            neighbours), ``push`` (a whole shard at once to everybody), ``split`` (pieces of a
            shard to everybody).
        chunks: C, pieces of a shard; 1 for ``seq`` and ``push``.
        swizzle: Whose shard comes when: by number, own or next one first (``rank``), or in pairs
            (``xor``, for a power of two of ranks).
        block_m: Rows of a tile.
        block_n: Columns of a tile.
        splits: Parts of the keys of a rank in `sp_flash_decode`.
        scheduler: Who does which task of a `decode_step`.
        workers: Threads of a rank in `decode_step`.
    """

    mode: str = "seq"
    chunks: int = 1
    swizzle: str = "rank"
    block_m: int = 64
    block_n: int = 256
    splits: int = 4
    scheduler: str = "list"
    workers: int = 1

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """The inverse of `as_json`.

        Raises:
            ProblemError: A name is unknown, or a value is not one of a plan.
        """
        known = {f.name: f.type for f in dataclasses.fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise ProblemError(f"a plan has no {name!r}. {did_you_mean(name, known)}")
            wanted = int if known[name] == "int" else str
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise ProblemError(f"plan: {name} is {value!r}, expected {wanted.__name__}")
        plan = cls(**values)
        plan.check()
        return plan

    def check(self) -> None:
        """Refuse what no operator can do.

        Raises:
            ProblemError: The message names the field.
        """
        words = {"mode": MODES, "swizzle": SWIZZLES, "scheduler": SCHEDULERS}
        for name, allowed in words.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ProblemError(f"plan: {name}={value!r}. {did_you_mean(value, allowed)}")
        for name in ("block_m", "block_n"):
            size = getattr(self, name)
            if size < 16 or size & (size - 1):
                raise ProblemError(f"plan: {name} is {size}, expected a power of two from 16 up")
        for name in ("chunks", "splits", "workers"):
            if getattr(self, name) < 1:
                raise ProblemError(f"plan: {name} is {getattr(self, name)}, expected 1 or more")
        if self.mode in ("seq", "push") and self.chunks != 1:
            raise ProblemError(
                f"plan: mode {self.mode!r} sends shards whole, got chunks={self.chunks}; "
                "use 'split' or 'ring'"
            )


def shards(length: int, world: int) -> list[tuple[int, int]]:
    """First row and last row + 1 of each rank's part; lengths differ by one at most.

    Example:
        >>> shards(5, 2), shards(1, 3)
        ([(0, 2), (2, 5)], [(0, 0), (0, 0), (0, 1)])
    """
    ends = [length * rank // world for rank in range(world + 1)]
    return [(ends[rank], ends[rank + 1]) for rank in range(world)]


def chunk_tiles(tiles: int, chunks: int) -> list[tuple[int, int]]:
    """First tile and last tile + 1 of each chunk; some are empty if there are fewer tiles.

    Example:
        >>> chunk_tiles(5, 2)
        [(0, 2), (2, 5)]
    """
    return shards(tiles, chunks)


def order(rank: int, world: int, swizzle: str, *, own_first: bool) -> list[int]:
    """In which order a rank works through the shards of all ranks.

    Args:
        rank: This rank.
        world: Number of ranks.
        swizzle: See `Plan`.
        own_first: Whether a swizzle puts the own shard first, which needs no waiting, or last,
            which nobody else waits for.

    Example:
        >>> order(1, 4, "rank", own_first=True), order(1, 4, "rank", own_first=False)
        ([1, 2, 3, 0], [2, 3, 0, 1])
        >>> order(1, 4, "xor", own_first=True)
        [1, 0, 3, 2]
    """
    steps = range(world) if own_first else [*range(1, world), 0]
    if swizzle == "rank":
        return [(rank + step) % world for step in steps]
    if swizzle == "xor":
        return [rank ^ step for step in steps]
    return list(range(world))
