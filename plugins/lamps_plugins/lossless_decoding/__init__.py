"""Faster decoding of a frozen language model that changes no token; `load` opens an export.

Example:
    ``lamps_plugins.lossless_decoding.load("DIR").generate("def main(")``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from lamps_plugins.lossless_decoding._export import Continuer

__all__ = ["load"]


def load(directory: str | Path) -> Continuer:
    """An exported folder, ready to continue prompts; see `_export.Continuer`.

    Raises:
        ProblemError: The folder is no export of this family.
    """
    from pathlib import Path

    from lamps_plugins.lossless_decoding import _export

    return _export.load(Path(directory))
