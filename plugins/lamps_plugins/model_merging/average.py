"""Weight averaging: the merged model is the mean of the experts.

Paper: Wortsman et al., Model soups: averaging weights of multiple fine-tuned models improves
accuracy without increasing inference time, ICML 2022, arXiv 2203.05482, section 2, uniform soup.

    D = (1/K) sum_i D_i,      W = W_0 + D                                                       (1)

Oracle: K identical experts give back the expert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger
from lamps_plugins.model_merging._rules.linear import average

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """There is nothing to choose."""


class Average(Merger[Params]):
    """The mean of the experts' weights."""

    spec = MethodSpec(
        family=FAMILY,
        summary="averages the experts' weights",
        paper=Paper(
            title="Model soups: averaging weights of multiple fine-tuned models improves accuracy "
            "without increasing inference time",
            arxiv="2203.05482",
            venue="ICML 2022",
            section="2",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        return average(problem.deltas(group))
