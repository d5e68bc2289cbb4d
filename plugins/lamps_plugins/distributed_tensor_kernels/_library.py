"""The same operators by what libraries offer: collectives and one product, or a single rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators._base import Operands, Operator, Shape

__all__ = ["LIBRARIES", "library_call"]

LIBRARIES = ("collective", "single", "numpy")


def library_call(
    how: str,
    operator: type[Operator],
    full: Operands,
    own: Operands,
    shape: Shape,
    mesh: DeviceMesh,
) -> Tensor:
    """One call of a library.

    Args:
        how: ``collective`` (``torch.distributed`` and torch on each rank), ``single`` (torch on
            one rank, which has everything) or ``numpy`` (NumPy there).
        operator: What is computed.
        full: Its operands, for a single rank.
        own: This rank's operands, for a collective.
        shape: Sizes.
        mesh: The ranks.

    Raises:
        ProblemError: The library does not have it.
    """
    if how == "single":
        return operator.single(full, shape)
    if how == "numpy":
        if operator.name not in ("ag_gemm", "gemm_rs", "gemm_ar"):
            raise ProblemError(f"numpy multiplies matrices; {operator.name} is more than that")
        return torch.from_numpy(full["a"].numpy() @ full["b"].numpy())
    if not dist.is_initialized():
        raise ProblemError(
            f"torch.distributed has no group over transport {mesh.transport.name!r}; its "
            "collectives need transport gloo"
        )
    return operator.collective(own, shape, mesh)
