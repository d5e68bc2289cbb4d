"""Tile tasks of a decoding step by list scheduling.

    the free worker takes the ready task with the longest path of expected time to the end

Paper: Graham, Bounds on Multiprocessing Timing Anomalies, 1969, for the bound of 2 - 1/n times the
best; costs of tasks are those of the bytes they read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._plan import TILES, Plan
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the schedule."""

    block_n: int = hp.choice(256, TILES, doc="Columns of a tile.")
    workers: int = hp.choice(2, (1, 2), doc="Threads of a rank.")


class ListSchedule(Planned[Params]):
    """The longest remaining path first."""

    operators: ClassVar[tuple[str, ...] | None] = ("decode_step",)
    spec = MethodSpec(
        family=FAMILY,
        summary="gives ready tasks of a decoding step to free workers, longest path first",
        tags=Tags(data_free=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(scheduler="list", workers=p.workers, block_n=p.block_n)
