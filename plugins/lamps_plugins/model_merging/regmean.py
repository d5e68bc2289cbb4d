"""RegMean: the weights whose outputs are closest to each expert's on the expert's own inputs.

Paper: Jin et al., Dataless knowledge fusion by merging weights of language models, ICLR 2023,
arXiv 2212.09849, section 3.

    D = (sum_k D_k G_k)(sum_k G_k)^-1,    G_k = mean over tokens of x x^T                       (1)

with off-diagonal entries of G_k times ``off_diagonal``. The inputs are those of unlabelled
calibration texts, met by hooks on the expert's linear layers. Grams are shared by all candidates.
Oracle: equal Grams give the average.
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
    """Hyperparameters of RegMean."""

    off_diagonal: float = hp.real(
        0.9, low=0.0, high=1.0, doc="Factor on the off-diagonal entries of the Grams; eq. (1)."
    )
    texts: int = hp.integer(
        256, low=16, high=256, log=True, doc="Unlabelled texts of a task for (1), at most."
    )


class Regmean(Merger[Params]):
    """Least squares on the experts' own inputs."""

    spec = MethodSpec(
        family=FAMILY,
        summary="fits each layer to the experts' outputs on their own inputs by least squares",
        paper=Paper(
            title="Dataless knowledge fusion by merging weights of language models",
            arxiv="2212.09849",
            venue="ICLR 2023",
            section="3",
        ),
    )

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        import torch

        from lamps_plugins.model_merging._rules.weighted import regmean
        from lamps_plugins.model_merging._unlabelled import input_grams

        found = [input_grams(problem, task, self.params.texts) for task in problem.tasks]
        deltas = problem.deltas(group)
        merged = []
        for i, name in enumerate(group.names):  # one by one: Grams are larger than updates
            grams = torch.from_numpy(np.stack([f[name] for f in found]))
            one = regmean(deltas[:, i : i + 1], grams[:, None], self.params.off_diagonal)
            merged.append(one)
        return torch.cat(merged)
