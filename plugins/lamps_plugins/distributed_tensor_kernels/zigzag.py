"""Tile tasks of a decoding step dealt to the workers to and fro.

    worker(i) = i mod n in even rounds, n - 1 - i mod n in odd ones

Whoever comes last in one round comes first in the next, so that tasks which shrink along an
operation are shared more evenly.
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


class Zigzag(Planned[Params]):
    """Task i goes to and fro."""

    operators: ClassVar[tuple[str, ...] | None] = ("decode_step",)
    spec = MethodSpec(
        family=FAMILY,
        summary="deals the tasks of a decoding step to and fro",
        tags=Tags(data_free=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        return Plan(scheduler="zigzag", workers=p.workers, block_n=p.block_n)
