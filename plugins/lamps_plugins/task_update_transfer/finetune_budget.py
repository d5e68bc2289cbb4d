"""Fine-tuning the target base for as many backward passes as the Fishers of BTransfer take.

Three Fishers of ``texts`` texts are ``3 texts`` backward passes; here they are steps on the task's
first ``texts`` labelled texts, the ones that the task's Fisher sees:

    steps = 3 texts / batch_size                                                                (1)

The control for methods that need gradients but take no step.
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
    """Hyperparameters of the control."""

    lr: float = hp.real(7e-4, low=2e-5, high=2e-3, log=True, doc="Peak rate of the blocks.")
    texts: int = hp.fixed(512, doc="Texts of each of the three Fishers that it replaces.")
    batch_size: int = hp.fixed(16, doc="Texts a step.")


class FinetuneBudget(Tuning[Params]):
    """The backward passes of three Fishers, spent on steps."""

    spec = MethodSpec(
        family=FAMILY,
        summary="fine-tunes the target base for the backward passes of three Fishers",
        tags=Tags(baseline=True),
    )

    def n_texts(self, problem: TransferProblem) -> int:
        """Those of the task's Fisher."""
        return min(self.params.texts, problem.texts.task.n_train)

    def seen(self, problem: TransferProblem) -> int:
        """Two generic Fishers and the task's, with what texts there are."""
        generic = min(self.params.texts, len(problem.texts.generic))
        return 2 * generic + self.n_texts(problem)

    def recipe(self) -> Recipe:
        """AdamW, linear decay."""
        return Recipe(lr=self.params.lr, head_lr=1e-2, epochs=1, batch_size=self.params.batch_size)
