"""An update carried by random partial isometries: the control that every transport must beat.

Each module gets maps of the same kind as Theseus has, of which nothing fits:

    dW_B = alpha R_out^T dW_A R_in,    R drawn evenly among partial isometries                  (1)

so norm and rank of the update are kept and only its meaning is lost. If this does as well, it was
the head or the search over alpha that helped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags, substream
from lamps_plugins.task_update_transfer import _carrying
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer
from lamps_plugins.task_update_transfer._transport import random_isometry

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the control."""

    alpha: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on the update; eq. (1).")


class RandomIsometry(Transfer[Params]):
    """Theseus with maps that mean nothing."""

    spec = MethodSpec(
        family=FAMILY,
        summary="carries the update by random maps (control)",
        tags=Tags(data_free=True, baseline=True, cheap=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1); a module's maps depend on its place alone, not on the landmark."""
        lineage = problem.lineage
        order = {m: i for i, m in enumerate(map(_carrying.module_of, lineage.source.encoder))}

        def map_of(module: str, side: str) -> Tensor:
            stream = substream(rng, order[module], side == "out")
            return random_isometry(*_carrying.widths(lineage, module, side), stream)

        names = _carrying.chosen(problem, fidelity, "all", "carried")
        made = _carrying.remembered(map_of)
        return _carrying.carry(lineage, names, made, self.params.alpha)
