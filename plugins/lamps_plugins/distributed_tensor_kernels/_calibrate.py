"""Numbers of a machine that the cost model needs, measured in a second.

t_comm(n) = alpha + n / beta        a message of n bytes to another rank and back, halved
t_gemm(m, n, k) = launch + 2 m n k / flops        a tile
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from lamps_kernels.gemm import tile_product

from lamps.types import Json
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer
from lamps_plugins.distributed_tensor_kernels._transports import Transport

__all__ = ["Calibration", "line", "measure"]

SIZES = (1 << 8, 1 << 14, 1 << 17)
"""Elements of the messages."""

REPETITIONS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a machine does; the defaults order plans until it has been measured.

    Args:
        alpha_s: Seconds before the first byte of a message.
        bytes_s: Bytes a second after it.
        launch_s: Seconds of a tile besides its products.
        flops_s: Floating-point operations a second and rank.
    """

    alpha_s: float = 1e-4
    bytes_s: float = 1e9
    launch_s: float = 2e-5
    flops_s: float = 2e10

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return dataclasses.asdict(self)


def line(x: list[float], y: list[float]) -> tuple[float, float]:
    """Offset and slope of the line that lies nearest to points in relative terms, none below 0.

    Example:
        >>> [round(v, 6) for v in line([1.0, 3.0], [5.0, 9.0])]
        [3.0, 2.0]
    """
    weights = torch.tensor(y, dtype=torch.float64).reciprocal()[:, None]
    design = torch.tensor([[1.0, v] for v in x], dtype=torch.float64) * weights
    target = torch.ones(len(x), 1, dtype=torch.float64)
    offset, slope = torch.linalg.lstsq(design, target).solution.flatten().tolist()
    return max(offset, 0.0), max(slope, 1e-15)


def _median_s(call: Callable[[], None]) -> float:
    call()
    found = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def measure(transport: Transport) -> Calibration:
    """Measure on all ranks together; every rank gets its own numbers.

    Raises:
        MethodFailed: A rank did not answer.
    """
    mesh = DeviceMesh(transport, "calibrate")
    try:
        alpha, inverse = _messages(mesh) if mesh.num_ranks() > 1 else (0.0, 1e-9)
        launch, per_flop = _tiles()
    finally:
        mesh.close()
    return Calibration(alpha_s=alpha, bytes_s=1 / inverse, launch_s=launch, flops_s=1 / per_flop)


def _messages(mesh: DeviceMesh) -> tuple[float, float]:
    """Rank 0 sends to rank 1 and waits for the same back; others look on."""
    sources = list(mesh.others)[:1] if mesh.rank() > 1 else [1 - mesh.rank()]
    buffer = SymmBuffer(mesh, (max(SIZES),), 1, sources=sources)
    value, seconds = 0, []
    for size in SIZES:
        chunk = torch.zeros(size)

        def there_and_back(chunk: torch.Tensor = chunk) -> None:
            nonlocal value
            value += 1
            if mesh.rank() == 0:
                buffer.send(chunk, 1, 0, value)
                buffer.wait([0], value)
            elif mesh.rank() == 1:
                buffer.wait([0], value)
                buffer.send(chunk, 0, 0, value)
            buffer.release(value)

        mesh.barrier()
        seconds.append(_median_s(there_and_back) / 2)
    mesh.barrier()
    buffer.close()
    return line([4.0 * size for size in SIZES], seconds)


def _tiles() -> tuple[float, float]:
    sizes = (32, 64, 128, 256)
    seconds = []
    for size in sizes:
        a, out = torch.ones(size, size), torch.empty(size, size)
        seconds.append(_median_s(lambda a=a, out=out: tile_product(a, a, out)))  # type: ignore[misc]
    return line([2.0 * size**3 for size in sizes], seconds)
