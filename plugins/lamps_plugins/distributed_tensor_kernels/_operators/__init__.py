"""The fused operators, one file each; a file's class is found by the operator's name."""

from __future__ import annotations

from importlib import import_module

from lamps.errors import ProblemError, did_you_mean
from lamps_plugins.distributed_tensor_kernels._operators._base import Operator

__all__ = ["OPERATORS", "Operator", "operator_class"]

OPERATORS = {
    "ag_gemm": ("ag_gemm", "AgGemm"),
    "gemm_rs": ("gemm_rs", "GemmRs"),
    "gemm_ar": ("gemm_rs", "GemmAr"),
    "a2a_grouped_gemm": ("a2a_grouped_gemm", "A2aGroupedGemm"),
    "sp_flash_decode": ("sp_flash_decode", "SpFlashDecode"),
    "decode_step": ("decode_step", "DecodeStep"),
}
"""File and class of each operator."""


def operator_class(name: str) -> type[Operator]:
    """The class of an operator.

    Raises:
        ProblemError: There is none of that name.
    """
    if name not in OPERATORS:
        raise ProblemError(f"no operator {name!r}. {did_you_mean(name, OPERATORS)}")
    file, cls = OPERATORS[name]
    found: type[Operator] = getattr(import_module(f"{__name__}.{file}"), cls)
    return found
