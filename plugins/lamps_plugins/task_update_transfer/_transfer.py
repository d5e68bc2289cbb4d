"""The base class of all transfers: everything but the update.

A method says what is added to the target base's weights:

    class ParamDelta(Transfer[Params]):
        needs_same_width = True

        def update(self, problem, fidelity, rng):
            return {name: problem.lineage.task_update(name) for name in problem.names(fidelity)}

Landmarks (see `_problem`), measuring, checkpoints and export are common. An update is computed
anew at each landmark; what is costly about it lies in the caches of `_readings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import ContractError, MethodFailed, ProblemError
from lamps.method import Method, Problem, State
from lamps.space import as_json
from lamps.types import Evaluation, Json, Split

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lamps_plugins.task_update_transfer._problem import TransferProblem

FAMILY = "task-update-transfer"
P = TypeVar("P")


class Transfer(Method["TransferProblem", P]):
    """One way to move a task update to another base.

    Attributes:
        updates_: What is added to the target base, float32 by canonical name; nothing elsewhere.
        labels_: Labelled texts that the method was shown, those of the common head aside.
        texts_: Texts that it read, each pass of each network counted.
        found_: Diagnostic numbers.
    """

    params: P
    needs_same_width: ClassVar[bool] = False
    """Whether source and target base must have tensors of equal shapes."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.updates_: dict[str, Any] = {}
        self.labels_ = self.texts_ = 0
        self.found_: dict[str, float] = {}

    def update(
        self, problem: TransferProblem, fidelity: float, rng: Generator
    ) -> Mapping[str, Tensor]:
        """What is added to the target base's weights at a landmark above 0.

        Sets ``labels_``, ``texts_`` and ``found_``.

        Args:
            problem: The instance.
            fidelity: The landmark.
            rng: The trial's stream in its start state.
        """
        raise ContractError(f"{self.name()} implements neither update nor partial_fit")

    def refits(self, problem: TransferProblem) -> bool:
        """Whether the head is fitted on the few labelled texts although the old one is kept."""
        return False

    # --- common to all -------------------------------------------------------------------------

    def partial_fit(self, problem: TransferProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`."""
        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.require_width(problem)
        if fidelity > 0.0:
            self._take(self.update(problem, fidelity, rng))
        self.fidelity_ = fidelity
        return self

    def require_width(self, problem: TransferProblem) -> None:
        """Refuse another width where the method needs equal ones."""
        if not fits(type(self), problem):
            raise ProblemError(
                f"{self.name()} needs bases of equal widths, {problem.name} has another; use "
                "theseus or a method that carries updates between widths"
            )

    def _take(self, updates: Mapping[str, Tensor]) -> None:
        import torch

        for name, value in updates.items():
            if not bool(torch.isfinite(value).all()):
                raise MethodFailed(f"{self.name()}: the update of {name!r} is not finite")
        self.updates_ = {
            name: value.detach().float().clone()
            for name, value in updates.items()
            if bool(value.any())
        }

    def require_fitted(self) -> None:
        """Refuse to work before the first landmark."""
        if self.fidelity_ is None:
            raise MethodFailed(f"{self.name()} was never fitted; call partial_fit first")

    def network(self, problem: TransferProblem) -> nn.Module:
        """The classifier that came out."""
        self.require_fitted()
        return problem.network(self.updates_, refit=self.refits(problem))

    def evaluate(self, problem: TransferProblem, split: Split = "val") -> Evaluation:
        """See `Method.evaluate`; measured by `TransferProblem.measure`."""
        net = self.network(problem)
        found = problem.measure(net, split, fidelity=float(self.fidelity_ or 0.0))
        labels = self.labels_ + problem.head_labels
        if self.refits(problem) and not problem.head_labels:
            labels += len(problem.few()[1])
        used = {"labels": float(labels), "texts": float(self.texts_)}
        return Evaluation(
            {**found.objectives, **used},
            {**found.signals, **problem.lineage.signals, **self.found_},
        )

    def state_dict(self) -> State:
        """See `Method.state_dict`: the updates."""
        state: State = {
            "fidelity_": self.fidelity_,
            "labels_": self.labels_,
            "texts_": self.texts_,
            "found_": dict(self.found_),
        }
        return state | {f"update/{name}": value for name, value in self.updates_.items()}

    def load_state_dict(self, state: State, problem: TransferProblem) -> None:
        """See `Method.load_state_dict`."""
        import torch

        self.fidelity_ = state["fidelity_"]
        self.labels_, self.texts_ = int(state["labels_"]), int(state["texts_"])
        self.found_ = {str(k): float(v) for k, v in state["found_"].items()}
        self.updates_ = {
            key.removeprefix("update/"): torch.as_tensor(np.asarray(value))
            for key, value in state.items()
            if key.startswith("update/")
        }

    def save(self, problem: TransferProblem, directory: Path) -> None:
        """A folder that ``AutoModelForSequenceClassification`` opens, with tokenizer and card."""
        from lamps_plugins.text_classification import _export, _features

        params: dict[str, Json] = as_json(self.params)
        task = problem.texts.task
        card = _export.Card(
            family="text-classification",
            method=f"transferred by {self.name()}",
            params=params,
            labels=problem.labels,
            multi_label=False,
            max_length=task.max_length,
            data_hash=task.data_hash("train"),
            data_name=problem.name,
            fidelity=float(self.fidelity_ or 0.0),
            model=problem.lineage.target.folder.name,
            model_source=str(problem.lineage.target.folder),
        )
        _export.write_transformer(
            directory, self.network(problem), _features.tokenizer_of(problem.tokenizer_info), card,
            limit=problem.limit,
        )  # fmt: skip


def fits(method: type[Method[Any, Any]], problem: Problem | TransferProblem) -> bool:
    """Whether a method can work on a problem's widths."""
    lineage: Any = getattr(problem, "lineage", None)
    return bool(lineage.same_width) or not getattr(method, "needs_same_width", False)
