"""TIES: trim each update to its largest entries, elect a sign per entry, average what agrees.

Paper: Yadav et al., TIES-Merging: Resolving interference when merging models, NeurIPS 2023,
arXiv 2306.01708, section 3 and algorithm 1.

    keep the largest share of |tau_k|, over all merged matrices of expert k together            (1)
    gamma = sgn(sum_k tau_k),   D = scale * mean of the tau_k with sgn(tau_k) = gamma           (2)

Where kept entries cancel exactly the majority of all signs decides. The threshold of (1) is exact
and found one expert at a time, so a merge needs the memory of one expert's updates.
``trim="layer"`` trims each matrix by itself, a different rule that often goes under the same name.
Ours: vectors take ``scale`` times their mean. Oracle: experts that are equal give ``scale`` times
their trimmed update; ``keep=1`` gives them back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger, Update
from lamps_plugins.model_merging._shared import shared
from lamps_plugins.model_merging._views import update_of

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of TIES."""

    scale: float = hp.real(
        1.0, low=0.1, high=3.0, log=True, doc="Factor on the merged update, unitless; eq. (2)."
    )
    keep: float = hp.real(
        0.2, low=0.05, high=1.0, log=True, doc="Share of the entries that is kept; eq. (1)."
    )
    combine: str = hp.choice(
        "mean", ("mean", "sum"), doc="Mean or sum of what agrees; a sum wants a scale near 0.3."
    )
    trim: str = hp.choice(
        "model", ("model", "layer"), doc="Over what the share is taken: all matrices, or each."
    )


class Ties(Merger[Params]):
    """Trimmed updates whose signs agree."""

    spec = MethodSpec(
        family=FAMILY,
        summary="keeps the largest entries of each update and averages those of the elected sign",
        paper=Paper(
            title="TIES-Merging: Resolving interference when merging models",
            arxiv="2306.01708",
            venue="NeurIPS 2023",
            section="3",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def merge_all(
        self, problem: MergeProblem, groups: Sequence[Group], rng: Generator
    ) -> Iterator[Update]:
        """Equations (1) and (2)."""
        import torch

        p = self.params
        if p.trim == "layer":
            yield from super().merge_all(problem, groups, rng)
            return
        if not groups:
            return
        from lamps_kernels.ties import ties as merge_rows

        bounds, majority = _bounds(problem, p.keep)
        for group in groups:
            with torch.no_grad():
                rows = problem.deltas(group).flatten(1)
                found = merge_rows(rows, bounds, majority=majority, combine=p.combine)
                yield group, p.scale * found.values.view(len(group.names), *group.shape)

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Each matrix by itself."""
        from lamps_plugins.model_merging._rules.ties import ties_layer

        p = self.params
        return ties_layer(problem.deltas(group), p.keep, combine=p.combine, scale=p.scale)

    def vector_scale(self, problem: MergeProblem) -> float:
        """The mean of vectors, or their sum, times the scale."""
        return self.params.scale * (problem.n_experts if self.params.combine == "sum" else 1)


def _bounds(problem: MergeProblem, keep: float) -> tuple[Tensor, int]:
    """Threshold of each expert over the whole model [K], and the sign where entries cancel."""
    import torch
    from lamps_kernels.ties import ties as merge_rows

    from lamps_plugins.model_merging._rules.ties import kth_magnitude

    n = sum(len(group.names) * math.prod(group.shape) for group in problem.groups)
    count = max(1, round(keep * n))

    def make() -> dict[str, Tensor]:
        bounds = torch.stack(
            [
                kth_magnitude([update_of(problem.experts, k, g) for g in problem.groups], count)
                for k in range(problem.n_experts)
            ]
        )
        found = [merge_rows(problem.deltas(g).flatten(1), bounds) for g in problem.groups]
        balance = sum(f.balance for f in found) if any(f.undecided for f in found) else 0
        return {"bounds": bounds, "majority": torch.tensor(balance).sign()}

    made = shared(problem, "ties", [keep, [list(g.names) for g in problem.groups]], make)
    return made["bounds"], int(made["majority"])
