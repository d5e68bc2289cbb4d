"""Plans for operators that compute and communicate at the same time; `load` runs an export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamps_plugins.distributed_tensor_kernels._export import Exported

__all__ = ["load"]


def load(directory: str | Path) -> Exported:
    """An exported plan, ready to be run on this machine.

    Args:
        directory: What ``lamps export`` has written.

    Returns:
        The plan; its ``run()`` checks it against float64 and times it.

    Raises:
        ProblemError: The folder holds no plan.

    Example:
        >>> load("no/such/folder")
        Traceback (most recent call last):
        lamps.errors.ProblemError: no/such/folder/plan.json does not exist; give an exported folder
    """
    from lamps_plugins.distributed_tensor_kernels import _export

    return _export.read(Path(directory))
