"""Collectives through shared symmetric memory beside those of ``torch.distributed`` over gloo.

Part of ``make bench-kernels``. Ranks are processes of this machine, one thread each, and tensors
lie in the memory of its CPU, also where there is a GPU. Both forms take turns; a turn lasts until
the slowest rank has its result, ratios are taken turn by turn, and results are compared before.
Ours sends whole shards to everybody at once and sums in the order of the ranks, so sums have the
same bits in every run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from lamps_kernels.add_reduce import add_reduce
from lamps_plugins.distributed_tensor_kernels._mesh import DeviceMesh
from lamps_plugins.distributed_tensor_kernels._symmetric import SymmBuffer
from lamps_plugins.distributed_tensor_kernels._transports import MEET_S
from lamps_plugins.distributed_tensor_kernels._transports.shm import ShmTransport, usable
from torch import Tensor
from torch.multiprocessing import start_processes

SHARDS = (1 << 14, 1 << 18, 1 << 22)
"""float32 elements that a rank holds of what is gathered, or gets of what is reduced."""

WARM_UPS = 3
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One collective at one size.

    Args:
        collective: Its name.
        shard_bytes: See `SHARDS`.
        ours_ms: Median, least and greatest milliseconds of the slowest rank.
        gloo_ms: The same of ``torch.distributed``.
        ratio: Ours over gloo's, turn by turn: median, least, greatest.
    """

    collective: str
    shard_bytes: int
    ours_ms: tuple[float, float, float]
    gloo_ms: tuple[float, float, float]
    ratio: tuple[float, float, float]


class Collectives:
    """The four collectives of a rank, on one buffer.

    Args:
        mesh: The ranks.
        n: Elements of a shard.
    """

    def __init__(self, mesh: DeviceMesh, n: int) -> None:
        self.mesh, self.n, self.value = mesh, n, 0
        self.buffer = SymmBuffer(mesh, (1, n), mesh.num_ranks(), sources=range(mesh.num_ranks()))

    def _exchange(self, shards: Tensor, use: Callable[[dict[int, Tensor]], None]) -> None:
        """Send row r of ``shards`` [W, n] to rank r, and use what came, by rank."""
        rank, others = self.mesh.rank(), self.mesh.others
        self.value += 1
        for other in others:
            self.buffer.send(shards[other : other + 1], other, rank, self.value)
        token = self.buffer.wait(others, self.value)
        use({other: self.buffer.consume(other, token)[0] for other in others})
        self.buffer.release(self.value)

    def all_gather(self, own: Tensor, out: Tensor) -> None:
        """``own`` [n] of all ranks into ``out`` [W, n]."""
        self._exchange(own.expand(len(out), -1), lambda got: self._fill(out, own, got))

    def all_to_all(self, shards: Tensor, out: Tensor) -> None:
        """Row r of ``shards`` [W, n] to rank r, whose row goes into ``out`` [W, n]."""
        own = shards[self.mesh.rank()]
        self._exchange(shards, lambda got: self._fill(out, own, got))

    def reduce_scatter(self, shards: Tensor, out: Tensor) -> None:
        """The sum over ranks of their rows for this one into ``out`` [n]."""
        rank = self.mesh.rank()

        def add(got: dict[int, Tensor]) -> None:
            add_reduce([got.get(r, shards[rank]) for r in range(len(shards))], out=out)

        self._exchange(shards, add)

    def all_reduce(self, shards: Tensor, out: Tensor) -> None:
        """The sum over ranks of ``shards`` [W, n] into ``out``, of the same shape."""
        own = out[self.mesh.rank()]
        self.reduce_scatter(shards, own)
        self.all_gather(own, out)

    def _fill(self, out: Tensor, own: Tensor, got: dict[int, Tensor]) -> None:
        out[self.mesh.rank()].copy_(own)
        for other, shard in got.items():
            out[other].copy_(shard)


