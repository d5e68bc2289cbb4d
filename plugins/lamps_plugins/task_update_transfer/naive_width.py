"""The update cut or padded with zeros to the target's width, as if unit i were unit i.

    dW_B[:m, :n] = alpha dW_A[:m, :n],    m, n the smaller of both widths                       (1)

What transport between widths has to beat; for equal widths it is the plain update of the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins.task_update_transfer import _carrying
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer
from lamps_plugins.task_update_transfer._transport import padded_identity

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the baseline."""

    alpha: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on the update; eq. (1).")


class NaiveWidth(Transfer[Params]):
    """Zero padding and truncation."""

    spec = MethodSpec(
        family=FAMILY,
        summary="cuts or zero-pads the update to the target's width",
        tags=Tags(data_free=True, baseline=True, cheap=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1)."""
        lineage = problem.lineage

        def map_of(module: str, side: str) -> Tensor:
            return padded_identity(*_carrying.widths(lineage, module, side))

        names = _carrying.chosen(problem, fidelity, "all", "carried")
        return _carrying.carry(lineage, names, map_of, self.params.alpha)
