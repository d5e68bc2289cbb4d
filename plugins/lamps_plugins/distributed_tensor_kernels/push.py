"""Every shard goes whole to all ranks that need it, at once, while the own shard is computed.

    T = max(t_own, t_comm) + t_rest

One message a pair of ranks: the least latency, and nothing of a shard is used before all is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._plan import TILES, Plan
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, MATRICES, Planned

PUSHES = (*MATRICES, "a2a_grouped_gemm")
"""Operators of which a whole shard can be used while others are under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the push."""

    swizzle: str = hp.choice(
        "rank",
        ("none", "rank", "xor"),
        doc="Whose shard comes when: by number, own or next, pairs.",
    )
    block_m: int = hp.choice(64, TILES, doc="Rows of a tile.")
    block_n: int = hp.choice(256, TILES, doc="Columns of a tile.")


class Push(Planned[Params]):
    """One message for each pair of ranks."""

    operators: ClassVar[tuple[str, ...] | None] = PUSHES
    spec = MethodSpec(
        family=FAMILY,
        summary="sends whole shards to everybody at once while computing its own",
        tags=Tags(data_free=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(mode="push", swizzle=p.swizzle, block_m=p.block_m, block_n=p.block_n)
