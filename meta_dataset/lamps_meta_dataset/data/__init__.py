"""The files that ship with the package."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "text_classification.parquet"
"""Our own landmark tables; their card lies beside them."""

OTHERS = tuple(p for p in sorted(Path(__file__).parent.glob("*.parquet")) if p != FILE)
"""Tables of searches in other families, one file a family; their cards lie beside them."""
