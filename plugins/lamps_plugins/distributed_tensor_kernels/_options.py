"""Settings with which a user opens a problem of this family; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.method import ProblemOption

__all__ = ["OPTIONS", "parse_shape"]

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(name="ranks", kind="int", doc="Ranks that work together.  [default: 2]"),
    ProblemOption(
        name="shape",
        doc="Sizes that differ from the operator's defaults, such as m=1024,n=512,k=512.",
    ),
    ProblemOption(
        name="transport",
        choices=("shm", "gloo", "simlink", "loop", "stream"),
        doc="How chunks travel: mapped memory, torch.distributed, a simulated link, threads, or "
        "streams of one GPU.  [default: shm]",
    ),
    ProblemOption(
        name="link_alpha",
        kind="float",
        doc="Microseconds before the first byte on a simulated link.  [default: 50]",
    ),
    ProblemOption(name="link_beta", kind="float", doc="MB/s of a simulated link.  [default: 100]"),
    ProblemOption(
        name="wait_s",
        kind="float",
        doc="Seconds after which a rank gives up waiting for another one.  [default: 60]",
    ),
    ProblemOption(name="operand_seed", kind="int", doc="Seed of the operands.  [default: 0]"),
)


def parse_shape(text: str, defaults: Mapping[str, int], operator: str) -> dict[str, int]:
    """Sizes from ``NAME=N,...`` over an operator's defaults.

    Raises:
        ConfigError: The text is not of that form.
        ProblemError: The operator has no such size.

    Example:
        >>> parse_shape("m=64", {"m": 512, "n": 32}, "ag_gemm")
        {'m': 64, 'n': 32}
    """
    found: dict[str, Any] = dict(defaults)
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if not equals or not number.strip().lstrip("-").isdigit():
            raise ConfigError(f"--shape {text!r}: {part!r} is not of the form NAME=NUMBER")
        if name not in defaults:
            raise ProblemError(f"{operator} has no size {name!r}. {did_you_mean(name, defaults)}")
        found[name] = int(number)
    return found
