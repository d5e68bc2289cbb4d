"""Core Space: merge small matrices in bases that hold the updates of all LoRA experts.

Paper: Panariello et al., Accurate and efficient low-rank model merging in core space, NeurIPS
2025, arXiv 2509.17786, section 3.

    M_k = (U^T B_k)(A_k V)  [R, R],    D = scale * U rule(M_1 .. M_K) V^T                       (1)

U spans the columns of [B_1 .. B_K], V the rows of [A_1; ..; A_K]. Ours: orthonormal bases by QR,
which span the same for a fraction of the time (``bases="svd"`` is the published form). Rules that
work entry by entry depend on the basis. Oracle: with the rule ``average`` it is the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger
from lamps_plugins.model_merging._rulebook import RULES, rule_of

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of merging in core space."""

    scale: float = hp.real(
        1.0, low=0.1, high=4.0, log=True, doc="Factor on the merged update, unitless; eq. (1)."
    )
    rule: str = hp.choice("ties", RULES, doc="What merges the cores; eq. (1).")
    bases: str = hp.choice("qr", ("qr", "svd"), doc="How U and V are found.")
    keep: float = hp.real(
        0.2, low=0.05, high=1.0, log=True, doc="Share of entries that TIES keeps; else unused."
    )
    drop: float = hp.real(
        0.8, low=0.0, high=0.95, doc="Probability that DARE drops an entry; else unused."
    )
    alpha: float = hp.real(
        1.0, low=0.1, high=1.0, log=True, doc="Floor of calibration by SVC; else unused."
    )


class CoreSpace(Merger[Params]):
    """LoRA experts merged as R x R matrices."""

    spec = MethodSpec(
        family=FAMILY,
        summary="merges LoRA experts as small matrices in bases that all of them share",
        paper=Paper(
            title="Accurate and efficient low-rank model merging in core space",
            arxiv="2509.17786",
            venue="NeurIPS 2025",
            section="3",
        ),
        tags=Tags(data_free=True),
    )
    needs: ClassVar[str | None] = "lora"

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        from lamps_plugins.model_merging._rules.core_space import core_space
        from lamps_plugins.model_merging._rules.dare import mask_seeds

        p = self.params
        seeds = mask_seeds(int(rng.integers(2**63)), problem.tasks, group.names)
        rule = rule_of(p.rule, keep=p.keep, drop=p.drop, alpha=p.alpha, seeds=seeds)
        return p.scale * core_space(problem.low_rank(group), rule, bases=p.bases).merged()

    def vector_scale(self, problem: MergeProblem) -> float:
        """The factor on vectors too."""
        return self.params.scale
