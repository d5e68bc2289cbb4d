"""Iso-C: the summed update with a flat spectrum.

Paper: Marczak et al., No task left behind: Isotropic model merging with common and task-specific
subspaces, ICML 2025, arXiv 2502.04959, section 4.

    sum_k D_k = U S V^T,    D = scale * mean(S) U V^T                                           (1)

The mean goes over the nonzero singular values: of LoRA experts nearly all are zero, and with them
the update would be several times too small. LoRA experts are merged on their R x R cores. The
merge at scale 1 is shared. Oracle: all nonzero singular values of D are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY
from lamps_plugins.model_merging._shared import ScaledMerger, factors

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of Iso-C."""

    scale: float = hp.real(
        1.0, low=0.1, high=3.0, log=True, doc="Factor on the merged update, unitless; eq. (1)."
    )


class IsoC(ScaledMerger[Params]):
    """The sum of updates, all directions of one size."""

    spec = MethodSpec(
        family=FAMILY,
        summary="sums the updates and gives all their directions the same size",
        paper=Paper(
            title="No task left behind: Isotropic model merging with common and task-specific "
            "subspaces",
            arxiv="2502.04959",
            venue="ICML 2025",
            section="4",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def unit(self, problem: MergeProblem, group: Group) -> Tensor:
        """Equation (1)."""
        from lamps_plugins.model_merging._rules.iso import iso_c, iso_c_factored

        low = factors(problem, group)
        return iso_c(problem.deltas(group)) if low is None else iso_c_factored(low).merged()
