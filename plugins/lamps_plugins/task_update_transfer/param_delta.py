"""Adding the update of the old base's fine-tuning to the new base as it is ("paramD").

Paper: Ilharco et al., Editing models with task arithmetic, ICLR 2023, arXiv 2212.04089, section 2;
across bases of one lineage it is the baseline that every other transfer must beat.

    theta* = theta_n + alpha (theta_f - theta_o)                                                (1)

Oracle: with theta_n = theta_o and alpha = 1 the fine-tuned model comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the plain update."""

    alpha: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on the update, unitless; eq. (1).")


class ParamDelta(Transfer[Params]):
    """Target base plus the source's update."""

    needs_same_width = True
    spec = MethodSpec(
        family=FAMILY,
        summary="adds the old base's fine-tuning update to the new base",
        paper=Paper(
            title="Editing models with task arithmetic",
            arxiv="2212.04089",
            venue="ICLR 2023",
            section="2",
        ),
        tags=Tags(data_free=True, baseline=True, cheap=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1)."""
        alpha = self.params.alpha
        return {n: alpha * problem.lineage.task_update(n) for n in problem.names(fidelity)}
