"""Iso-CTS: common directions of the sum, and own directions of each expert, all of one size.

Paper: Marczak et al., No task left behind: Isotropic model merging with common and task-specific
subspaces, ICML 2025, arXiv 2502.04959, section 5.

    a share f of the directions from sum_k D_k, the rest evenly from (I - U_c U_c^T) D_k,
    both bases made orthogonal, all sizes replaced by their mean, times scale                   (1)

Of LoRA experts the share is one of their joint rank R, not of min(m, n), most of which they do not
have. The merge at scale 1 is shared. Oracle: ``common=1`` is Iso-C.
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
    """Hyperparameters of Iso-CTS."""

    scale: float = hp.real(
        1.0, low=0.1, high=3.0, log=True, doc="Factor on the merged update, unitless; eq. (1)."
    )
    common: float = hp.real(
        0.8, low=0.0, high=1.0, doc="Share f of the directions taken from the sum; eq. (1)."
    )


class IsoCts(ScaledMerger[Params]):
    """Common and task-specific directions of one size."""

    spec = MethodSpec(
        family=FAMILY,
        summary="joins common and task-specific directions and gives all the same size",
        paper=Paper(
            title="No task left behind: Isotropic model merging with common and task-specific "
            "subspaces",
            arxiv="2502.04959",
            venue="ICML 2025",
            section="5",
        ),
        tags=Tags(data_free=True),
    )

    def unit(self, problem: MergeProblem, group: Group) -> Tensor:
        """Equation (1)."""
        from lamps_plugins.model_merging._rules.iso import iso_cts, iso_cts_factored

        low, common = factors(problem, group), self.params.common
        if low is None:
            return iso_cts(problem.deltas(group), common)
        return iso_cts_factored(low, common).merged()
