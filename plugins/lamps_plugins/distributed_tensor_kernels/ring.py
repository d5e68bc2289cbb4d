"""Shards travel through the neighbours, one hop a step, while what is there is computed.

    ag_gemm: shard r - s is at rank r after step s;  gemm_rs: a running sum passes ranks 0 to W-1

Every link carries one message at a time, so a ring suits links that are shared by all senders.
Sums keep the order of ranks, which costs a hop more than a ring that starts anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._plan import TILES, Plan
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, MATRICES, Planned

RINGS = (*MATRICES, "sp_flash_decode")
"""Operators whose shards are the same for everybody, so that they can be passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the ring."""

    chunks: int = hp.choice(1, (1, 2, 4, 8), doc="Pieces of a shard.")
    swizzle: str = hp.choice(
        "rank", ("none", "rank"), doc="Whose shard comes when: by number, own or next."
    )
    block_m: int = hp.choice(64, TILES, doc="Rows of a tile.")
    block_n: int = hp.choice(256, TILES, doc="Columns of a tile.")
    splits: int = hp.choice(
        4, (1, 2, 4, 8, 16, 32, 64), doc="Parts of a rank's keys in sp_flash_decode."
    )


class Ring(Planned[Params]):
    """W - 1 hops, or W for sums."""

    operators: ClassVar[tuple[str, ...] | None] = RINGS
    spec = MethodSpec(
        family=FAMILY,
        summary="passes shards from neighbour to neighbour while computing",
        tags=Tags(data_free=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(
            mode="ring", chunks=p.chunks, swizzle=p.swizzle, block_m=p.block_m, block_n=p.block_n,
            splits=p.splits,
        )  # fmt: skip
