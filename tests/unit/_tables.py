"""Landmark tables out of thin air, and equality that knows NaN."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from lamps.tables import LandmarkTable
from lamps.types import Objective

FIELDS = ("name", "candidates", "objectives", "family", "source", "licence", "unit", "seed")
ARRAYS = ("fidelities", "values", "cost_s", "measured", "size")


def same_bits(a: ArrayLike, b: ArrayLike) -> bool:
    """Equal shape and bits, where all NaN are one."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape:
        return False
    both = np.isnan(left) & np.isnan(right)
    return bool((both | (left.view(np.int64) == right.view(np.int64))).all())


def assert_same(a: LandmarkTable, b: LandmarkTable) -> None:
    for field in FIELDS:
        assert getattr(a, field) == getattr(b, field), field
    for field in ARRAYS:
        assert same_bits(getattr(a, field), getattr(b, field)), field
    assert (a.peak_bytes is None) == (b.peak_bytes is None)
    if a.peak_bytes is not None and b.peak_bytes is not None:
        assert same_bits(a.peak_bytes, b.peak_bytes)


@st.composite
def tables(draw: st.DrawFn, name: str = "t") -> LandmarkTable:
    """Any table that can be written: failures, gaps, censored curves, odd words and numbers."""
    n, k, m = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1)
    labels = draw(st.lists(words, min_size=n, max_size=n, unique=True))
    numbers = st.floats(allow_infinity=False)

    def grid(cells: st.SearchStrategy[float], *shape: int) -> np.ndarray:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(cells, min_size=size, max_size=size))).reshape(shape)

    measured = grid(st.booleans(), n, k).astype(bool)
    measured[:, 0] = True
    fidelities = np.sort(
        draw(st.lists(st.floats(0, 1), min_size=k, max_size=k, unique_by=lambda x: x + 0.0))
    )
    some = draw(st.booleans())
    return LandmarkTable(
        name=name,
        candidates=tuple(labels),
        objectives=tuple(
            Objective(
                f"o{c}",
                draw(st.sampled_from(["1", "ms", "tokens/s", "a:b"])),
                draw(st.sampled_from(["minimize", "maximize"])),
                doc=draw(st.sampled_from(["", "What it is."])),
                noisy=draw(st.booleans()),
            )
            for c in range(m)
        ),
        fidelities=fidelities + 0.0,
        values=np.where(measured[:, :, None], grid(numbers, n, k, m), np.nan),
        cost_s=np.where(measured, grid(st.floats(0, 1e9), n, k), np.nan),
        measured=measured,
        size=grid(numbers, n),
        family=draw(st.sampled_from(["", "vision"])),
        source=draw(st.sampled_from(["", "measured here"])),
        licence=draw(st.sampled_from(["", "MIT"])),
        unit=draw(st.sampled_from(["share", "epochs"])),
        seed=draw(st.integers(-(2**70), 2**70)),
        peak_bytes=np.where(measured, 7.0, np.nan) if some else None,
    )
