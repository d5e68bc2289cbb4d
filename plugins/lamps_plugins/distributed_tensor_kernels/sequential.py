"""Communicate, then compute: no tile is computed while a chunk is under way.

    T = t_comm + t_gemm

The baseline that overlapping is measured against, on the same transport and with the same tiles.
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
    """Hyperparameters of the plan without overlap."""

    block_m: int = hp.choice(64, TILES, doc="Rows of a tile.")
    block_n: int = hp.choice(256, TILES, doc="Columns of a tile.")
    splits: int = hp.choice(
        4, (1, 2, 4, 8, 16, 32, 64), doc="Parts of a rank's keys in sp_flash_decode."
    )


class Sequential(Planned[Params]):
    """All of the one, then all of the other."""

    operators: ClassVar[tuple[str, ...] | None] = PIECES
    spec = MethodSpec(
        family=FAMILY,
        summary="communicates, then computes; the plan without overlap",
        tags=Tags(data_free=True, baseline=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(mode="seq", block_m=p.block_m, block_n=p.block_n, splits=p.splits)
