"""The base class of all mergers: everything but the rule.

A merger says how the updates of K experts become one, for one group of layers at a time:

    class Average(Merger[Params]):
        spec = merger_spec(summary="...", paper=...)

        def merge(self, problem, group, rng):
            return problem.deltas(group).mean(0)           # [K, L, m, n] -> [L, m, n]

Landmarks (see `MergeProblem`), evaluation on every task, checkpoints and export are common. What
else a merger may override:

- ``vector_scale``: the factor on the mean update of biases and norms (1);
- ``merge_all``: rules that need a view of the whole model, data, or gradients;
- ``network``: what answers for a task, where it is more than base plus updates (adapters);
- ``extra_params``, ``state_dict``, ``load_state_dict`` and ``save`` with it;
- ``needs``: the kind of experts, for rules on factors or rotations.

A method that looks at labelled texts takes them through `Merger.labelled`, which counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import ContractError, MethodFailed, ProblemError
from lamps.method import Method, State, substream
from lamps.space import as_json
from lamps.types import Evaluation, Json, Split
from lamps_plugins.model_merging._layers import Group

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._problem import MergeProblem

FAMILY = "model-merging"
P = TypeVar("P")

Update = tuple[Group, "torch.Tensor"]
"""A group and what is added to the base's weights of it, [L, m, n] or [L, d]."""


