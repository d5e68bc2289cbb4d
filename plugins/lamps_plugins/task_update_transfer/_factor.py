"""The mathematics of BTransfer: lift, transfer, return, for diagonal Gaussians.

A base is a prior ``N(theta_o, F_o^-1)``; fine-tuning multiplies it by a task factor and gives
``N(theta_f, (F_o + F_t)^-1)``. In natural parameters the factor is a difference that does not know
its prior, so it can be added to another one:

    d_eta = (F_o + F_t) theta_f - F_o theta_o,    d_p = F_t                                     (1)
    theta* = (F_n theta_n + d_eta) / (F_n + d_p)                                                (2)
           = theta_n + [F_t (theta_f - theta_n) + F_o (theta_f - theta_o)] / (F_n + F_t)        (3)

(3) is (2) without the cancellation of large numbers. Nothing here knows a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lamps.errors import ProblemError

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Knobs of the return step; the defaults are the paper's.

    Args:
        kappa: Factor on the task's Fisher.
        cap: Upper bound of ``F_o / (F_n + F_t)``; None for none.
        floor: Every Fisher is at least this.
        scale: Factor on ``theta_f - theta_o``.
    """

    kappa: float = 1.0
    cap: float | None = None
    floor: float = 1e-8
    scale: float = 1.0


def amplification(f_o: Tensor, f_n: Tensor, f_t: Tensor, how: Settings) -> Tensor:
    """``F_o / (F_n + kappa F_t)`` after flooring, before capping."""
    return f_o.clamp_min(how.floor) / _precision(f_n, f_t, how)


def _precision(f_n: Tensor, f_t: Tensor, how: Settings) -> Tensor:
    return f_n.clamp_min(how.floor) + how.kappa * f_t.clamp_min(how.floor)


def returned(
    theta_o: Tensor,
    theta_f: Tensor,
    theta_n: Tensor,
    f_o: Tensor,
    f_n: Tensor,
    f_t: Tensor,
    how: Settings,
) -> Tensor:
    """Equation (3) with floor, cap and scales. All of one shape; returns ``theta*``."""
    ratio = amplification(f_o, f_n, f_t, how)
    if how.cap is not None:
        ratio = ratio.clamp_max(how.cap)
    pull = how.kappa * f_t.clamp_min(how.floor) / _precision(f_n, f_t, how)
    return theta_n + pull * (theta_f - theta_n) + how.scale * ratio * (theta_f - theta_o)


@dataclass(frozen=True, slots=True)
class Factor:
    """A task factor in natural parameters, float64, to be kept beside a checkpoint.

    With it a later base needs neither the task's texts nor its labels.

    Args:
        shift: ``d_eta`` by name.
        precision: ``d_p`` by name, 0 or more everywhere.
    """

    shift: Tensors
    precision: Tensors

    @classmethod
    def lifted(cls, theta_o: Tensors, theta_f: Tensors, f_o: Tensors, f_t: Tensors) -> Factor:
        """Equation (1).

        Raises:
            ProblemError: A Fisher is missing, negative or not finite.
        """
        for what, fisher in (("of the base", f_o), ("of the task", f_t)):
            check_fisher(what, fisher, theta_f)
        shift = {
            k: (f_o[k].double() + f_t[k].double()) * theta_f[k].double()
            - f_o[k].double() * theta_o[k].double()
            for k in theta_f
        }
        return cls(shift, {k: f_t[k].double() for k in theta_f})

    def on(self, theta_n: Tensors, f_n: Tensors) -> dict[str, Tensor]:
        """Equation (2): the mean of the new posterior, float64.

        Raises:
            ProblemError: A tensor of the factor is missing in the new base, has another shape
                there, or no Fisher.
        """
        check_fisher("of the new base", f_n, self.shift)
        for name, value in self.shift.items():
            if name not in theta_n or theta_n[name].shape != value.shape:
                raise ProblemError(
                    f"{name!r} of the factor has shape {list(value.shape)}, which the new base "
                    "does not have; a factor needs a base of the same shapes"
                )
        return {
            k: (f_n[k].double() * theta_n[k].double() + self.shift[k])
            / (f_n[k].double() + self.precision[k])
            for k in self.shift
        }

    def save(self, path: Path) -> None:
        """Write it as safetensors: two float64 numbers a weight."""
        from safetensors.torch import save_file

        parts = {f"shift/{k}": v.contiguous() for k, v in self.shift.items()}
        parts |= {f"precision/{k}": v.contiguous() for k, v in self.precision.items()}
        save_file(parts, path, metadata={"format": "pt", "lamps": "task-factor-1"})

    @classmethod
    def load(cls, path: Path) -> Factor:
        """The inverse of `save`."""
        from safetensors.torch import load_file

        found = load_file(path)
        kinds: dict[str, dict[str, Tensor]] = {"shift": {}, "precision": {}}
        for key, value in found.items():
            kind, name = key.split("/", 1)
            kinds[kind][name] = value
        return cls(kinds["shift"], kinds["precision"])


def full_factor(
    mean: Tensor, precision: Tensor, prior_mean: Tensor, prior_precision: Tensor
) -> tuple[Tensor, Tensor]:
    """Equation (1) for Gaussians with whole precision matrices, where no approximation is left.

    Shape:
        mean, prior_mean: [d];  precision, prior_precision: [d, d];  returns [d] and [d, d].
    """
    return precision @ mean - prior_precision @ prior_mean, precision - prior_precision


def full_posterior(
    shift: Tensor, extra: Tensor, prior_mean: Tensor, prior_precision: Tensor
) -> tuple[Tensor, Tensor]:
    """Equation (2) for whole precision matrices: mean [d] and precision [d, d]."""
    import torch

    precision = prior_precision + extra
    return torch.linalg.solve(precision, prior_precision @ prior_mean + shift), precision


def check_fisher(what: str, fisher: Tensors, wanted: Tensors) -> None:
    """Refuse Fishers that cannot be precisions.

    Raises:
        ProblemError: One is missing, has another shape, or is negative or not finite.
    """
    import torch

    for name, weight in wanted.items():
        if name not in fisher:
            raise ProblemError(f"the Fisher {what} has no {name!r}, which is to be transferred")
        values = fisher[name]
        if values.shape != weight.shape:
            raise ProblemError(
                f"the Fisher {what} has shape {list(values.shape)} for {name!r}, expected "
                f"{list(weight.shape)}"
            )
        if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
            raise ProblemError(
                f"the Fisher {what} is negative or not finite in {name!r}; expected sums of "
                "squares"
            )
