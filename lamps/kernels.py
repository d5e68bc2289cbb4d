"""Kernels: found as plugins are, run by Triton on a GPU and by their torch twins elsewhere.

A package of kernels is one entry point in the group ``lamps.kernels``. Each public file in it is a
kernel of that name and holds ``KERNEL``: its two versions, the cases it must answer, what it
refuses, and the sizes at which it is timed.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from lamps.errors import PluginError, did_you_mean

if TYPE_CHECKING:
    from torch import device as Device

GROUP = "lamps.kernels"


class Kernel(Protocol):
    """What lamps asks of a kernel; more of it is read by `lamps.testing.kernels`."""

    @property
    def name(self) -> str:
        """Name of its file."""

    @property
    def torch(self) -> Callable[..., Any]:
        """The twin, in torch operations."""

    @property
    def triton(self) -> Callable[..., Any]:
        """The same by Triton."""

    def implementation(self, device: Device | str) -> str:
        """``"triton"`` or ``"torch"``: what runs on a device."""


@functools.cache
def _modules() -> Mapping[str, str]:
    """Module of each kernel by name."""
    found: dict[str, str] = {}
    for entry in metadata.entry_points(group=GROUP):
        package = importlib.import_module(entry.module)
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.startswith("_"):
                continue
            if module.name in found:
                raise PluginError(
                    f"two packages hold a kernel {module.name!r}: {found[module.name]} and "
                    f"{entry.module}.{module.name}; rename one of the files"
                )
            found[module.name] = f"{entry.module}.{module.name}"
    return found


def names() -> list[str]:
    """Names of all installed kernels.

    Example:
        >>> from lamps import kernels
        >>> "ties" in kernels.names()
        True
    """
    return sorted(_modules())


def get(name: str) -> Any:
    """The kernel of a name; see `Kernel`.

    Raises:
        PluginError: There is none of that name, or its file cannot be used.

    Example:
        >>> from lamps import kernels
        >>> kernels.get("ties").implementation("cpu")
        'torch'
    """
    modules = _modules()
    if name not in modules:
        raise PluginError(f"no kernel {name!r}. {did_you_mean(name, modules)}")
    try:
        return importlib.import_module(modules[name]).KERNEL
    except Exception as error:
        # Whatever a stranger's file raises on import is the reason why it cannot be used.
        raise PluginError(
            f"the kernel {name!r} cannot be used: {type(error).__name__}: {error}"
        ) from error


def implementation(name: str, device: Device | str) -> str:
    """``"triton"`` or ``"torch"``: what runs a kernel on a device.

    Example:
        >>> from lamps import kernels
        >>> kernels.implementation("ties", "cpu")
        'torch'
    """
    found: str = get(name).implementation(device)
    return found
