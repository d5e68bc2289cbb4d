"""BTransfer: a fine-tuning run as a Bayesian factor, multiplied onto another base.

Paper: Guo, Wang and Zheng, Fine-Tune Once, Reuse Across Models: Bayesian Task-Update Factors and
Approximations, ICML 2026; the diagonal Gaussian family. With Fishers ``F_o`` and ``F_n`` of the
old and the new base on the same generic texts, and ``F_t`` of the fine-tuned model on its task,

    theta* = theta_n + [kappa F_t (theta_f - theta_n) + F_o (theta_f - theta_o)]
                       / (F_n + kappa F_t)                                                      (1)

Where a weight matters to the task, the fine-tuned value wins; elsewhere the update is added,
scaled by how firmly the old base held it against the new one. Ours, not the paper's: ``kappa``
(words and texts are counted in different units), ``cap`` on F_o / (F_n + kappa F_t), ``scale``;
rows of embeddings that no text touches take the plain update. Oracles in `_factor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins.task_update_transfer._factor import (
    Factor,
    Settings,
    amplification,
    check_fisher,
    returned,
)
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of BTransfer."""

    kappa: float = hp.real(1.0, low=1e-2, high=1e2, log=True, doc="Factor on F_t; eq. (1).")
    cap: float = hp.choice(
        10.0, (2.0, 10.0, 0.0), doc="Most of F_o / (F_n + kappa F_t); 0 is no bound (paper)."
    )
    scale: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on theta_f - theta_o; eq. (1).")
    floor: float = hp.fixed(1e-8, doc="Least value of a Fisher.")
    texts: int = hp.fixed(512, doc="Texts of each of the three Fishers, at most all there are.")
    batch: int = hp.choice(16, (1, 4, 16), doc="Texts whose gradients are summed, then squared.")
    labels: str = hp.choice(
        "observed", ("observed", "sampled"), doc="Task Fisher of true labels, or the model's own."
    )


class BTransfer(Transfer[Params]):
    """Lift, transfer, return with diagonal Fishers."""

    needs_same_width = True
    spec = MethodSpec(
        family=FAMILY,
        summary="multiplies the task's Gaussian factor onto the new base",
        paper=Paper(
            title="Fine-Tune Once, Reuse Across Models: Bayesian Task-Update Factors and "
            "Approximations",
            venue="ICML 2026",
        ),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1); the first landmark adds the plain update below the upper blocks."""
        names = problem.all_names(fidelity)
        fishers = self.fishers(problem, names, fidelity)
        how = Settings(
            kappa=self.params.kappa, cap=self.params.cap or None, floor=self.params.floor,
            scale=self.params.scale,
        )  # fmt: skip
        lineage = problem.lineage
        old, tuned, new = (lineage.weights(w) for w in ("source", "tuned", "target"))
        result: dict[str, Tensor] = {}
        for name in problem.all_names(1.0):
            plain = how.scale * (tuned[name] - old[name])
            if name not in names:
                result[name] = plain
                continue
            f_o, f_n, f_t = (f[name] for f in fishers)
            moved = returned(old[name], tuned[name], new[name], f_o, f_n, f_t, how) - new[name]
            result[name] = where_seen(name, moved, plain, (f_o, f_n, f_t), problem)
        self.found_ = _amplified(names, fishers, how)
        return result

    def fishers(
        self, problem: TransferProblem, names: Sequence[str], fidelity: float
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        """``F_o``, ``F_n`` and ``F_t`` of some tensors, and what they cost in ``texts_``."""
        p, readings = self.params, problem.readings
        f_o, n_o = readings.generic_fisher("source", names, p.texts, fidelity, p.batch)
        f_n, n_n = readings.generic_fisher("target", names, p.texts, fidelity, p.batch)
        f_t, n_t = readings.task_fisher(
            names, p.texts, fidelity, p.batch, sampled=p.labels == "sampled"
        )
        self.texts_ = n_o + n_n + n_t
        self.labels_ = n_t if p.labels == "observed" else 0
        for what, fisher in (("of the old base", f_o), ("of the new base", f_n), ("task", f_t)):
            check_fisher(what, fisher, {n: problem.lineage.weights("target")[n] for n in names})
        return f_o, f_n, f_t

    def factor(self, problem: TransferProblem) -> Factor:
        """The task factor of a full run, to be kept for later bases; see `Factor.save`."""
        names = problem.lineage.moved
        f_o, _, f_t = self.fishers(problem, names, 1.0)
        lineage = problem.lineage
        old, tuned = ({n: lineage.weights(w)[n] for n in names} for w in ("source", "tuned"))
        return Factor.lifted(old, tuned, f_o, f_t)


def where_seen(
    name: str,
    moved: Tensor,
    plain: Tensor,
    fishers: Sequence[Tensor],
    problem: TransferProblem,
) -> Tensor:
    """Rows of a table of embeddings that no text touches take the plain update.

    Their Fishers are all zero, so that after flooring (1) would mix two differences by halves.
    """
    if moved.ndim != 2 or not problem.is_table(name):
        return moved
    f_o, f_n, f_t = fishers
    seen = (f_o + f_n + f_t).sum(1) > 0
    return moved.where(seen[:, None], plain)


def _amplified(
    names: Sequence[str], fishers: Sequence[Mapping[str, Tensor]], how: Settings
) -> dict[str, float]:
    """Median and 99th percentile of F_o / (F_n + kappa F_t), and how often the cap cuts it."""
    f_o, f_n, f_t = fishers
    parts = [
        amplification(f_o[name], f_n[name], f_t[name], how).flatten().numpy() for name in names
    ]
    ratio = np.concatenate(parts)
    middle, high = np.quantile(ratio, [0.5, 0.99])
    capped = float((ratio > how.cap).mean()) if how.cap is not None else 0.0
    return {
        "amplification_median": float(middle), "amplification_p99": float(high),
        "capped_share": capped,
    }  # fmt: skip
