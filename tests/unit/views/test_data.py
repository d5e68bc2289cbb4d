from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from lamps_plugins._views.checks import check_views
from lamps_plugins._views.data import CLIP, ViewData, fit_scaler, standardised
from lamps_plugins._views.masks import missing_mask
from lamps_plugins._views.toy import toy_views

from lamps.errors import ProblemError


def hidden(seed: int = 0, n: int = 60) -> ViewData:
    data, _ = toy_views(seed, n=n)
    mask = missing_mask("sample-rate", 0.6, n, data.n_views, seed)
    return dataclasses.replace(data, mask=mask)


def junk(data: ViewData, scale: float = 1e6) -> ViewData:
    """The same data as it might come: hidden cells full of numbers or NaN."""
    rng = np.random.default_rng(5)
    arrays = []
    for v, array in enumerate(data.arrays):
        copy = array.copy()
        away = ~data.mask[:, v]
        copy[away] = scale * rng.normal(size=(away.sum(), array.shape[1]))
        copy[np.flatnonzero(away)[:1]] = np.nan
        arrays.append(copy)
    return dataclasses.replace(data, arrays=tuple(arrays))


def test_what_is_hidden_does_not_survive() -> None:
    data = hidden()
    assert junk(data).digest() == data.digest()
    assert standardised(junk(data)).digest() == standardised(data).digest()


def test_standardised_features_have_mean_0_and_deviation_1_where_observed() -> None:
    data = standardised(hidden())
    for v, array in enumerate(data.arrays):
        seen = array[data.mask[:, v]].astype(np.float64)
        assert np.abs(seen.mean(axis=0)).max() < 1e-5
        assert seen.std(axis=0) == pytest.approx(1.0, abs=1e-4)
        assert not array[~data.mask[:, v]].any()


def test_statistics_of_some_rows_ignore_the_others() -> None:
    data = hidden()
    rows = np.arange(30)
    wild = dataclasses.replace(
        data, arrays=tuple(np.where(np.arange(60)[:, None] < 30, a, 1e5) for a in data.arrays)
    )
    first = standardised(data, rows).take(rows)
    assert standardised(wild, rows).take(rows).digest() == first.digest()


def test_constant_features_go_and_outliers_are_clipped() -> None:
    data = hidden()
    array = data.arrays[0].copy()
    array[:, 1] = 3.0
    array[np.flatnonzero(data.mask[:, 0])[0], 2] = 1e9
    found = standardised(dataclasses.replace(data, arrays=(array, *data.arrays[1:])))
    assert found.dims[0] == data.dims[0] - 1
    assert max(float(np.abs(a).max()) for a in found.arrays) <= CLIP


def test_large_offsets_do_not_look_constant_nor_rounding_varied() -> None:
    data = hidden()
    shifted = tuple(a + np.float32(1000.0) for a in data.arrays)
    assert standardised(dataclasses.replace(data, arrays=shifted)).dims == data.dims
    flat = (np.full((60, 2), 0.1, np.float32), *data.arrays[1:])
    with pytest.raises(ProblemError, match=r"view0.*constant"):
        standardised(dataclasses.replace(data, arrays=flat))


def test_taking_rows_and_views() -> None:
    data = hidden()
    rows = np.array([5, 2, 9])
    some = data.take(rows)
    assert some.n == 3
    assert (some.arrays[1] == data.arrays[1][rows]).all()
    assert data.only([2, 0]).names == ("view2", "view0")
    with pytest.raises(ValueError, match="read-only"):
        some.arrays[0][0] = 1.0


def test_a_scaler_refuses_other_widths() -> None:
    data = hidden()
    with pytest.raises(ProblemError, match=r"\[4, 6\].*\[6, 9, 4\]"):
        fit_scaler(data).apply(data.only([2, 0]))


def bad(**changes: object) -> ViewData:
    return dataclasses.replace(hidden(), **changes)  # type: ignore[arg-type]


def test_shapes_that_do_not_fit_are_refused() -> None:
    data = hidden()
    with pytest.raises(ProblemError, match=r"mask has shape \[60, 2\]"):
        bad(mask=data.mask[:, :2])
    with pytest.raises(ProblemError, match=r"'view2' has shape \[59, 4\]"):
        bad(arrays=(*data.arrays[:2], data.arrays[2][:-1]))
    with pytest.raises(ProblemError, match="2 names for 3 views"):
        bad(names=("a", "b"))
    with pytest.raises(ProblemError, match="group has shape"):
        bad(group=np.zeros(3))
    array, mask = data.arrays[0].copy(), np.ones((60, 3), bool)
    array[4] = np.inf
    with pytest.raises(ProblemError, match="row 4"):
        bad(arrays=(array, *data.arrays[1:]), mask=mask)
    mask[:, 1] = False
    unseen = bad(mask=mask)
    with pytest.raises(ProblemError, match="'view1' is never observed"):
        standardised(unseen)


def test_odd_views_are_told_of() -> None:
    data = hidden()
    mask = data.mask.copy()
    mask[:, :] = True
    mask[:30, 0] = False
    mask[30:, 1] = False
    narrow = dataclasses.replace(
        data,
        arrays=(*data.arrays[:2], data.arrays[2][:, :1]),
        mask=mask,
    )
    notes = " ".join(check_views(narrow))
    assert "one feature" in notes
    assert "'view0' and 'view1'" in notes
    twice = data.take(np.r_[np.arange(60), np.arange(5)])
    assert "5 of 65 rows repeat" in " ".join(check_views(twice))
