"""CircuMerge: merge LoRA experts inside small sketches made by one shared circulant transform.

Paper: Sketch-Based Low-Rank Model Merging with Shared Circulant Transforms, ICML 2026; the
abstract fixes the steps, the formulas are ours:

    B~ = S_m [B_1 .. B_K],  A~ = [A_1; ..; A_K] S_n^T,  S sampled rows of a circulant rotation  (1)
    M_k = B~_k A~_k,    M = rule(M_1 .. M_K)                                                    (2)
    D = scale * [B_1 .. B_K] B~^+ M A~^+ [A_1; ..; A_K]                                         (3)

No dense update is formed before the result. Ours as well: sketches in an orthonormal basis of
their own (``orthonormal``), faster and better conditioned; and the default ``rank="joint"``: the
weights are what is exported, so the cut to the experts' rank, the card of an adapter that stands
alone, would only lose. Oracles: a linear rule comes out exactly; one expert comes back.
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
from lamps_plugins.model_merging.lora_svd import RANKS, rank_out

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem
    from lamps_plugins.model_merging._rules.lowrank import LowRank

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of CircuMerge."""

    scale: float = hp.real(
        1.0, low=0.1, high=4.0, log=True, doc="Factor on the merged update, unitless; eq. (3)."
    )
    rule: str = hp.choice("ties", RULES, doc="What merges the sketches; eq. (2).")
    keep: float = hp.real(
        0.2, low=0.05, high=1.0, log=True, doc="Share of entries that TIES keeps; else unused."
    )
    drop: float = hp.real(
        0.8, low=0.0, high=0.95, doc="Probability that DARE drops an entry; else unused."
    )
    alpha: float = hp.real(
        1.0, low=0.1, high=1.0, log=True, doc="Floor of calibration by SVC; else unused."
    )
    oversampling: float | str = hp.choice(
        2.0,
        (0.5, 1.25, 2.0, 4.0, AUTO),
        doc="Length of a sketch in joint ranks R; below 1 it loses; auto keeps 95 % of the "
        "effective rank.",
    )
    rank: str = hp.choice("joint", RANKS, doc="Rank of the result: the experts', twice, or R.")
    sampling: str = hp.choice(
        "uniform", ("uniform", "importance"), doc="How entries are sampled; eq. (1)."
    )
    sides: str = hp.choice("both", ("both", "input"), doc="Which sides are sketched; eq. (1).")
    orthonormal: bool = hp.choice(
        False, (False, True), doc="Whether sketches are taken in an orthonormal basis."
    )
    transform: str = hp.fixed("circulant", doc="circulant, or gaussian as a control; eq. (1).")
    transform_seed: int = hp.fixed(0, doc="Seed of transform and sample, shared by all layers.")


class Circumerge(Merger[Params]):
    """LoRA experts merged in shared sketches."""

    spec = MethodSpec(
        family=FAMILY,
        summary="merges LoRA experts in small sketches made by a shared circulant transform",
        paper=Paper(
            title="Sketch-Based Low-Rank Model Merging with Shared Circulant Transforms",
            venue="ICML 2026",
        ),
        tags=Tags(data_free=True),
    )
    needs: ClassVar[str | None] = "lora"

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equations (1) to (3)."""
        from lamps_plugins.model_merging._rules import circumerge
        from lamps_plugins.model_merging._rules.dare import mask_seeds
        from lamps_plugins.model_merging._rules.knots import applied

        p = self.params
        low = problem.low_rank(group)
        seeds = mask_seeds(int(rng.integers(2**63)), problem.tasks, group.names)
        rule = rule_of(p.rule, keep=p.keep, drop=p.drop, alpha=p.alpha, seeds=seeds)
        sketched = circumerge.sketch(
            low, oversampling=self._oversampling(low), seed=p.transform_seed, sides=p.sides,
            sampling=p.sampling, transform=p.transform, orthonormal=p.orthonormal,
        )  # fmt: skip
        self.note("rank_ratio", circumerge.rank_ratio(sketched))
        self.note("condition", circumerge.condition(sketched.b))
        rank = None if p.rank == "joint" else rank_out(low, p.rank)
        return p.scale * sketched.rebuild(applied(rule, sketched.updates), rank).merged()

    def _oversampling(self, low: LowRank) -> float:
        from lamps_plugins.model_merging._rules.circumerge import choose_oversampling

        asked = self.params.oversampling
        if asked == AUTO:
            return choose_oversampling(low, seed=self.params.transform_seed)
        return float(asked)

    def vector_scale(self, problem: MergeProblem) -> float:
        """The factor on vectors too."""
        return self.params.scale