def calls(
    mesh: DeviceMesh, n: int
) -> dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]]:
    """Ours and gloo's form of each collective on the same operands; each gives its result."""
    world, rank = mesh.num_ranks(), mesh.rank()
    ours = Collectives(mesh, n)
    generator = torch.Generator().manual_seed(rank)
    shards = torch.randn(world, n, generator=generator)
    own = shards[rank].clone()
    whole, part = torch.empty(world, n), torch.empty(n)
    other_whole, other_part = torch.empty(world, n), torch.empty(n)

    def summed() -> Tensor:
        other_whole.copy_(shards)  # gloo sums in place
        dist.all_reduce(other_whole)
        return other_whole

    def done(out: Tensor, call: Callable[..., object], *given: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            call(*given)
            return out

        return run

    gather = done(other_whole, dist.all_gather_single, other_whole.view(-1), own)
    scatter = done(other_part, dist.reduce_scatter_single, other_part, shards.view(-1))
    swap = done(other_whole, dist.all_to_all_single, other_whole, shards)
    return {
        "all_gather": (done(whole, ours.all_gather, own, whole), gather),
        "reduce_scatter": (done(part, ours.reduce_scatter, shards, part), scatter),
        "all_reduce": (done(whole, ours.all_reduce, shards, whole), summed),
        "all_to_all": (done(whole, ours.all_to_all, shards, whole), swap),
    }


def rank_main(rank: int, world: int, folder: str, turns: int, answers: str) -> None:
    """One rank; rank 0 writes what `_row` takes, for each collective and size."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/gloo"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    transport = ShmTransport(rank, world, Path(folder), wait_s=WAIT_S, meet_s=MEET_S)
    mesh = DeviceMesh(transport, "collectives")
    rows = []
    with torch.inference_mode():
        for n in SHARDS:
            for name, (ours, gloo) in calls(mesh, n).items():
                torch.testing.assert_close(ours(), gloo())
                seconds = torch.tensor(_turns(mesh, (ours, gloo), turns), dtype=torch.float64)
                dist.all_reduce(seconds, dist.ReduceOp.MAX)
                rows.append((name, 4 * n, seconds.tolist()))
    mesh.barrier()
    mesh.close()
    transport.close()
    dist.destroy_process_group()
    if rank == 0:
        Path(answers).write_text(json.dumps(rows))


def _turns(
    mesh: DeviceMesh, forms: tuple[Callable[[], Tensor], ...], turns: int
) -> list[list[float]]:
    """Seconds of this rank. [turns, forms]."""
    found = []
    for turn in range(-WARM_UPS, turns):
        seconds = []
        for form in forms:
            mesh.barrier()
            begin = perf_counter()
            form()
            seconds.append(perf_counter() - begin)
        if turn >= 0:
            found.append(seconds)
    return found


def _row(name: str, shard_bytes: int, seconds: list[list[float]]) -> Row:
    """From seconds of the slowest rank. [turns, forms]."""
    ours, gloo = ([1e3 * turn[form] for turn in seconds] for form in (0, 1))
    ratio = [a / b for a, b in zip(ours, gloo, strict=True)]
    return Row(name, shard_bytes, _spread(ours), _spread(gloo), _spread(ratio))


def _spread(values: list[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)


def measure(world: int, turns: int) -> list[Row]:
    """All rows, by ``world`` processes."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # ranks of one machine talk over its loopback
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder, "rows.json")
        given = (world, folder, turns, str(answers))
        start_processes(rank_main, given, nprocs=world, start_method="spawn")
        return [_row(*row) for row in json.loads(answers.read_text())]


def show(rows: list[Row], world: int) -> None:
    """Print the table on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = f"Collectives of {world} processes, in the memory of the CPU"
    table = Table(box=box.SIMPLE, title=title)
    for heading in ("collective", "shard", "ours, ms", "gloo, ms", "ours / gloo"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row.collective,
            f"{row.shard_bytes >> 10:,} KiB",
            *("{:.3g} [{:.3g}, {:.3g}]".format(*ms) for ms in (row.ours_ms, row.gloo_ms)),
            "{:.2f} [{:.2f}, {:.2f}]".format(*row.ratio),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> int:
    """Time all collectives and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", type=int, default=2, help="number of processes")
    parser.add_argument("--turns", type=int, default=21, help="repetitions of both forms")
    parser.add_argument("--json", type=Path, help="write the rows into this file as well")
    given = parser.parse_args()
    for name, least in (("world", 2), ("turns", 1)):
        if getattr(given, name) < least:
            parser.error(f"--{name} is {getattr(given, name)}; at least {least} is needed")
    if not usable():
        print(
            "left out: collectives, memory that ranks share needs Linux on x86-64", file=sys.stderr
        )
        return 0
    rows = measure(given.world, given.turns)
    show(rows, given.world)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
