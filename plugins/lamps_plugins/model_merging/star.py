"""STAR: cut the weak end of each expert's spectrum, keep its total size, average.

Paper: Lee et al., STAR: Spectral truncation and rescale for model merging, NAACL 2025, arXiv
2502.10339, section 3.

    r_k = smallest r with sum_{j <= r} s_kj >= eta sum_j s_kj                                   (1)
    D = scale * mean_k (sum_j s_kj / sum_{j <= r_k} s_kj) U_k diag(s_k1 .. s_kr) V_k^T          (2)

LoRA experts are cut on small cores. The merge at scale 1 is shared. Oracle: ``eta=1`` is the
average.
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
    """Hyperparameters of STAR."""

    scale: float = hp.real(
        1.0, low=0.1, high=4.0, log=True, doc="Factor on the mean update, unitless; eq. (2)."
    )
    eta: float = hp.real(
        0.4, low=0.1, high=1.0, doc="Share of the sum of singular values that is kept; eq. (1)."
    )


class Star(ScaledMerger[Params]):
    """The mean of updates with truncated, rescaled spectra."""

    spec = MethodSpec(
        family=FAMILY,
        summary="cuts the weak end of each expert's spectrum, rescales and averages",
        paper=Paper(
            title="STAR: Spectral truncation and rescale for model merging",
            arxiv="2502.10339",
            venue="NAACL 2025",
            section="3",
        ),
        tags=Tags(data_free=True),
    )

    def unit(self, problem: MergeProblem, group: Group) -> Tensor:
        """Equations (1) and (2)."""
        from lamps_plugins.model_merging._rules.star import star, star_factored

        low, eta = factors(problem, group), self.params.eta
        return (
            star(problem.deltas(group), eta) if low is None else star_factored(low, eta).merged()
        )
