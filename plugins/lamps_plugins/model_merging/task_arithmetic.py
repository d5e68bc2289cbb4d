"""Task arithmetic: the scaled sum of the experts' updates.

Paper: Ilharco et al., Editing models with task arithmetic, ICLR 2023, arXiv 2212.04089, section 2.

    D = scale * sum_i D_i,      W = W_0 + D                                                     (1)

Biases and norms take ``scale * K`` times their mean, which is the same sum. Oracle: scale = 0
leaves the base, scale = 1 / K is the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger
from lamps_plugins.model_merging._rules.linear import task_arithmetic

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of task arithmetic."""

    scale: float = hp.real(
        0.3, low=0.02, high=1.5, log=True, doc="Factor on the sum of updates, unitless; eq. (1)."
    )


class TaskArithmetic(Merger[Params]):
    """Base plus the scaled sum of all updates."""

    spec = MethodSpec(
        family=FAMILY,
        summary="adds the scaled sum of the experts' updates to the base",
        paper=Paper(
            title="Editing models with task arithmetic",
            arxiv="2212.04089",
            venue="ICLR 2023",
            section="2",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        return task_arithmetic(problem.deltas(group), self.params.scale)

    def vector_scale(self, problem: MergeProblem) -> float:
        """The sum of vectors too."""
        return self.params.scale * problem.n_experts
