"""What ``torch.distributed`` offers: a collective over gloo, and torch on each rank.

ag_gemm: all_gather, mm;  gemm_rs, gemm_ar: mm, all_reduce;  a2a_grouped_gemm: all_to_all, mm for
each expert, all_to_all;  sp_flash_decode: all_gather of parts;  decode_step: eager, all_reduce
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


class TorchCollective(Planned[Params]):
    """The collective of the library."""

    library: ClassVar[str] = "collective"
    spec = MethodSpec(
        family=FAMILY,
        summary="torch.distributed over gloo, and torch on each rank",
        tags=Tags(data_free=True, baseline=True),
        resources=Resources(cpus=2),
    )
