"""Ctrl-C once stops gently, twice at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def gentle_stop(stop: Callable[[str], None]) -> Iterator[None]:
    """While active, the first SIGINT or SIGTERM calls ``stop``, the next is KeyboardInterrupt.

    Signals reach the main thread only; elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop("interrupted by the user")

    previous = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def signal_kept(number: signal.Signals) -> Iterator[None]:
    """Put a signal's handler back that foreign code replaces meanwhile, as ``ray.init`` does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, handler)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """While active, SIGTERM does what Ctrl-C does, so that what was started is ended too."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with signal_kept(signal.SIGTERM):
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handle)
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """While active, SIGINT and SIGTERM change nothing: for the few seconds of an orderly end.

    Ray that is interrupted while it shuts down leaves processes behind, or dies of SIGSEGV.
    """
    with signal_kept(signal.SIGINT), signal_kept(signal.SIGTERM):
        if threading.current_thread() is threading.main_thread():
            # Not SIG_IGN, which what is started meanwhile would inherit.
            signal.signal(signal.SIGINT, lambda number, frame: None)
            signal.signal(signal.SIGTERM, lambda number, frame: None)
        yield
