"""Ranks as real processes: the same bits over every transport, and an end for everything."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from lamps_plugins.distributed_tensor_kernels._job import Job
from lamps_plugins.distributed_tensor_kernels._launch import ProcessGroup, close_group, group_for
from lamps_plugins.distributed_tensor_kernels._library import library_call
from lamps_plugins.distributed_tensor_kernels._mesh import Conditions, DeviceMesh
from lamps_plugins.distributed_tensor_kernels._operators import operator_class
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._transports import Link
from lamps_plugins.distributed_tensor_kernels._transports.gloo import GlooTransport

from lamps.errors import ConfigError, MethodFailed, ProblemError

from ._groups import digests, wire

pytestmark = pytest.mark.timeout(120)

SPLIT = Plan(mode="split", chunks=3, block_m=16, block_n=32)
SHAPES = {
    "ag_gemm": {"m": 130, "n": 50, "k": 45},
    "gemm_ar": {"m": 130, "n": 50, "k": 45},
    "gemm_rs": {"m": 1, "n": 2, "k": 3},  # a rank without a row
    "a2a_grouped_gemm": {"t": 60, "k": 21, "n": 34, "e": 5, "top": 2},
}


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    close_group()


def gone(pids: list[int], within_s: float = 10.0) -> bool:
    """Whether processes have ended, waiting a little."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not any(_runs(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "transport", ["gloo", pytest.param("shm", marks=SLOW), pytest.param("simlink", marks=SLOW)]
)
def test_processes_give_the_bits_of_threads(transport: str) -> None:
    with group_for(2, transport, wait_s=20, link=Link()) as group:
        assert isinstance(group, ProcessGroup)
        assert group.transport == transport
        for operator, shape in SHAPES.items():
            found = group.run(Job(operator=operator, shape=shape, plan=SPLIT, repetitions=1))
            assert [r.digest for r in found] == digests(operator, shape, SPLIT, 2)
            late = Conditions(slow_rank=1, slow_s=0.2)
            job = Job(operator=operator, shape=shape, plan=SPLIT, repetitions=1, conditions=late)
            assert [r.digest for r in group.run(job)] == [r.digest for r in found]
        if transport == "gloo":
            for operator, shape in SHAPES.items():
                # Collectives add in an order of their own, but are right within tolerance.
                group.run(Job(operator=operator, shape=shape, library="collective", repetitions=1))
        pids, folder = [p.pid for p in group.ranks], group.folder
    close_group()
    assert gone(pids)
    assert not folder.exists()


@pytest.mark.parametrize("transport", ["shm", pytest.param("gloo", marks=SLOW)])
def test_a_rank_that_dies_is_named_and_takes_the_others_along(transport: str) -> None:
    group = ProcessGroup(2, transport, wait_s=3, link=Link())
    pids = [p.pid for p in group.ranks]
    os.kill(pids[1], signal.SIGKILL)
    shape = SHAPES["ag_gemm"]
    started = time.monotonic()
    with pytest.raises(MethodFailed, match=r"rank 1 of 2 died by signal 9 during ag_gemm"):
        group.run(Job(operator="ag_gemm", shape=shape, plan=SPLIT))
    assert time.monotonic() - started < 30
    assert gone(pids)


@pytest.mark.slow
def test_a_group_may_stand_idle_for_longer_than_a_wait() -> None:
    group = ProcessGroup(2, "gloo", wait_s=1.5, link=Link())
    job = Job(operator="ag_gemm", shape=SHAPES["ag_gemm"], plan=SPLIT, repetitions=1)
    first = group.run(job)[0].digest
    time.sleep(2.0)
    assert group.run(job)[0].digest == first
    group.close()


def test_a_rank_that_hangs_is_named_with_operation_and_slot() -> None:
    group = ProcessGroup(2, "shm", wait_s=3, link=Link())
    pids = [p.pid for p in group.ranks]
    hang = Conditions(slow_rank=1, slow_s=20.0)
    job = Job(operator="ag_gemm", shape=SHAPES["ag_gemm"], plan=SPLIT, conditions=hang)
    with pytest.raises(
        MethodFailed, match=r"rank 0 waited 3 s in ag_gemm for slot \d of rank 1, which did not"
    ):
        group.run(job)
    assert gone(pids)


PARENT = """
import sys, time
from lamps_plugins.distributed_tensor_kernels._launch import ProcessGroup
from lamps_plugins.distributed_tensor_kernels._transports import Link
group = ProcessGroup(2, "gloo", wait_s=60, link=Link())
print(group.folder, *[p.pid for p in group.ranks], flush=True)
time.sleep(60)
"""


def test_ranks_leave_when_their_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    folder, *words = parent.stdout.readline().split()
    pids = [int(pid) for pid in words]
    assert len(pids) == 2
    assert all(_runs(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pids)
    assert not Path(folder).exists()


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MethodFailed, match="rank 0 of 2 does not meet") as caught:
            GlooTransport(0, 2, f"tcp://127.0.0.1:{port}", wait_s=2)
    assert "\n" not in str(caught.value)


def test_collectives_without_a_group_are_refused() -> None:
    assert not dist.is_initialized()
    mesh = DeviceMesh(wire(1)[0])
    cls = operator_class("ag_gemm")
    with pytest.raises(ProblemError, match="has no group over transport 'loop'"):
        library_call("collective", cls, {}, {}, cls.sizes, mesh)
    experts = operator_class("a2a_grouped_gemm")
    with pytest.raises(ProblemError, match="more than that"):
        library_call("numpy", experts, {}, {}, experts.sizes, mesh)
    mesh.close()


def test_streams_need_a_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with (
        pytest.raises(ConfigError, match="torch sees none; use shm"),
        group_for(2, "stream", wait_s=1, link=Link()),
    ):
        pass
