"""The first signal asks, the second interrupts."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from lamps.scheduler.signals import (
    gentle_stop,
    signal_kept,
    terminated_like_interrupted,
    undisturbed,
)

BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_the_first_asks_and_the_second_interrupts(first: int, second: int) -> None:
    reasons: list[str] = []
    with gentle_stop(reasons.append):
        os.kill(os.getpid(), first)
        assert reasons == ["interrupted by the user"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), second)
    assert reasons == ["interrupted by the user"]


def test_handlers_are_put_back_however_it_ends() -> None:
    before = [signal.getsignal(s) for s in BOTH]
    during: list[object] = []
    with pytest.raises(ZeroDivisionError), gentle_stop(print):
        during.append(1 / len(during))  # fails while the handlers are ours
    assert [signal.getsignal(s) for s in BOTH] == before


def test_outside_the_main_thread_nothing_is_changed() -> None:
    seen: list[bool] = []

    def work() -> None:
        before = [signal.getsignal(s) for s in BOTH]
        with gentle_stop(print):
            seen.append([signal.getsignal(s) for s in BOTH] == before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_handler_that_foreign_code_replaces_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signal_kept(signal.SIGTERM):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) == before


def test_termination_is_an_interrupt_only_meanwhile() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_orderly_end_is_not_disturbed() -> None:
    before = [signal.getsignal(s) for s in BOTH]
    with undisturbed():
        for number in BOTH:
            os.kill(os.getpid(), number)
    assert [signal.getsignal(s) for s in BOTH] == before
