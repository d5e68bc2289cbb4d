"""Fisher-weighted average of the fine-tuned source and the new base.

Paper: Matena and Raffel, Merging Models with Fisher-Weighted Averaging, NeurIPS 2022, arXiv
2111.09832, section 3. With the task's Fisher of the fine-tuned model and the generic one of the
new base, each divided by its mean so that their units agree,

    theta* = (w F_t theta_f + (1 - w) F_n theta_n) / (w F_t + (1 - w) F_n)                      (1)

Oracles: w = 0 leaves the base, w = 1 gives the fine-tuned model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the average."""

    weight: float = hp.real(
        0.5, low=0.0, high=1.0, doc="Share w of the fine-tuned model; eq. (1)."
    )
    texts: int = hp.fixed(512, doc="Texts of each Fisher, at most all there are.")
    batch: int = hp.choice(16, (1, 4, 16), doc="Texts whose gradients are summed, then squared.")


class FisherAverage(Transfer[Params]):
    """Weighted by diagonal Fishers."""

    needs_same_width = True
    spec = MethodSpec(
        family=FAMILY,
        summary="averages fine-tuned source and new base by their Fishers",
        paper=Paper(
            title="Merging Models with Fisher-Weighted Averaging",
            arxiv="2111.09832",
            venue="NeurIPS 2022",
            section="3",
        ),
        tags=Tags(baseline=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1)."""
        p, names = self.params, problem.all_names(fidelity)
        f_n, n_n = problem.readings.generic_fisher("target", names, p.texts, fidelity, p.batch)
        f_t, n_t = problem.readings.task_fisher(names, p.texts, fidelity, p.batch, sampled=False)
        self.texts_, self.labels_ = n_n + n_t, n_t
        tuned, target = problem.lineage.weights("tuned"), problem.lineage.weights("target")
        scale_t, scale_n = mean_of(f_t), mean_of(f_n)
        return {
            n: share(f_t[n] / scale_t, f_n[n] / scale_n, p.weight) * (tuned[n] - target[n])
            for n in names
        }


def share(f_t: Tensor, f_n: Tensor, weight: float) -> Tensor:
    """``w F_t / (w F_t + (1 - w) F_n)``; ``w`` where both are zero."""
    top = weight * f_t
    whole = top + (1.0 - weight) * f_n
    return (top / whole).where(whole > 0, top.new_tensor(weight))


def mean_of(fisher: Mapping[str, Tensor]) -> float:
    """Mean over all weights, never zero."""
    total = sum(float(v.double().sum()) for v in fisher.values())
    return max(total / sum(v.numel() for v in fisher.values()), 1e-30)
