"""Tile tasks of a decoding step dealt to the workers in turn.

    worker(i) = i mod n        for the i-th task in the order of the graph

The plainest schedule; it knows nothing of lengths and paths.
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


class RoundRobin(Planned[Params]):
    """Task i goes to worker i mod n."""

    operators: ClassVar[tuple[str, ...] | None] = ("decode_step",)
    spec = MethodSpec(
        family=FAMILY,
        summary="deals the tasks of a decoding step in turn",
        tags=Tags(data_free=True, baseline=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(scheduler="rr", workers=p.workers, block_n=p.block_n)
