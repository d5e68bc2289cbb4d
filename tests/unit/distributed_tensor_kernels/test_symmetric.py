"""Symmetric memory: complete when waited for, unreadable before, bounded in time."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.distributed_tensor_kernels._mesh import Conditions, DeviceMesh
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer, Token
from lamps_plugins.distributed_tensor_kernels._threads import in_threads
from lamps_plugins.distributed_tensor_kernels._transports import Link, Transport, open_transport
from lamps_plugins.distributed_tensor_kernels._transports.simlink import SimLink

from lamps.errors import ConfigError, MethodFailed, ProblemError

pytestmark = pytest.mark.timeout(60)


def buffer_of(transport: Transport, rows: int = 4, slots: int = 2, counts: int = 0) -> SymmBuffer:
    mesh = DeviceMesh(transport, "test-op")
    sources = [1 - transport.rank] * slots
    return SymmBuffer(mesh, (rows, 3), slots, sources=sources, counts=counts)


@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6))
@settings(max_examples=20, deadline=None)
def test_chunks_arrive_whole_with_their_length_and_counts(lengths: list[int]) -> None:
    def work(transport: Transport) -> bool:
        buffer, right = buffer_of(transport, counts=2), True
        for value, n in enumerate(lengths, 1):
            chunk = torch.full((n, 3), float(value + 10 * transport.rank))
            buffer.send(chunk, 1 - transport.rank, value % 2, value, (value, n))
            token = buffer.wait([value % 2], value)
            found = buffer.consume(value % 2, token)
            wanted = torch.full((n, 3), float(value + 10 * (1 - transport.rank)))
            right &= torch.equal(found, wanted)
            right &= buffer.counts(value % 2, token) == [value, n]
            buffer.release(value)
        return right

    assert in_threads(2, work) == [True, True]


def test_nothing_can_be_read_without_the_token_of_a_wait() -> None:
    def work(transport: Transport) -> None:
        buffer = buffer_of(transport)
        buffer.send(torch.ones(2, 3), 1 - transport.rank, 0, 1)
        token = buffer.wait([0], 1)
        with pytest.raises(ProblemError, match="slot 1 was not waited for"):
            buffer.consume(1, token)
        with pytest.raises(ProblemError, match="slot 1 was not waited for"):
            buffer.counts(1, token)
        with pytest.raises(ProblemError, match="holds 2 rows in test-op, expected 3"):
            buffer.consume(0, token, 3)
        public = [name for name in dir(buffer) if not name.startswith("_")]
        assert not any(isinstance(getattr(buffer, name), torch.Tensor) for name in public)

    in_threads(2, work)


def test_unwritten_memory_is_poison() -> None:
    def work(transport: Transport) -> bool:
        buffer = buffer_of(transport)
        buffer.mesh.conditions = Conditions(heed=False)
        found = buffer.consume(0, Token(frozenset([0]), 1), 4)
        return bool(found.isnan().all())

    assert in_threads(2, work) == [True, True]


def test_a_chunk_that_does_not_come_is_named_in_time() -> None:
    def work(transport: Transport) -> float:
        buffer = buffer_of(transport)
        started = time.monotonic()
        with pytest.raises(
            MethodFailed, match=r"rank \d waited 0.3 s in test-op for slot 1 of rank \d, which did"
        ):
            buffer.wait([0, 1][1:], 1)
        return time.monotonic() - started

    assert all(0.2 < s < 5 for s in in_threads(2, work, wait_s=0.3))


def test_a_signal_of_an_earlier_repetition_is_not_mistaken() -> None:
    def work(transport: Transport) -> None:
        buffer = buffer_of(transport)
        buffer.send(torch.ones(1, 3), 1 - transport.rank, 0, 1)
        buffer.wait([0], 1)
        transport.barrier()
        with pytest.raises(MethodFailed, match="slot 0"):
            buffer.wait([0], 3)  # the same cell, two repetitions on

    in_threads(2, work, wait_s=0.3)


def test_a_fast_rank_may_be_one_repetition_ahead_and_not_two() -> None:
    ahead = threading.Event()

    def work(transport: Transport) -> None:
        buffer, other = buffer_of(transport), 1 - transport.rank
        if transport.rank == 0:
            for value in (1, 2):
                buffer.send(torch.full((1, 3), float(value)), other, 0, value)
            ahead.set()
            buffer.send(torch.full((1, 3), 3.0), other, 0, 3)  # waits for the release of 1
            return
        assert ahead.wait(5)
        time.sleep(0.1)
        assert buffer.consume(0, buffer.wait([0], 1), 1)[0, 0] == 1
        buffer.release(1)
        assert buffer.consume(0, buffer.wait([0], 3), 1)[0, 0] == 3
        assert buffer.consume(0, buffer.wait([0], 2), 1)[0, 0] == 2

    in_threads(2, work, wait_s=5)


def test_a_rank_that_never_releases_is_an_error() -> None:
    def work(transport: Transport) -> None:
        buffer = buffer_of(transport)
        if transport.rank:
            time.sleep(0.6)
            return
        for value in (1, 2):
            buffer.send(torch.ones(1, 3), 1, 0, value)
        with pytest.raises(MethodFailed, match="for rank 1 to release"):
            buffer.send(torch.ones(1, 3), 1, 0, 3)

    in_threads(2, work, wait_s=0.3)


@pytest.mark.parametrize(
    "chunk",
    [torch.ones(5, 3), torch.ones(2, 4), torch.ones(2, 3).double(), torch.ones(3, 2).T],
)
def test_chunks_that_do_not_fit_are_refused(chunk: torch.Tensor) -> None:
    def work(transport: Transport) -> None:
        with pytest.raises(ProblemError, match=r"slot 0 takes contiguous torch\.float32"):
            buffer_of(transport).put(chunk, 1 - transport.rank, 0, 1)

    in_threads(2, work)


def test_slots_and_sources_must_match() -> None:
    def work(transport: Transport) -> None:
        mesh = DeviceMesh(transport)
        with pytest.raises(ProblemError, match="2 slots have 1 sources"):
            SymmBuffer(mesh, (1, 1), 2, sources=[0])

    in_threads(1, work)


def test_the_failure_of_a_rank_reaches_those_who_wait_at_once() -> None:
    def work(transport: Transport) -> None:
        buffer = buffer_of(transport)
        if transport.rank == 1:
            raise ProblemError("rank 1 gives up")
        buffer.wait([0], 1)

    started = time.monotonic()
    with pytest.raises(ProblemError, match="rank 1 gives up"):
        in_threads(2, work, wait_s=30)
    assert time.monotonic() - started < 10


def test_a_simulated_link_takes_its_time_and_no_core() -> None:
    link = Link(alpha_us=2000.0, beta_mb_s=1.0)  # 12 kB take 12 ms, after 2

    def work(transport: Transport) -> tuple[float, float]:
        buffer = buffer_of(SimLink(transport, link), rows=1000)
        cpu, start = time.thread_time(), time.monotonic()
        transport.barrier()  # after the start, so that no other rank has sent before it
        for slot in (0, 1):
            buffer.send(torch.ones(1000, 3), 1 - transport.rank, slot, 1)
        buffer.wait([0], 1)
        first = time.monotonic() - start
        buffer.wait([1], 1)
        assert time.thread_time() - cpu < 0.02
        return first, time.monotonic() - start

    for first, both in in_threads(2, work):
        assert first >= 0.014
        assert both >= 0.028  # one message at a time


@pytest.mark.parametrize(
    ("alpha", "beta", "message"),
    [(-1.0, 1.0, "link_alpha"), (1.0, 0.0, "link_beta"), (float("nan"), 1.0, "link_alpha")],
)
def test_links_out_of_range(alpha: float, beta: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Link(alpha_us=alpha, beta_mb_s=beta)


def test_transports_that_are_none_between_processes(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    with pytest.raises(ConfigError, match="keeps its ranks in one process"):
        open_transport("loop", 0, 1, folder, wait_s=1, link=Link())
    with pytest.raises(ConfigError, match="Did you mean 'gloo'"):
        open_transport("glo", 0, 1, folder, wait_s=1, link=Link())
    with pytest.raises(ConfigError, match="rank 2 is outside of a world of 2"):
        open_transport("shm", 2, 2, folder, wait_s=1, link=Link())
