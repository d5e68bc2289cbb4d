"""OrthoMerge of OFT experts: merge rotations in their Lie algebra.

Paper: Yang et al., Orthogonal Model Merging, ICML 2026, arXiv 2602.05943, the rule for experts
that were fine-tuned by rotations.

    W_k = W_0 cayley(Q_k),  Q_k skew, block-diagonal                                            (1)
    Q = eta * (c / K) sum_k Q_k,    c = sum_k ||Q_k|| / ||sum_k Q_k||,    W = W_0 cayley(Q)     (2)

so the merged rotation points where the sum does and is as strong as an expert on average. What
experts store besides rotations is averaged. Ours: ``eta``; c is held to 10 K. Oracles: singular
values and angles between the rows of W are those of W_0; eta = 0 is the base.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from numpy.random import Generator

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._experts import OftExpert
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of OrthoMerge on OFT experts."""

    eta: float = hp.real(1.0, low=0.0, high=1.5, doc="Strength of the merged rotation; eq. (2).")
    length: str = hp.choice(
        "mean", ("mean", "median", "max"), doc="Which of the experts' norms the result has."
    )
    directions: str = hp.choice(
        "theta", ("theta", "uniform"), doc="Whether directions weigh by their norm or alike."
    )


class OrthomergeOft(Merger[Params]):
    """The mean rotation, at the experts' strength."""

    spec = MethodSpec(
        family=FAMILY,
        summary="merges the rotations of OFT experts in their Lie algebra",
        paper=Paper(
            title="Orthogonal Model Merging",
            arxiv="2602.05943",
            venue="ICML 2026",
        ),
        tags=Tags(data_free=True),
    )
    needs: ClassVar[str | None] = "oft"

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equations (1) and (2)."""
        import torch

        rotated = [i for i, name in enumerate(group.names) if self._rotated(problem, name)]
        result = torch.empty(len(group.names), *group.shape)
        plain = sorted(set(range(len(group.names))) - set(rotated))
        if plain:
            some = dataclasses.replace(group, names=tuple(group.names[i] for i in plain))
            result[plain] = problem.deltas(some).mean(0)
        if rotated:
            some = dataclasses.replace(group, names=tuple(group.names[i] for i in rotated))
            result[rotated] = self._turned(problem, some)
        return result

    def _rotated(self, problem: MergeProblem, name: str) -> bool:
        """Whether experts rotate a weight; some may leave it alone, none may store it whole."""
        experts = [e for e in problem.experts.experts if isinstance(e, OftExpert)]
        whole = [e.name for e in experts if name in e.tensors]
        if whole and len(whole) < len(experts) and any(name in e.adapted for e in experts):
            raise ProblemError(
                f"expert {whole[0]!r} stores {name!r} whole, others rotate it; {self.name()} "
                "needs the same layers in all"
            )
        return any(name in e.adapted for e in experts)

    def _turned(self, problem: MergeProblem, group: Group) -> Tensor:
        from lamps_plugins.model_merging._rules.orthomerge import (
            magnitude_correction,
            merge_skew,
            oft_update,
        )
        from lamps_plugins.model_merging._rules.rotation import angles

        p = self.params
        skew = problem.skew(group)
        merged = merge_skew(skew, length=p.length, directions=p.directions, strength=p.eta)
        self.note("magnitude_correction", magnitude_correction(skew))
        self.note("angle", angles(merged))
        return oft_update(problem.base_weights(group), merged)
