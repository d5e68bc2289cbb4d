"""Shards go to all ranks in pieces, and each piece is computed, or leaves, as soon as it can.

    T = max(t_comm, t_gemm) + the first or last piece,    t_piece = alpha + bytes / (C beta)

More pieces overlap better and pay alpha more often: that is what ``chunks`` trades.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._plan import TILES, Plan
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, PIECES, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the split."""

    chunks: int = hp.choice(4, (1, 2, 4, 8), doc="Pieces of a shard.")
    swizzle: str = hp.choice(
        "rank",
        ("none", "rank", "xor"),
        doc="Whose shard comes when: by number, own or next, pairs.",
    )
    block_m: int = hp.choice(64, TILES, doc="Rows of a tile.")
    block_n: int = hp.choice(256, TILES, doc="Columns of a tile.")
    splits: int = hp.choice(
        4, (1, 2, 4, 8, 16, 32, 64), doc="Parts of a rank's keys in sp_flash_decode."
    )


class Split(Planned[Params]):
    """C messages for each pair of ranks."""

    operators: ClassVar[tuple[str, ...] | None] = PIECES
    spec = MethodSpec(
        family=FAMILY,
        summary="sends shards in pieces and computes each as it comes",
        tags=Tags(data_free=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(
            mode="split", chunks=p.chunks, swizzle=p.swizzle, block_m=p.block_m, block_n=p.block_n,
            splits=p.splits,
        )  # fmt: skip
