"""The sum of LoRA experts, cut to an adapter of a given rank.

Paper: Hu et al., LoRA: Low-rank adaptation of large language models, ICLR 2022, arXiv 2106.09685,
section 4.1, for the update ``s B A``; `peft` merges adapters like this under the name ``svd``.

    scale * sum_k s_k B_k A_k ~ U_r S_r V_r^T,    B = U_r sqrt(S_r),  A = sqrt(S_r) V_r^T       (1)

The decomposition runs on R x R cores; no dense update is formed before the result. Oracle: at the
joint rank R it is task arithmetic, below it the best approximation of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem
    from lamps_plugins.model_merging._rules.lowrank import LowRank

RANKS = ("expert", "twice", "joint")
"""Ranks of a merged adapter: the largest of the experts', twice that, or the sum of all."""


def rank_out(low: LowRank, rank: str) -> int:
    """The number behind a word of `RANKS`, at most the joint rank.

    Example:
        >>> import torch
        >>> from lamps_plugins.model_merging._rules.lowrank import LowRank
        >>> b, a = torch.ones(1, 4, 2), torch.ones(1, 2, 4)
        >>> [rank_out(LowRank((b, b, b), (a, a, a)), word) for word in RANKS]
        [2, 4, 6]
    """
    most = max(low.ranks)
    return min({"expert": most, "twice": 2 * most, "joint": low.rank}[rank], low.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of a truncated sum."""

    scale: float = hp.real(
        0.3, low=0.02, high=1.5, log=True, doc="Weight of each adapter, unitless; eq. (1)."
    )
    rank: str = hp.choice("expert", RANKS, doc="Rank r of the result: the experts', twice, or R.")


class LoraSvd(Merger[Params]):
    """One adapter of small rank for all."""

    spec = MethodSpec(
        family=FAMILY,
        summary="sums LoRA experts and cuts the sum to an adapter of small rank",
        paper=Paper(
            title="LoRA: Low-rank adaptation of large language models",
            arxiv="2106.09685",
            venue="ICLR 2022",
            section="4.1",
        ),
        tags=Tags(data_free=True),
    )
    needs: ClassVar[str | None] = "lora"

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        from lamps_plugins.model_merging._rules.lora import lora_svd

        low = problem.low_rank(group)
        weights = [self.params.scale] * problem.n_experts
        return lora_svd(low, rank_out(low, self.params.rank), weights).merged()

    def vector_scale(self, problem: MergeProblem) -> float:
        """The sum of vectors too."""
        return self.params.scale * problem.n_experts
