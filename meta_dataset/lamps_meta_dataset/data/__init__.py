"""The files that ship with the package."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "text_classification.parquet"
"""Our own landmark tables; their card lies beside them."""

MERGING = Path(__file__).parent / "model_merging.parquet"
"""One landmark table of a search over mergers; its card lies beside it."""
