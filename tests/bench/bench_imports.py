"""How long a user waits before anything happens."""

from __future__ import annotations

import subprocess
import sys

from bench_table import Figure, figure, timed


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def measure() -> list[Figure]:
    """Wall time of whole processes, the interpreter's own start taken off for ``import lamps``."""
    imports, helps = [], []
    for _ in range(7):
        bare = timed(lambda: _run("-c", "pass"))
        imports.append(timed(lambda: _run("-c", "import lamps")) - bare)
        helps.append(timed(lambda: _run("-m", "lamps", "--help")))
    return [
        figure("import lamps", imports, "s", 0.2),
        figure("lamps --help, whole process", helps, "s", 0.4),
    ]
