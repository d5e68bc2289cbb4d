"""Laws of parts of tables, of flipped values, and of where a curve ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.errors import ProblemError
from lamps.tables import LandmarkTable, check_table
from lamps.types import Objective

from ._tables import assert_same, same_bits, tables


@given(tables())
def test_maximised_objectives_are_flipped_and_nothing_else(table: LandmarkTable) -> None:
    flipped = table.minimised()
    for column, objective in enumerate(table.objectives):
        sign = -1.0 if objective.direction == "maximize" else 1.0
        assert same_bits(flipped[:, :, column], sign * table.values[:, :, column])
        assert same_bits(table.minimised([objective.name])[:, :, 0], flipped[:, :, column])


@given(tables(), st.data())
def test_the_whole_is_a_part_and_parts_of_parts_are_parts(
    table: LandmarkTable, data: st.DataObject
) -> None:
    n, k = table.measured.shape
    assert_same(table.select(range(n)), table)
    assert_same(table.select(np.ones(n, dtype=bool), levels=range(k)), table)
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
    assert_same(table.select(rows), table.select(rows, [o.name for o in table.objectives]))
    assert table.select(rows).candidates == tuple(table.candidates[i] for i in rows)


@given(tables(), st.data())
def test_a_kept_landmark_is_reached_at_the_same_cost(
    table: LandmarkTable, data: st.DataObject
) -> None:
    n, k = table.measured.shape
    levels = sorted(data.draw(st.sets(st.integers(0, k - 1), min_size=1)))
    part = table.select(range(n), levels=levels)
    before = np.cumsum(np.nan_to_num(table.cost_s), axis=1)[:, levels]
    after = np.cumsum(np.nan_to_num(part.cost_s), axis=1)
    assert after[part.measured] == pytest.approx(before[part.measured], rel=1e-12, abs=1e-12)
    assert (np.isnan(part.cost_s) | part.measured).all()
    # Nothing is measured that was not, except a failure on the way.
    assert not (part.measured & ~table.measured[:, levels] & ~part.failed).any()


@given(tables())
def test_a_censored_curve_ends_early_and_did_not_fail(table: LandmarkTable) -> None:
    for i in range(len(table.candidates)):
        finite = np.isfinite(table.values[i]).all(axis=1)
        failed = (table.measured[i] & ~finite).any()
        assert table.censored[i] == (not table.measured[i, -1] and not failed)
        assert table.failed[i].any() == failed


def small(values: list[list[float]], measured: list[list[int]] | None = None) -> LandmarkTable:
    grid = np.array(values)
    ran = np.ones(grid.shape, dtype=bool) if measured is None else np.array(measured, dtype=bool)
    return LandmarkTable(
        name="t",
        candidates=tuple("abcdef"[: len(grid)]),
        objectives=(Objective("error"),),
        fidelities=np.linspace(0, 1, grid.shape[1]),
        values=np.where(ran, grid, np.nan)[:, :, None],
        cost_s=np.where(ran, 1.0, np.nan),
        measured=ran,
        size=np.arange(len(grid), dtype=float),
    )


def test_costs_of_dropped_levels_go_to_the_next_kept_one() -> None:
    table = small([[9, 8, 7, 6], [9, 8, 7, 6]], [[1, 1, 1, 1], [1, 1, 0, 1]])
    part = table.select([0, 1], levels=[0, 2, 3])
    assert part.cost_s[0].tolist() == [1, 2, 1]
    assert part.measured[1].tolist() == [True, False, True]
    assert part.cost_s[1, [0, 2]].tolist() == [1, 2]


def test_who_failed_on_the_way_has_failed() -> None:
    table = small([[9, np.nan, 0, 0]], [[1, 1, 0, 0]])
    part = table.select([0], levels=[0, 2, 3])
    assert part.failed.tolist() == [[False, True, False]]
    assert part.cost_s[0, 1] == 1.0
    assert not part.censored.any()


@pytest.mark.parametrize("levels", [[], [1, 0], [1, 1]])
def test_levels_must_increase(levels: list[int]) -> None:
    with pytest.raises(ProblemError, match="expected increasing"):
        small([[1, 2, 3]]).select([0], levels=levels)


def test_unknown_objectives_are_named() -> None:
    with pytest.raises(ProblemError, match=r"no objective 'eror'.*Did you mean 'error'"):
        small([[1.0, 2.0]]).minimised(["eror"])
    with pytest.raises(ProblemError, match="was named, expected one"):
        small([[1.0, 2.0]]).select([0], [])


@pytest.mark.parametrize(
    ("values", "measured", "level", "text"),
    [
        ([[1.0, 2.0]], None, "warning", "one candidate: nothing to select"),
        ([[1, 2], [1, 2]], None, "warning", "all finished candidates have the same values"),
        ([[1, 2], [1, 3]], [[1, 0], [1, 0]], "error", "none of 2 candidates reached"),
        ([[1, 2], [1, 3]], [[1, 1], [1, 0]], "note", "1 of 2 candidates were stopped early"),
        ([[1, np.nan], [1, 3]], None, "note", "1 of 2 candidates failed"),
        ([[1.0], [2.0]], None, "note", "one fidelity"),
    ],
)
def test_oddities_are_said(
    values: list[list[float]], measured: list[list[int]] | None, level: str, text: str
) -> None:
    found = check_table(small(values, measured))
    assert any(f.level == level and text in f.text for f in found), found


def test_a_front_of_everyone_is_nothing_to_select() -> None:
    table = LandmarkTable(
        name="t",
        candidates=("a", "b"),
        objectives=(Objective("error"), Objective("accuracy", direction="maximize")),
        fidelities=np.array([0.0, 1.0]),
        values=np.array([[[1, 0], [0.1, 0.1]], [[1, 0], [0.2, 0.9]]], dtype=float),
        cost_s=np.ones((2, 2)),
        measured=np.ones((2, 2), dtype=bool),
        size=np.ones(2),
    )
    assert [f.text for f in check_table(table)] == [
        "all 2 finished candidates are Pareto: nothing to select"
    ]
