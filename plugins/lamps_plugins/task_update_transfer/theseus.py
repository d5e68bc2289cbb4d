"""Theseus: a task update carried to another architecture by two Procrustes maps a module.

Paper: Rinaldi et al., Transporting Task Vectors across Different Architectures without Training,
ICML 2026, arXiv 2602.12952. Inputs and outputs of every module are recorded in the two *bases* on
the same unlabelled texts; their cross-covariances give partial isometries, and

    dW_B = alpha T_out^T dW_A T_in,    db_B = alpha db_A T_out                                  (1)

so that the target's layer reacts to its inputs as the source's update reacted to the aligned ones.
No gradient is computed. ``maps="weights"`` aligns by the bases' weights instead of activations
(an ablation: signs and order of eigenvectors are arbitrary, and norms stay as they are).
Ours, not the paper's: ``norms``, ``ridge``, ``hidden``; vectors of a module take its output map.
Oracles: a target with permuted units takes over the source exactly where activations fill the
space (``hidden="after"``), and so does one with every unit twice, at alpha = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.task_update_transfer import _carrying
from lamps_plugins.task_update_transfer._activations import Sums
from lamps_plugins.task_update_transfer._carrying import MapOf, module_of
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer
from lamps_plugins.task_update_transfer._transport import (
    procrustes,
    quality,
    scaled_basis,
    whitened,
)

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._lineage import Lineage
    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of Theseus."""

    alpha: float = hp.real(1.0, low=0.0, high=3.0, doc="Factor on the update; eq. (1).")
    texts: int = hp.fixed(128, doc="Unlabelled texts to align by, at most all there are.")
    whitening: float = hp.choice(
        0.0, (0.0, 0.25, 0.5), doc="Power of the Gram matrices taken out of the cross-covariance."
    )
    centering: bool = hp.choice(False, (False, True), doc="Subtract means of activations.")
    ridge: float = hp.choice(
        0.0, (0.0, 1e-6, 1e-3), doc="Pull towards the identity, for equal widths; see `pulled`."
    )
    hidden: str = hp.choice(
        "before",
        ("before", "after"),
        doc="Hidden units of the feed-forward part: aligned before (paper) or after activation.",
    )
    part: str = hp.choice("all", _carrying.PARTS, doc="Modules of a block that are carried.")
    norms: str = hp.choice(
        "carried", ("carried", "zero"), doc="Scales and shifts of norms: carried or left alone."
    )
    maps: str = hp.fixed(
        "activations", doc="Align by 'activations', or without data by 'weights'."
    )


class Theseus(Transfer[Params]):
    """Procrustes transport of the update, module by module."""

    spec = MethodSpec(
        family=FAMILY,
        summary="carries the update to another width by Procrustes maps of activations",
        paper=Paper(
            title="Transporting Task Vectors across Different Architectures without Training",
            arxiv="2602.12952",
            venue="ICML 2026",
        ),
        tags=Tags(),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1)."""
        p, lineage = self.params, problem.lineage
        names = _carrying.chosen(problem, fidelity, p.part, p.norms)
        if p.maps == "weights":
            names = tuple(n for n in names if not _carrying.is_norm(lineage, module_of(n)))
            map_of = maps_of_weights(lineage, p.whitening)
        else:
            # All modules, whatever is carried, so that candidates share one alignment.
            modules = all_modules(problem)
            sums, n = problem.readings.alignment(modules, p.texts, fidelity, grams=p.whitening > 0)
            self.texts_ = 2 * n
            map_of = maps_of_activations(
                sums, whitening=p.whitening, centering=p.centering, ridge=p.ridge
            )
            if p.hidden == "after":
                map_of = after_activation(map_of)
            self.found_ = qualities(sums, sorted({module_of(n) for n in names}))
        return _carrying.carry(lineage, names, _carrying.remembered(map_of), p.alpha)


def all_modules(problem: TransferProblem) -> tuple[str, ...]:
    """Modules whose weights fine-tuning moved, tables of embeddings aside."""
    moved = (n for n in problem.names(1.0) if not problem.is_table(n))
    return tuple(dict.fromkeys(module_of(n) for n in moved))


def maps_of_activations(
    sums: Sums, *, whitening: float, centering: bool, ridge: float = 0.0
) -> MapOf:
    """Partial isometries by module and side, from recorded sums; see `_activations`."""
    import torch

    tokens = float(sums["tokens"][0])

    def found(module: str, side: str) -> Tensor:
        part = {
            key: torch.from_numpy(np.array(sums[f"{module}/{side}/{key}"]))
            for key in ("cross", "mean_a", "mean_b")
        }
        cross = part["cross"]
        if centering:
            cross = cross - torch.outer(part["mean_a"], part["mean_b"]) / tokens
        if whitening > 0:
            grams = []
            for end in ("a", "b"):
                gram = torch.from_numpy(np.array(sums[f"{module}/{side}/gram_{end}"]))
                if centering:
                    mean = part[f"mean_{end}"]
                    gram = gram - torch.outer(mean, mean) / tokens
                grams.append(gram)
            cross = whitened(cross, grams[0], grams[1], whitening)
        return procrustes(pulled(cross, ridge))

    return found


def pulled(cross: Tensor, ridge: float) -> Tensor:
    """A square cross-covariance with ``ridge`` times its norm on the diagonal; others unchanged.

    Where no activation goes, such as along the sum of what a norm without shift returns, the
    nearest isometry is arbitrary; a hair of the identity settles it for bases of one lineage.
    """
    import torch

    if ridge == 0.0 or cross.shape[0] != cross.shape[1]:
        return cross
    moved: Tensor = cross + ridge * cross.norm() * torch.eye(len(cross), dtype=cross.dtype)
    return moved


def after_activation(map_of: MapOf) -> MapOf:
    """The same maps, but hidden feed-forward units are matched by what the second layer receives.

    There are more of them than inputs, so before the activation their outputs fill a part of the
    space only and the rest of the map is arbitrary.
    """
    up, down = "intermediate.dense", "output.dense"

    def found(module: str, side: str) -> Tensor:
        if side == "out" and module.endswith(f".{up}"):
            return map_of(f"{module.removesuffix(up)}{down}", "in")
        return map_of(module, side)

    return found


def maps_of_weights(lineage: Lineage, power: float) -> MapOf:
    """Partial isometries from eigenbases of the bases' own weights; no text is read."""

    def found(module: str, side: str) -> Tensor:
        bases = []
        for which in ("source", "target"):
            weight = lineage.weights(which)[f"{module}.weight"].double()
            gram = weight.T @ weight if side == "in" else weight @ weight.T
            bases.append(scaled_basis(gram, power))
        r = min(len(basis) for basis in bases)
        return procrustes(bases[0][:, :r] @ bases[1][:, :r].T)

    return found


def qualities(sums: Sums, modules: Sequence[str]) -> dict[str, float]:
    """Mean and least alignment quality over modules and sides, and how many tokens spoke."""
    import torch

    found = []
    for module in modules:
        for side in ("in", "out"):
            place = f"{module}/{side}"
            squares = (float(sums[f"{place}/square_{end}"][0]) for end in ("a", "b"))
            found.append(quality(torch.from_numpy(np.array(sums[f"{place}/cross"])), *squares))
    return {
        "alignment_mean": float(np.mean(found)), "alignment_least": float(np.min(found)),
        "alignment_tokens": float(sums["tokens"][0]),
    }  # fmt: skip
