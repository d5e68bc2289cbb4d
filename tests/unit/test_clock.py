"""Clocks never go backwards."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from lamps.scheduler.clock import SimulatedClock, WallClock


@given(st.lists(st.floats(0, 1e12)))
def test_simulated_time_is_the_latest_moment_it_was_told(moments: list[float]) -> None:
    clock = SimulatedClock()
    assert clock.now() == 0.0
    for number, moment in enumerate(moments, start=1):
        clock.advance_to(moment)
        assert clock.now() == max(moments[:number])


def test_simulated_time_stands_still_by_itself() -> None:
    clock = SimulatedClock()
    time.sleep(0.01)
    assert clock.now() == 0.0


def test_wall_time_is_elapsed_time() -> None:
    clock = WallClock()
    begin = clock.now()
    time.sleep(0.02)
    assert 0.015 < clock.now() - begin < 5.0
