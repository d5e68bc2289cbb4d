"""The target base without any update: what every transfer has to beat.

Under the old head it shows how far the base has moved away from it; with ``head="refitted"`` a
ridge head is fitted on the few labelled texts, which is the cheapest honest answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins.task_update_transfer._transfer import FAMILY, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Which head."""

    head: str = hp.choice(
        "problem", ("problem", "refitted"), doc="The problem's protocol, or a ridge head anyway."
    )


class TargetUntouched(Transfer[Params]):
    """Zero update."""

    spec = MethodSpec(
        family=FAMILY,
        summary="the target base under a head, nothing transferred",
        tags=Tags(baseline=True, cheap=True),
    )

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """Nothing."""
        return {}

    def refits(self, problem: TransferProblem) -> bool:
        """As the params say."""
        return self.params.head == "refitted"
