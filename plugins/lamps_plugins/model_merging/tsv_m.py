"""TSV-Merge: the strongest singular triplets of each expert, made orthogonal to one another.

Paper: Gargiulo et al., Task singular vectors: Reducing task interference in model merging, CVPR
2025, arXiv 2412.00081, section 4.

    D_k ~ U_k S_k V_k^T,  floor(min(m, n) / K) triplets each                                    (1)
    D = scale * polar([U_1 .. U_K]) blockdiag(S_1 .. S_K) polar([V_1 .. V_K])^T                 (2)

LoRA experts are merged on their R x R cores, with the same result. The merge at scale 1 is shared,
so a sweep over the scale costs one decomposition. Oracle: experts in orthogonal directions, of
ranks within the share of (1), are summed.
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
    """Hyperparameters of TSV-Merge."""

    scale: float = hp.real(
        1.0, low=0.1, high=3.0, log=True, doc="Factor on the merged update, unitless; eq. (2)."
    )


class TsvM(ScaledMerger[Params]):
    """Task singular vectors, decorrelated."""

    spec = MethodSpec(
        family=FAMILY,
        summary="keeps the strongest singular directions of each expert and decorrelates them",
        paper=Paper(
            title="Task singular vectors: Reducing task interference in model merging",
            arxiv="2412.00081",
            venue="CVPR 2025",
            section="4",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def unit(self, problem: MergeProblem, group: Group) -> Tensor:
        """Equations (1) and (2)."""
        from lamps_plugins.model_merging._rules.tsv import tsv_merge, tsv_merge_factored

        low = factors(problem, group)
        return (
            tsv_merge(problem.deltas(group)) if low is None else tsv_merge_factored(low).merged()
        )
