"""Ways in which chunks travel between ranks, one file each; `open_transport` picks one by name."""

from __future__ import annotations

from pathlib import Path

from lamps.errors import ConfigError, did_you_mean
from lamps_plugins.distributed_tensor_kernels._transports._base import Channel, Link, Transport

__all__ = ["MEET_S", "TRANSPORTS", "Channel", "Link", "Transport", "open_transport"]

TRANSPORTS = ("shm", "gloo", "simlink", "loop", "stream")
"""Names that a user may give; ``loop`` runs ranks as threads and ``stream`` on one GPU."""

MEET_S = 120.0
"""Seconds within which all processes must have started: torch loads slowly on a busy machine."""


def open_transport(
    name: str, rank: int, world: int, folder: Path, *, wait_s: float, link: Link
) -> Transport:
    """A rank's endpoint of a transport between processes of one machine.

    Args:
        name: ``shm`` (falls back to ``gloo`` where it cannot work), ``gloo`` or ``simlink``.
        rank: This rank.
        world: Number of ranks.
        folder: A folder that all ranks share and that is deleted with them.
        wait_s: Seconds after which a wait is given up.
        link: What ``simlink`` simulates.

    Raises:
        ConfigError: The name is unknown, or the transport is not one between processes.
    """
    from lamps_plugins.distributed_tensor_kernels._transports.gloo import GlooTransport
    from lamps_plugins.distributed_tensor_kernels._transports.shm import ShmTransport, usable
    from lamps_plugins.distributed_tensor_kernels._transports.simlink import SimLink

    if name == "gloo" or (name == "shm" and not usable()):
        meeting = f"file://{folder / 'rendezvous'}"
        return GlooTransport(rank, world, meeting, wait_s=wait_s, meet_s=MEET_S)
    if name == "shm":
        return ShmTransport(rank, world, folder, wait_s=wait_s, meet_s=MEET_S)
    if name == "simlink":
        inner = open_transport("shm", rank, world, folder, wait_s=wait_s, link=link)
        return SimLink(inner, link)
    if name in TRANSPORTS:
        raise ConfigError(f"transport {name!r} keeps its ranks in one process; none was started")
    raise ConfigError(f"transport {name!r} is unknown. {did_you_mean(name, TRANSPORTS)}")
