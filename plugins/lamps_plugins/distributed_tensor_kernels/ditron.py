"""The whole space of plans as one method: mode, pieces, order, tiles, parts of keys and schedule.

Paper: Zheng et al., DITRON: Distributed Multi-level Tiling Compiler for Parallel Tensor Programs,
arXiv 2605.02953: tiles in a rank, chunks between ranks and tasks in a graph are tuned together.
Only the abstract and a public summary were at hand, so the space is our reading of it. Values that
are of no use are ignored: pieces where shards travel whole, the schedule outside of decode_step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._plan import MODES, SCHEDULERS, TILES, Plan
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """All that a plan leaves open."""

    mode: str = hp.choice("split", MODES, doc="How shards travel.")
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
    scheduler: str = hp.choice("list", SCHEDULERS, doc="Who does which task of a decode_step.")
    workers: int = hp.choice(1, (1, 2), doc="Threads of a rank in decode_step.")


class Ditron(Planned[Params]):
    """A plan of any kind."""

    operators: ClassVar[tuple[str, ...] | None] = None
    spec = MethodSpec(
        family=FAMILY,
        summary="any plan: mode, pieces, swizzle, tiles, splits and scheduler",
        paper=Paper(
            title="DITRON: Distributed Multi-level Tiling Compiler for Parallel Tensor Programs",
            arxiv="2605.02953",
        ),
        tags=Tags(data_free=True),
        resources=Resources(cpus=2),
    )

    def plan(self) -> Plan:
        """See the module."""
        p = self.params
        whole = p.mode in ("seq", "push")
        return Plan(
            mode=p.mode, chunks=1 if whole else p.chunks, swizzle=p.swizzle, block_m=p.block_m,
            block_n=p.block_n, splits=p.splits, scheduler=p.scheduler, workers=p.workers,
        )  # fmt: skip
