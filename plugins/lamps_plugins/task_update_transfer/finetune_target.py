"""Fine-tuning the target base on the task: the result that a transfer saves the cost of.

The skyline of the family: all blocks are trained with AdamW on all training texts. What it needs
beyond any transfer, labels and backward passes, is in the objectives ``labels`` and ``texts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Tags
from lamps_plugins.task_update_transfer._transfer import FAMILY
from lamps_plugins.task_update_transfer._tuning import Tuning
from lamps_plugins.text_classification._training import Recipe

if TYPE_CHECKING:
    from lamps_plugins.task_update_transfer._problem import TransferProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of fine-tuning."""

    lr: float = hp.real(7e-4, low=2e-5, high=2e-3, log=True, doc="Peak rate of the blocks.")
    steps: int = hp.fixed(100, doc="Steps of the optimiser.")
    batch_size: int = hp.fixed(32, doc="Texts a step.")


class FinetuneTarget(Tuning[Params]):
    """All blocks of the target base, trained."""

    spec = MethodSpec(
        family=FAMILY,
        summary="fine-tunes the target base on the task (skyline)",
        tags=Tags(baseline=True),
    )

    def seen(self, problem: TransferProblem) -> int:
        """Steps times batch."""
        return self.params.steps * self.params.batch_size

    def recipe(self) -> Recipe:
        """AdamW, linear decay."""
        return Recipe(lr=self.params.lr, head_lr=1e-2, epochs=1, batch_size=self.params.batch_size)
