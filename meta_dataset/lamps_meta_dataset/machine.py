"""What a measurement ran on: written when it starts, quoted by the card. No names of machines."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from lamps.errors import ProblemError

_PACKAGES = (
    "lamps-automl", "torch", "transformers", "tokenizers", "peft", "scikit-learn", "numpy",
    "scipy", "safetensors",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """Processor, cores, memory, threads and versions of this machine."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
        "accelerator": None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def record(folder: Path) -> None:
    """Write `machine` to ``machine.json`` in a folder, once."""
    path = folder / "machine.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(machine(), indent=1) + "\n", encoding="utf-8")


def recorded(folder: Path) -> dict[str, Any]:
    """What `record` wrote.

    Raises:
        ProblemError: Nothing was measured in that folder.
    """
    path = folder / "machine.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProblemError(
            f"{path} is missing, nothing was measured there; run build first"
        ) from None
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform knows less, but something
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return round(pages * size / 2**30, 1)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
