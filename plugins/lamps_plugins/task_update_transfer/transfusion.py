"""TransFusion: the old update, its hidden units reordered to match the new base.

Paper: Rinaldi et al., Update Your Transformer to the Latest Release: Re-Basin of Task Vectors,
2025, arXiv 2505.22697. Feed-forward units, attention heads and units inside heads of the old base
are matched to those of the new one by their weights (see `_rebasin`), and

    theta* = theta_n + alpha P(theta_f - theta_o)                                               (1)

with ``P`` the permutation. Oracle: a new base that is the old one with hidden units permuted takes
over the fine-tuned model exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.task_update_transfer import _rebasin
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of TransFusion."""

    alpha: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on the update; eq. (1).")


class TransFusion(Transfer[Params]):
    """Permutation of hidden units, then the plain update."""

    needs_same_width = True
    spec = MethodSpec(
        family=FAMILY,
        summary="reorders hidden units of the update to match the new base, then adds it",
        paper=Paper(
            title="Update Your Transformer to the Latest Release: Re-Basin of Task Vectors",
            arxiv="2505.22697",
        ),
        tags=Tags(data_free=True, baseline=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1)."""
        lineage = problem.lineage
        n_heads = int(lineage.target.config["num_attention_heads"])
        found = _rebasin.orders(lineage.weights("source"), lineage.weights("target"), n_heads)
        moved = [(order != order.sort().values).float().mean() for _, order in found.values()]
        self.found_ = {"reordered_share": float(sum(moved)) / len(moved)}
        return {
            n: self.params.alpha * _rebasin.reordered(n, lineage.task_update(n), found)
            for n in problem.names(fidelity)
        }
