"""The whole operator by torch on a single rank, which is given all operands.

    torch.mm, a product for each expert, scaled_dot_product_attention, or eager layers

What distributing has to beat; its extra memory is what the other ranks would have held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps.method import MethodSpec, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Nothing to choose."""


class TorchSingle(Planned[Params]):
    """One rank does everything."""

    library: ClassVar[str] = "single"
    spec = MethodSpec(
        family=FAMILY,
        summary="everything on one rank: torch.mm, SDPA or eager layers",
        tags=Tags(data_free=True, baseline=True),
        resources=Resources(cpus=2),
    )