class Merger(Method["MergeProblem", P]):
    """A rule that makes one update of several.

    Attributes:
        updates_: Merged update of each tensor by canonical name, float32; the base where missing.
        seed_: Root of the method's randomness, drawn from the trial's stream.
        labels_: Labelled texts that the method looked at, by task.
        answers_: Logits [n, n_labels] of the first validation texts by task, of the present
            updates; the next landmark takes them over.
        facts_: Sum and number of what `note` was told, by name.
    """

    params: P

    needs: ClassVar[str | None] = None
    """Kind of experts that the rule is made for, ``lora`` or ``oft``; any if None."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.updates_: dict[str, Any] = {}
        self.labels_: dict[str, int] = {}
        self.answers_: dict[str, np.ndarray] = {}
        self.seed_: int | None = None
        self.facts_: dict[str, tuple[float, float]] = {}

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> torch.Tensor:
        """The update to add to the base, scale included, for one group of layers.

        Args:
            problem: Offers ``deltas``, ``low_rank``, ``skew`` and ``base_weights`` of the group.
            group: Layers of equal shape.
            rng: A stream of the group's own, the same whatever was merged before.

        Returns:
            The update. Shape: [L, m, n] float32.
        """
        raise ContractError(f"{self.name()} implements neither merge nor merge_all")

    def merge_all(
        self, problem: MergeProblem, groups: Sequence[Group], rng: Generator
    ) -> Iterator[Update]:
        """The updates of some groups, one after the other; override for rules with a global view.

        What a group gets must not depend on which others are asked for at the same time.

        Args:
            problem: The instance; ``problem.groups`` are all groups there are.
            groups: Those that this landmark adds.
            rng: The trial's stream of merging in its start state.
        """
        import torch

        for group in groups:
            with torch.no_grad():
                yield group, self.merge(problem, group, substream(rng, group.number))

    def vector_scale(self, problem: MergeProblem) -> float:
        """Factor on the mean update of biases and norms."""
        return 1.0

    def network(self, problem: MergeProblem, task: str) -> nn.Module:
        """The merged classifier of a task, ready to answer."""
        return problem.network(task, self.updates_)

    @classmethod
    def own_networks(cls) -> bool:
        """Whether the method overrides `network`."""
        return cls.network is not Merger.network

    def extra_params(self, problem: MergeProblem) -> int:
        """Weights of the result beside one encoder and the heads."""
        return 0

    def labelled(
        self, problem: MergeProblem, task: str, n: int
    ) -> tuple[Sequence[str], np.ndarray]:
        """The first ``n`` validation texts of a task with their labels, counted as looked at."""
        texts, targets = problem.validation(task, n)
        self.labels_[task] = max(self.labels_.get(task, 0), len(texts))
        return texts, targets

    # --- common to all -------------------------------------------------------------------------

    def partial_fit(self, problem: MergeProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; merges the groups that the landmark adds."""
        problem.check_fidelity(fidelity)
        self.check_experts(problem)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.seed_ = int(rng.integers(2**63))
        groups, vectors = problem.merged_at(fidelity)
        new = [group for group in groups if group.names[0] not in self.updates_]
        for group, update in self.merge_all(problem, new, self._stream()):
            self._take(group, update)
        for group in vectors:
            if group.names[0] not in self.updates_:
                self._take(group, self._vector(problem, group))
        self.fidelity_ = fidelity
        return self

    def check_experts(self, problem: MergeProblem) -> None:
        """Refuse experts of another kind than the rule `needs`, before anything is computed.

        Raises:
            ProblemError: There is one; the message names it.
        """
        for expert in problem.experts.experts:
            if self.needs is not None and expert.kind != self.needs:
                raise ProblemError(
                    f"expert {expert.name!r} is {expert.kind}, {self.name()} needs "
                    f"{self.needs} experts only"
                )

    def _stream(self) -> Generator:
        return np.random.default_rng(self.seed_)

    def _vector(self, problem: MergeProblem, group: Group) -> torch.Tensor:
        return self.vector_scale(problem) * problem.deltas(group).mean(0)

    def _take(self, group: Group, update: torch.Tensor) -> None:
        for name, one in zip(group.names, self._checked(group, update), strict=True):
            self.updates_[name] = one.clone()
        self.answers_ = {}

    def _checked(self, group: Group, update: torch.Tensor) -> torch.Tensor:
        import torch

        wanted = (len(group.names), *group.shape)
        if tuple(update.shape) != wanted:
            raise ContractError(
                f"{self.name()} returned an update of shape {list(update.shape)} for "
                f"{group.names[0]!r}, expected {list(wanted)}"
            )
        if not bool(torch.isfinite(update).all()):
            raise MethodFailed(f"{self.name()}: the update of {group.names[0]!r} is not finite")
        return update.detach().float()

    def require_fitted(self) -> None:
        """Refuse to work before the first landmark."""
        if self.fidelity_ is None:
            raise MethodFailed(f"{self.name()} was never fitted; call partial_fit first")

    def evaluate(self, problem: MergeProblem, split: Split = "val") -> Evaluation:
        """See `Method.evaluate`; measured by `MergeProblem.measure`."""
        self.require_fitted()
        found = problem.measure(self, split, fidelity=float(self.fidelity_ or 0.0))
        labels = float(sum(self.labels_.values()))
        extra = {"extra_params": float(self.extra_params(problem)), "labels": labels}
        return Evaluation({**found.objectives, **extra}, {**found.signals, **self.signals()})

    def note(self, name: str, values: torch.Tensor) -> None:
        """Keep a diagnostic of some layers; `signals` gives the mean over all that came."""
        total, n = self.facts_.get(name, (0.0, 0.0))
        self.facts_[name] = (total + float(values.double().sum()), n + values.numel())

    def signals(self) -> dict[str, float]:
        """Diagnostic numbers of the method's own that go with an evaluation."""
        return {name: total / n for name, (total, n) in self.facts_.items() if n}

    def state_dict(self) -> State:
        """See `Method.state_dict`: the merged updates."""
        state: State = {
            "fidelity_": self.fidelity_,
            "seed_": None if self.seed_ is None else str(self.seed_),
            "labels_": dict(self.labels_),
            "facts_": {name: list(pair) for name, pair in self.facts_.items()},
        }
        state |= {f"update/{name}": value for name, value in self.updates_.items()}
        return state | {f"answers/{task}": value for task, value in self.answers_.items()}

    def load_state_dict(self, state: State, problem: MergeProblem) -> None:
        """See `Method.load_state_dict`."""
        import torch

        self.fidelity_ = state["fidelity_"]
        self.seed_ = None if state["seed_"] is None else int(state["seed_"])
        self.labels_ = {str(k): int(v) for k, v in state["labels_"].items()}
        self.facts_ = {str(k): (float(a), float(b)) for k, (a, b) in state["facts_"].items()}
        self.updates_, self.answers_ = {}, {}
        for key, value in state.items():
            kind, _, name = key.partition("/")
            if kind == "update":
                self.updates_[name] = torch.as_tensor(value)
            elif kind == "answers":
                self.answers_[name] = np.asarray(value)

    def save(self, problem: MergeProblem, directory: Path) -> None:
        """One folder a task that plain transformers opens; see `_export`."""
        from lamps_plugins.model_merging import _export

        self.require_fitted()
        groups = (*problem.groups, *problem.vectors)
        known = (
            (group, self._known(group)) for group in groups if group.names[0] in self.updates_
        )
        _export.write(problem, directory, known, self.card())

    def _known(self, group: Group) -> torch.Tensor:
        import torch

        return torch.stack([self.updates_[name] for name in group.names])

    def merge_into(self, problem: MergeProblem, directory: Path, *, rng: Generator) -> None:
        """Merge all layers straight into an export, holding one group of layers at a time.

        For models that do not fit into memory; equal to `fit` and `save`, nothing is measured and
        the method stays untouched.

        Args:
            problem: The instance.
            directory: An existing empty folder.
            rng: The trial's stream, as for `partial_fit`.

        Raises:
            ProblemError: The method reads data, so it cannot work without the whole model.
        """
        from lamps_plugins.model_merging import _export

        if not self.spec.tags.data_free:
            raise ProblemError(
                f"{self.name()} reads texts, so it needs the whole model in memory; fit and save "
                "it instead"
            )
        self.check_experts(problem)
        stream = np.random.default_rng(int(rng.integers(2**63)))

        def updates() -> Iterator[Update]:
            for group, update in self.merge_all(problem, problem.groups, stream):
                yield group, self._checked(group, update)
            for group in problem.vectors:
                yield group, self._checked(group, self._vector(problem, group))

        _export.write(problem, directory, updates(), self.card(fidelity=1.0))

    def card(self, fidelity: float | None = None) -> dict[str, Json]:
        """What the exported folder says about its method."""
        reached = self.fidelity_ if fidelity is None else fidelity
        params: dict[str, Json] = as_json(self.params)
        return {"method": self.name(), "params": params, "fidelity": float(reached or 0.0)}
