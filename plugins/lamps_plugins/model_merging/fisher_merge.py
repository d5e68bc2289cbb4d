"""Fisher merging: average experts entry by entry, each weighed by how much it cares.

Paper: Matena and Raffel, Merging models with Fisher-weighted averaging, NeurIPS 2022, arXiv
2111.09832, section 2.

    D = sum_k F_k D_k / sum_k F_k,    F_k = mean_x (grad log p_k(y | x))^2,  y ~ p_k(. | x)     (1)

The diagonals come from unlabelled calibration texts; labels are sampled from the expert's own
predictions. They are shared by all candidates. Vectors are merged in the same way. Oracle: equal
Fishers give the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of Fisher merging."""

    texts: int = hp.integer(
        256, low=16, high=256, log=True, doc="Unlabelled texts of a task for (1), at most."
    )
    label_seed: int = hp.fixed(0, doc="Seed of the sampled labels.")


class FisherMerge(Merger[Params]):
    """Averages weighted by diagonal Fishers."""

    spec = MethodSpec(
        family=FAMILY,
        summary="averages weights entry by entry, weighed by the experts' Fisher information",
        paper=Paper(
            title="Merging models with Fisher-weighted averaging",
            arxiv="2111.09832",
            venue="NeurIPS 2022",
            section="2",
        ),
    )

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        import torch

        from lamps_plugins.model_merging._rules.weighted import fisher_merge
        from lamps_plugins.model_merging._unlabelled import diagonal_fishers

        p = self.params
        found = [diagonal_fishers(problem, t, p.texts, p.label_seed) for t in problem.tasks]
        fishers = np.stack([np.stack([f[name] for name in group.names]) for f in found])
        return fisher_merge(problem.deltas(group), torch.from_numpy(fishers))

    def _vector(self, problem: MergeProblem, group: Group) -> Tensor:
        return self.merge(problem, group, self._stream())
