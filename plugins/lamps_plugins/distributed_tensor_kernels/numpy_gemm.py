"""The product of two matrices by NumPy on a single rank.

    C = A B by the BLAS that NumPy brings, which is not the one of torch

An independent library for the same product; for operators that are one product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lamps.method import MethodSpec, Tags
from lamps.types import Resources
from lamps_plugins.distributed_tensor_kernels._planned import FAMILY, MATRICES, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Nothing to choose."""


class NumpyGemm(Planned[Params]):
    """NumPy's product."""

    library: ClassVar[str] = "numpy"
    operators: ClassVar[tuple[str, ...] | None] = MATRICES
    spec = MethodSpec(
        family=FAMILY,
        summary="the product by NumPy on one rank",
        tags=Tags(data_free=True, baseline=True),
        resources=Resources(cpus=2),
    )
