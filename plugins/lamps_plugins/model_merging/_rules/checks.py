"""Refusals shared by the merging rules: shapes, experts, finite numbers, ranges of settings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lamps.errors import ConfigError, ProblemError


def working(x: Tensor, name: str) -> Tensor:
    """The tensor in the precision that rules compute in, finite.

    Args:
        x: Any floating point tensor; half precision becomes float32, float64 stays.
        name: What it is, for the message.

    Raises:
        ProblemError: Integer or quantized numbers, or NaN or infinity among them.
    """
    if not x.is_floating_point():
        raise ProblemError(f"{name} hold {x.dtype} numbers; merging needs floating point weights")
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    # Of the extremes and not of each number: no second copy of the updates.
    if x.numel() and not all(math.isfinite(float(v)) for v in torch.aminmax(x.detach())):
        raise ProblemError(f"{name} contain NaN or infinity; such an expert cannot be merged")
    return x


def checked(deltas: Tensor, *, least: int = 1, matrices: bool = False) -> Tensor:
    """Dense updates, ready to compute with.

    Args:
        deltas: Updates of K experts. Shape: [K, L, m, n], or [K, L, d] unless ``matrices``.
        least: Fewest experts that the rule is defined for.
        matrices: Whether the rule is about matrices only.

    Raises:
        ProblemError: Wrong number of axes, too few experts, an empty axis, or numbers that are
            not finite.
    """
    axes = (4,) if matrices else (3, 4)
    if deltas.ndim not in axes:
        wanted = "[K, L, m, n]" if matrices else "[K, L, m, n] or [K, L, d]"
        raise ProblemError(f"updates have shape {list(deltas.shape)}; expected {wanted}")
    if 0 in deltas.shape[1:]:
        raise ProblemError(f"updates have shape {list(deltas.shape)}; no axis may be empty")
    if deltas.shape[0] < least:
        raise ProblemError(f"{deltas.shape[0]} expert(s) given; this rule needs at least {least}")
    return working(deltas, "updates")


def positive(value: float, name: str, *, most: float = math.inf) -> float:
    """A setting that must lie in ``(0, most]``.

    Raises:
        ConfigError: It does not.
    """
    if not 0 < value <= most or not math.isfinite(value):
        bound = "" if math.isinf(most) else f" and at most {most:g}"
        raise ConfigError(f"{name} is {value}; it must be positive{bound}")
    return value


def share(value: float, name: str) -> float:
    """A setting that must lie in ``[0, 1]``.

    Raises:
        ConfigError: It does not.
    """
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} is {value}; it must lie between 0 and 1")
    return value


def choice(value: str, name: str, known: tuple[str, ...]) -> str:
    """A setting that must be one of a few words.

    Raises:
        ConfigError: It is another.
    """
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; known: {', '.join(known)}")
    return value


def weights_of(weights: Tensor | list[float] | None, k: int, like: Tensor) -> Tensor:
    """One finite weight per expert, 1 each if None. Shape: [K].

    Raises:
        ConfigError: Another number of weights, or weights that are not finite.
    """
    if weights is None:
        return like.new_ones(k)
    found = torch.as_tensor(weights, dtype=like.dtype, device=like.device)
    if found.shape != (k,) or not bool(found.isfinite().all()):
        raise ConfigError(f"weights are {found.tolist()}; expected {k} finite numbers, one each")
    return found
