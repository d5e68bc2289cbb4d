"""``make bench-kernels``: time of each kernel beside the library's, in one run, on CPU or GPU.

Forms take turns (A B C A B C ...), so a machine that slows down in between does not decide; ratios
are taken turn by turn. Rates stand beside the ceiling that the same run measures: the bytes a
second of a copy that exceeds every cache, and the operations a second of a large matrix product.
Where there is no GPU, Triton cannot be timed (its interpreter is no measure of anything) and the
twin stands for the kernel. On a GPU times are those of its own clock, after a warm-up that pays
for compilation, over inputs that do not stay in its cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lamps import kernels

WARM_UPS = 3
GPU_CACHE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One form of one kernel at one size.

    Args:
        kernel: Its name.
        size: In words.
        form: ``triton``, ``torch``, or the library's.
        ms: Median, least and greatest milliseconds.
        ratio: Ours over this form, turn by turn: median, least, greatest. Ours is Triton on a GPU
            and the twin on a CPU.
        share: Of the measured ceiling (bytes or operations, whichever bounds it); None for what
            does other work than ours.
        ceiling: Which ceiling.
        density: Share of the dense work that ours does.
    """

    kernel: str
    size: str
    form: str
    ms: tuple[float, float, float]
    ratio: tuple[float, float, float]
    share: float | None
    ceiling: str
    density: float


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What this machine reaches.

    Args:
        bytes_s: Bytes read and written a second by a copy.
        flops: Operations a second of a matrix product.
    """

    bytes_s: float
    flops: float


def main() -> int:
    """Time the chosen kernels and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="kernels; all if none")
    parser.add_argument("--turns", type=int, default=9, help="repetitions of every form")
    parser.add_argument("--json", type=Path, help="write the rows into this file as well")
    given = parser.parse_args()
    if given.turns < 1:
        parser.error(f"--turns is {given.turns}; at least 1 is needed")
    known = kernels.names()
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"no kernel {unknown[0]!r}; known: {', '.join(known)}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ceilings: dict[torch.dtype, Ceiling] = {}
    rows: list[Row] = []
    for name in given.names or known:
        kernel = kernels.get(name)
        for bench in kernel.benches:
            if bench.gpu_only and device.type == "cpu":
                print(f"left out without a GPU: {name}, {bench.size}", file=sys.stderr)
                continue
            dtype = bench.dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
            if dtype not in ceilings:
                ceilings[dtype] = measure_ceiling(device, dtype)
            print(f"measuring: {name}, {bench.size} ...", file=sys.stderr, flush=True)
            rows += measure(kernel, bench, device, dtype, ceilings[dtype], given.turns)
    show(rows, device, ceilings)
    if given.json:
        document = {
            "device": _device_name(device),
            "ceilings": {str(k).removeprefix("torch."): asdict(v) for k, v in ceilings.items()},
            "rows": [asdict(r) for r in rows],
        }
        given.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def measure(
    kernel: Any,
    bench: Any,
    device: torch.device,
    dtype: torch.dtype,
    ceiling: Ceiling,
    turns: int,
) -> list[Row]:
    """All forms of a kernel at one size, in turns."""
    torch.manual_seed(0)
    calls: dict[str, Callable[[], Any]] = dict(bench.prepare(device, dtype))
    ours: str = kernel.implementation(device)
    if ours != "triton":
        calls.pop("triton", None)
    with torch.inference_mode():
        seconds = _turns(calls, device, turns)
    density = bench.density() if callable(bench.density) else bench.density
    floor_s = max(bench.flops / ceiling.flops, bench.bytes / ceiling.bytes_s)
    bound = "operations" if bench.flops / ceiling.flops > bench.bytes / ceiling.bytes_s else "copy"
    rows = []
    for form, times in seconds.items():
        ms = [1000 * t for t in times]
        ratios = [a / b for a, b in zip(seconds[ours], times, strict=True)]
        same_work = form in ("torch", "triton") or density == 1.0
        share = floor_s / statistics.median(times) if floor_s and same_work else None
        rows.append(
            Row(kernel.name, bench.size, form, _spread(ms), _spread(ratios), share, bound, density)
        )
    return rows


def _turns(
    calls: Mapping[str, Callable[[], Any]], device: torch.device, turns: int
) -> dict[str, list[float]]:
    """Seconds of every call in every turn."""
    for call in calls.values():
        for _ in range(WARM_UPS):
            call()
    clock = _gpu_seconds if device.type == "cuda" else _cpu_seconds
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            seconds[name].append(clock(call))
    return seconds


def _cpu_seconds(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _gpu_seconds(call: Callable[[], Any]) -> float:
    """By the events of the GPU; its cache is swept before."""
    torch.empty(GPU_CACHE_BYTES, dtype=torch.int8, device="cuda").zero_()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000


def measure_ceiling(device: torch.device, dtype: torch.dtype) -> Ceiling:
    """Best of several copies and matrix products of this element type."""
    cuda = device.type == "cuda"
    source = torch.empty((4 << 30) if cuda else (256 << 20), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    n = 8192 if cuda else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    with torch.inference_mode():
        times = _turns(
            {"copy": lambda: target.copy_(source), "mm": lambda: torch.mm(a, b)}, device, 5
        )
    return Ceiling(2 * source.numel() / min(times["copy"]), 2 * n**3 / min(times["mm"]))


def _spread(values: list[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads"


def show(rows: list[Row], device: torch.device, ceilings: Mapping[torch.dtype, Ceiling]) -> None:
    """Print the table on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=f"Kernels on {_device_name(device)}")
    for heading in ("kernel", "size", "form", "ms", "ours / this", "of ceiling", "density"):
        table.add_column(heading)
    for row in rows:
        share = "" if row.share is None else f"{row.share:.0%} {row.ceiling}"
        table.add_row(
            row.kernel,
            row.size,
            row.form,
            "{:.3g} [{:.3g}, {:.3g}]".format(*row.ms),
            "{:.2f} [{:.2f}, {:.2f}]".format(*row.ratio),
            share,
            f"{row.density:.3f}",
        )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for dtype, ceiling in ceilings.items():
        console.print(
            f"ceiling, {str(dtype).removeprefix('torch.')}: copy {ceiling.bytes_s / 1e9:.3g} GB/s,"
            f" matrix product {ceiling.flops / 1e9:.4g} GFLOP/s"
        )


if __name__ == "__main__":
    sys.exit(main())
