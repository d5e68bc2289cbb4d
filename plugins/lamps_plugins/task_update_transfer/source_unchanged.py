"""The fine-tuned source itself, as if there were no new base: a control.

    theta* = theta_f                                                                            (1)

It is often as accurate as any transfer; what it lacks is what the new base learned since, which
the objective ``retention`` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps.method import MethodSpec, Tags
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """There is nothing to choose."""


class SourceUnchanged(Transfer[Params]):
    """The fine-tuned source, embeddings included, in place of the target base."""

    needs_same_width = True
    spec = MethodSpec(
        family=FAMILY,
        summary="keeps the fine-tuned old base (control)",
        tags=Tags(data_free=True, baseline=True, cheap=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Equation (1); the first landmark replaces the upper blocks only."""
        tuned, target = problem.lineage.weights("tuned"), problem.lineage.weights("target")
        return {name: tuned[name] - target[name] for name in problem.all_names(fidelity)}
