"""Expected seconds of a plan, to put plans in an order before any is run; never reported as time.

Chunks are sent one after the other and computed one after the other, so for an operator whose
chunks come before they are computed

    t_i = max(t_{i-1}, arrival_i) + g,    arrival_i = i (alpha + bytes / beta)

and the other way round for one whose chunks leave when they are computed. ``g`` is the time of the
tiles of a chunk: 2 m n k / F each, and a launch.
"""

from __future__ import annotations

from lamps_plugins.distributed_tensor_kernels._calibrate import Calibration
from lamps_plugins.distributed_tensor_kernels._operators import operator_class
from lamps_plugins.distributed_tensor_kernels._operators._base import Shape
from lamps_plugins.distributed_tensor_kernels._plan import Plan

__all__ = ["expected_s"]

LEAVING = ("gemm_rs", "gemm_ar", "sp_flash_decode")
"""Operators that compute a chunk before it travels."""


def expected_s(
    operator: str, shape: Shape, world: int, plan: Plan | None, machine: Calibration
) -> float:
    """Expected seconds of the slowest rank.

    Args:
        operator: Its name.
        shape: Its sizes.
        world: Number of ranks.
        plan: None for a library: collectives first or last, or everything on one rank.
        machine: What the machine does.
    """
    cls = operator_class(operator)
    compute = cls.flops(shape) / world / machine.flops_s
    if plan is None:
        return compute + cls.wire_bytes(shape, world) / machine.bytes_s + machine.alpha_s
    tiles = max(cls.tiles(shape, world, plan), 1)
    columns = -(-shape["n"] // plan.block_n) if "n" in shape else 1
    compute += machine.launch_s * tiles * world * columns
    if operator == "decode_step":
        busy = compute / min(plan.workers, 2)
        return busy + 4 * shape["layers"] * (world - 1) * machine.alpha_s
    if world == 1:
        return compute
    remote = (world - 1) * plan.chunks
    travel = machine.alpha_s + cls.wire_bytes(shape, world) / remote / machine.bytes_s
    if plan.mode == "seq":
        return compute + (world - 1) * machine.alpha_s + remote * (travel - machine.alpha_s)
    if plan.mode == "ring" and operator in LEAVING:
        travel *= world / (world - 1)  # a running sum visits every rank
    own, piece = compute / world, compute / world / plan.chunks
    # Without a swizzle some rank has its own shard where it helps least.
    helps = plan.swizzle != "none"
    if operator in LEAVING:
        now = 0.0 if helps else own
        sent = now
        for _ in range(remote):
            now += piece
            sent = max(sent, now) + travel
        return max(now + (own if helps else 0.0), sent)
    now = own if helps else 0.0
    for i in range(1, remote + 1):
        now = max(now, i * travel) + piece
    return now if helps else now + own
