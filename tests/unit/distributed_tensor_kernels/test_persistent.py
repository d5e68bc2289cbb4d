"""Queues of tasks in one launch: the same bits however tasks are dealt, and what a layer gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_kernels.persistent import (
    EPS,
    NOTHING,
    feed_forward,
    persistent_torch,
    persistent_triton,
)

pytestmark = pytest.mark.timeout(60)


@given(st.integers(1, 16), st.integers(1, 140), st.integers(1, 140), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_any_number_of_queues_gives_the_layer(rows: int, d: int, f: int, workers: int) -> None:
    def made(n: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return persistent_torch(**feed_forward(rows, d, f, workers=n, generator=generator))

    found = made(workers)
    assert torch.equal(found, made(1))
    parts = found.split(
        [rows * d, d, d * f, d * f, f * d, found.numel() - rows * d - d - 3 * d * f]
    )
    x, weight = parts[0].view(rows, d), parts[1]
    gate, up, down = parts[2].view(d, f), parts[3].view(d, f), parts[4].view(f, d)
    h = torch.nn.functional.rms_norm(x, (d,), weight, EPS)
    wanted = x + (torch.nn.functional.silu(h @ gate) * (h @ up)) @ down
    torch.testing.assert_close(found[-rows * d :].view(rows, d), wanted, rtol=1e-4, atol=1e-3)


def test_the_given_memory_is_left_alone_and_no_task_is_no_work() -> None:
    made = feed_forward(2, 8, 8)
    before = made["memory"].clone()
    persistent_torch(**made)
    assert torch.equal(made["memory"], before)
    idle = torch.full((1, 1, 16), NOTHING, dtype=torch.int32)
    assert torch.equal(persistent_torch(before, idle, n_tasks=0), before)


def test_the_interpreter_takes_one_queue() -> None:
    pytest.importorskip("triton")
    with pytest.raises(ValueError, match="2 queues in the interpreter"):
        persistent_triton(**feed_forward(2, 8, 8, workers=2))
