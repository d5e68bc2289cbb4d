"""KnOTS: write all updates in one basis of output directions, and merge what is left of each.

Paper: Stoica et al., Model merging with SVD to tie the KnOTS, ICLR 2025, arXiv 2410.19735,
section 4.

    [D_1 .. D_K] = U S [V_1^T .. V_K^T],    D = scale * U S rule(V_1^T, .., V_K^T)              (1)

LoRA experts are merged from their factors, exactly and without a dense update; others through the
wide matrix of their dense updates, as published. Ours: TIES trims the blocks of each layer by
itself. The merge at scale 1 is shared. Oracle: with the rule ``average`` it is the average.
"""

from __future__ import annotations

import functools
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
    """Hyperparameters of KnOTS."""

    scale: float = hp.real(
        1.0, low=0.1, high=4.0, log=True, doc="Factor on the merged update, unitless; eq. (1)."
    )
    rule: str = hp.choice("ties", ("ties", "average"), doc="What merges the blocks; eq. (1).")
    keep: float = hp.real(
        0.2, low=0.05, high=1.0, log=True, doc="Share of entries that TIES keeps; else unused."
    )


class Knots(ScaledMerger[Params]):
    """Updates in a common basis of outputs."""

    spec = MethodSpec(
        family=FAMILY,
        summary="aligns the updates in one basis of output directions and merges them there",
        paper=Paper(
            title="Model merging with SVD to tie the KnOTS",
            arxiv="2410.19735",
            venue="ICLR 2025",
            section="4",
        ),
        tags=Tags(data_free=True),
    )

    def unit(self, problem: MergeProblem, group: Group) -> Tensor:
        """Equation (1)."""
        from lamps_plugins.model_merging._rules.knots import knots, knots_dense
        from lamps_plugins.model_merging._rules.linear import average
        from lamps_plugins.model_merging._rules.ties import ties_layer

        ties = functools.partial(ties_layer, keep=self.params.keep)
        rule = ties if self.params.rule == "ties" else average
        low = factors(problem, group)
        return (
            knots_dense(problem.deltas(group), rule) if low is None else knots(low, rule).merged()
        )
