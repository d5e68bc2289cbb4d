"""The family ``model-merging``: experts of one base become one model, and tasks tell how good.

Landmarks merge more layers and look at more validation texts; what one merges and reads, the next
one does too:

    0       nothing merged: the base under the experts' heads, and what the weights alone tell
    0.25    the two matrices of `_layers.FIRST_LAYERS`, a quarter of the validation texts
    0.5     all layers, half of the texts
    1       all layers, all texts
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from lamps.errors import ProblemError, did_you_mean
from lamps.method import Family, Method, ModelInfo, Problem, cache_dir
from lamps.types import Candidate, Evaluation, Json, Objective, Split, digest
from lamps_plugins.model_merging import _measure, _networks, _prefix
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._options import OPTIONS
from lamps_plugins.model_merging._sets import ExpertSet
from lamps_plugins.text_classification import _features
from lamps_plugins.text_classification._measure import latencies_ms
from lamps_plugins.text_classification._problem import TextProblem

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._merger import Merger
    from lamps_plugins.model_merging._rules.lowrank import LowRank

__all__ = ["FAMILY", "MergeFamily", "MergeProblem"]

FIDELITIES = (0.0, 0.25, 0.5, 1.0)

CALIBRATION = 256
"""Unlabelled training texts of a task that data-driven methods may read, at most."""


_LATENCIES: dict[str, float] = {}


class MergeProblem(Problem):
    """Experts, and the labelled texts of their tasks.

    Args:
        name: What lists call it.
        experts: Base and experts.
        tasks: Texts of each expert's task, in the order of the experts; classes are those of the
            expert's head. Training texts serve as calibration texts.
        source: JSON from which the family makes it again.
        facts: What the card says besides.
        notes: Sentences that the user should see.

    Attributes:
        experts: See above.
        data: The tasks by name.
        groups: Matrices that are merged, in groups of equal shape.
        vectors: Biases and norms that are merged.
    """

    family: ClassVar[str] = "model-merging"

    def __init__(
        self,
        *,
        name: str,
        experts: ExpertSet,
        tasks: Sequence[TextProblem],
        source: Mapping[str, Json],
        facts: Mapping[str, Json] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.name, self.experts = name, experts
        self.data = {e.name: task for e, task in zip(experts.experts, tasks, strict=True)}
        self.notes = tuple(notes)
        self._source, self._facts = dict(source), dict(facts or {})
        self._tokenizer = _networks.tokenizer_info(experts)
        self._base: dict[str, torch.Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_base": None}  # weights are read again where they are needed

    # --- what a merge works on -----------------------------------------------------------------

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of the experts."""
        return tuple(self.data)

    @property
    def n_experts(self) -> int:
        """K."""
        return len(self.experts)

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups of matrices, those of the first landmark first."""
        return self.experts.groups

    @property
    def vectors(self) -> tuple[Group, ...]:
        """All groups of biases and norms."""
        return self.experts.vectors

    def deltas(self, group: Group) -> torch.Tensor:
        """Updates of all experts. Shape: [K, L, m, n] float32, or [K, L, d] for vectors."""
        return self.experts.deltas(group)

    def base_weights(self, group: Group) -> torch.Tensor:
        """Weights of the base. Shape: [L, m, n] float32, or [L, d] for vectors."""
        return self.experts.base_weights(group)

    def low_rank(self, group: Group) -> LowRank:
        """Updates of LoRA experts as factors; see `ExpertSet.low_rank`."""
        return self.experts.low_rank(group)

    def skew(self, group: Group) -> torch.Tensor:
        """Skew blocks of OFT experts. Shape: [K, L, n / b, b, b]; see `ExpertSet.skew`."""
        return self.experts.skew(group)

    def merged_at(self, fidelity: float) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
        """Groups of matrices and of vectors that are merged once a fidelity is reached."""
        if fidelity <= 0.0:
            return (), ()
        if fidelity <= FIDELITIES[1]:
            return tuple(group for group in self.groups if group.first), ()
        return self.groups, self.vectors

    # --- texts ---------------------------------------------------------------------------------

    @property
    def test_opened(self) -> int:
        """How often texts or targets of a test split were handed out."""
        return sum(task.test_opened for task in self.data.values())

    def task(self, name: str) -> TextProblem:
        """The texts of a task.

        Raises:
            ProblemError: There is no such task.
        """
        if name not in self.data:
            raise ProblemError(
                f"{self.name} has no task {name!r}. {did_you_mean(name, self.data)}"
            )
        return self.data[name]

    def calibration(self, task: str) -> Sequence[str]:
        """Up to `CALIBRATION` training texts of a task, without labels, in a fixed order."""
        return self.task(task).texts("train")[:CALIBRATION]

    def validation(self, task: str, n: int) -> tuple[Sequence[str], np.ndarray]:
        """The first ``n`` validation texts with class indices [n]; see `Merger.labelled`."""
        data = self.task(task)
        return data.texts("val")[:n], data.targets("val")[:n]

    def n_val(self, task: str, fidelity: float) -> int:
        """Validation texts of a task that a landmark looks at; all at 0, where all share them."""
        n = len(self.task(task).texts("val"))
        return math.ceil(fidelity * n) if fidelity > 0.0 else n

    def tokens(self, task: str, split: Split) -> list[np.ndarray]:
        """Token ids of a split's texts, n times [length] int32; cached on disk."""
        return _features.tokens(self.task(task), self._tokenizer, split)

    @property
    def tokenizer_info(self) -> ModelInfo:
        """The folder of the common tokenizer."""
        return self._tokenizer

    @property
    def pad_id(self) -> int:
        """The padding token of the common tokenizer."""
        return int(_features.tokenizer_of(self._tokenizer).pad_token_id)

    # --- networks ------------------------------------------------------------------------------

    def network(self, task: str, updates: Mapping[str, torch.Tensor]) -> nn.Module:
        """The base plus updates under the head of a task's expert, in evaluation mode.

        Networks of several tasks share the memory of what is not updated.

        Args:
            task: Whose head.
            updates: What is added, by canonical name; the base where missing.
        """
        base = self._base_weights()
        encoder = {k: v + updates[k] if k in updates else v for k, v in base.items()}
        return _networks.classifier(self._expert(task), encoder)

    def expert_network(self, task: str) -> nn.Module:
        """The expert of a task, whole, in evaluation mode."""
        expert = self._expert(task)
        encoder = _networks.expert_weights(self.experts, expert, self._base_weights())
        return _networks.classifier(expert, encoder)

    def logits(self, net: nn.Module, task: str, split: Split, n: int | None = None) -> np.ndarray:
        """What a network answers to the first ``n`` texts of a split: [n, n_labels] float32."""
        return _networks.answers(net, self.tokens(task, split)[:n], self.pad_id)

    def top_logits(self, net: nn.Module, task: str, split: Split, n: int) -> np.ndarray:
        """As `logits`, for networks that differ from the base in the first landmark's groups.

        Blocks below the first that differs are not computed: what the base says there is cached.
        """
        names = [name for group in self.groups if group.first for name in group.names]
        place = _prefix.top_block(names)
        if place is None:
            return self.logits(net, task, split, n)
        reads = [self._tokenizer.path, self.task(task).max_length, list(place), n]
        key = digest([self.experts.base.sha256, self.task(task).data_hash(split), *reads])

        def make() -> dict[str, np.ndarray]:
            base = self.network(task, {})
            return _prefix.record(base, place, lambda: self.logits(base, task, split, n))

        states = _features.cached(cache_dir() / "merging" / f"states-{key}", make)
        with _prefix.replayed(net, place, states):
            return self.logits(net, task, split, n)

    def _expert(self, task: str) -> Any:
        self.task(task)
        return next(e for e in self.experts.experts if e.name == task)

    def _base_weights(self) -> dict[str, torch.Tensor]:
        if self._base is None:
            self._base = _networks.base_weights(self.experts)
        return self._base

    def _known(self, task: str, split: Split, *, expert: bool) -> np.ndarray:
        """Logits of the expert, or of the base under its head, on a whole split; cached."""
        head = self._expert(task)
        content = [self.experts.base.sha256, head.sha256, self.task(task).data_hash(split)]
        reads = [self._tokenizer.path, self.task(task).max_length]
        folder = cache_dir() / "merging" / f"logits-{digest([expert, *content, *reads])}"

        def make() -> dict[str, np.ndarray]:
            net = self.expert_network(task) if expert else self.network(task, {})
            return {"logits": self.logits(net, task, split)}

        return _features.cached(folder, make)["logits"]

    # --- measuring -----------------------------------------------------------------------------

    def measure(self, merger: Merger[Any], split: Split, *, fidelity: float) -> Evaluation:
        """Every objective but those of the worker and of the method itself; see `_measure`."""
        merged, expert = [], []
        latency: float | None = None
        for name, data in self.data.items():
            n = self.n_val(name, fidelity) if split == "val" else None
            targets = data.targets(split)[:n]
            logits, net = self._answers(merger, name, split, n, fidelity)
            if latency is None:  # one architecture for all tasks, so the first tells it
                latency = self._latency(merger, net, name)
            merged.append(_networks.correct(logits, targets))
            expert.append(_networks.correct(self._known(name, split, expert=True)[:n], targets))
        found = _measure.summary(self.tasks, merged, expert, split)
        size = float(self.size_bytes + 4 * merger.extra_params(self))
        assert latency is not None
        objectives = {**found.objectives, "size_bytes": size, "latency_ms": latency}
        return Evaluation(objectives, {**found.signals, **self.experts.signals})

    def _answers(
        self, merger: Merger[Any], task: str, split: Split, n: int | None, fidelity: float
    ) -> tuple[np.ndarray, nn.Module | None]:
        """Logits of a merger at a fidelity, and its network where one had to be made.

        Validation texts are read in the portions by which landmarks grow, so that what an earlier
        landmark answered with the same weights is taken over, and numbers do not depend on it.
        """
        if fidelity == 0.0:
            return self._known(task, split, expert=False)[:n], None
        own = merger.own_networks()
        if n is None:
            net = merger.network(self, task)
            return self.logits(net, task, split), net
        # A merger with networks of its own may change more than its updates say.
        if fidelity == FIDELITIES[1] and not own:
            net = merger.network(self, task)
            return self.top_logits(net, task, split, n), net
        known = None if own else merger.answers_.get(task)
        if known is not None and len(known) >= n:
            return known[:n], None
        net = merger.network(self, task)
        start = 0 if known is None else len(known)
        ends = [0, *(self.n_val(task, f) for f in FIDELITIES[1:])]
        rows = self.tokens(task, split)
        parts = [] if known is None else [known]
        for low, high in itertools.pairwise(ends):
            if start <= low < high <= n:
                parts.append(_networks.answers(net, rows[low:high], self.pad_id))
        found = np.concatenate(parts)
        if not own:
            merger.answers_[task] = found
        return found, net

    def _latency(self, merger: Merger[Any], net: nn.Module | None, task: str) -> float:
        """Latency of a merger; all that are base plus updates share one measurement a process."""
        key = self.fingerprint()
        if not merger.own_networks() and key in _LATENCIES:
            return _LATENCIES[key]
        found = self._latency_ms(net or self.network(task, {}), self.data[task])
        if not merger.own_networks():
            _LATENCIES[key] = found
        return found

    def _latency_ms(self, net: nn.Module, data: TextProblem) -> float:
        """Median milliseconds of one text from string to logits, by the text family's harness."""
        tokenizer = _features.tokenizer_of(self._tokenizer)
        limit = _features.token_limit(self._tokenizer, data.max_length)

        def answer(texts: Sequence[str]) -> np.ndarray:
            rows = _features.encode(tokenizer, texts, limit)
            return _networks.answers(net, rows, tokenizer.pad_token_id)

        return float(np.median(latencies_ms(data, answer)))

    @property
    def size_bytes(self) -> int:
        """Bytes of the exported weights: one encoder and all heads, without adapters."""
        from lamps_plugins.model_merging import _export

        return _export.weight_bytes(self)

    # --- the contract --------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return _measure.OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return FIDELITIES

    @property
    def unit(self) -> str:
        return "texts"

    def amount(self, fidelity: float) -> float:
        """Validation texts over all tasks that a landmark looks at; 0 for the untouched base."""
        if fidelity <= 0.0:
            return 0.0
        return float(sum(self.n_val(name, fidelity) for name in self.data))

    def check_fidelity(self, fidelity: float) -> None:
        """Refuse a fidelity at which there is no landmark."""
        if fidelity not in FIDELITIES:
            known = ", ".join(f"{f:g}" for f in FIDELITIES)
            raise ProblemError(f"fidelity {fidelity!r} is no landmark, expected one of {known}")

    def reference(self) -> dict[str, Json]:
        return {**self._source, "name": self.name, "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        total = hashlib.sha256(self.experts.key.encode())
        for name, data in self.data.items():
            total.update(f"{name}:{data.fingerprint()}".encode())
        return total.hexdigest()

    def floor(self, split: Split = "val") -> dict[str, float]:
        """The commonest training class of each task, over the expert's accuracy."""
        merged, expert = [], []
        for name, data in self.data.items():
            targets = data.targets(split)
            right = _networks.correct(self._known(name, split, expert=True), targets)
            merged.append((targets == int(data.class_counts.argmax())).astype(np.float64))
            expert.append(right)
        found = _measure.summary(self.tasks, merged, expert, split).objectives
        return {name: found[name] for name in (f"{split}_error", f"{split}_worst_error")}

    def card(self) -> dict[str, Json]:
        tasks: dict[str, Json] = {}
        for expert in self.experts.experts:
            data = self.data[expert.name]
            right = _networks.correct(
                self._known(expert.name, "val", expert=True), data.targets("val")
            )
            used = data.card()
            tasks[expert.name] = {
                "expert": str(expert.folder),
                "kind": expert.kind,
                "labels": list(expert.labels),
                "rows_used": used["rows_used"],
                "expert_val_accuracy": float(right.mean()),
                **{k: used[k] for k in ("source", "licence", "what") if k in used},
            }
        n_weights = sum(math.prod(g.shape) * len(g.names) for g in (*self.groups, *self.vectors))
        return {
            **self._facts,
            "name": self.name,
            "base": str(self.experts.base.folder),
            "experts": self.experts.kind,
            "tasks": tasks,
            "merged_matrices": sum(len(g.names) for g in self.groups),
            "merged_weights": n_weights,
            "max_length": next(iter(self.data.values())).max_length,
            "signals": dict(self.experts.signals),
            "fingerprint": self.fingerprint(),
        }

    def __repr__(self) -> str:
        return f"MergeProblem({self.name!r}, {self.n_experts} {self.experts.kind} experts)"


class MergeFamily(Family):
    """Merging of fine-tuned experts, the user's own or those of the zoo."""

    name: ClassVar[str] = "model-merging"
    summary: ClassVar[str] = "Merge experts of one base into one model for all their tasks."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_error", "val_worst_error", "train_s")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> MergeProblem:
        """The built-in ``mm-text8`` or ``toy``, or the user's own folders and files.

        Raises:
            ProblemError: Experts or texts cannot be used; see `_checks`.
            ConfigError: An option cannot be used.
        """
        from lamps_plugins.model_merging import _opening

        self.check_options(options)
        return _opening.open_any(reference, {k: v for k, v in options.items() if v is not None})

    def reopen(self, reference: Mapping[str, Json]) -> MergeProblem:
        """The problem of a reference; refused if an expert or a file changed since."""
        options = cast("dict[str, Any]", reference.get("options") or {})
        builtin = reference.get("builtin")
        problem = self.open_problem(None if builtin is None else str(builtin), options)
        self.require_unchanged(problem, reference["fingerprint"], "experts and files")
        return problem

    def toy_problem(self, *, seed: int = 0) -> MergeProblem:
        """Three tasks on made-up sentences, and experts of a BERT of two layers made in code."""
        from lamps_plugins.model_merging import _opening

        return _opening.open_any("toy", {"zoo_seed": seed})

    def toy_for(self, method: type[Method[Any, Any]]) -> MergeProblem:
        """The toy with experts of the kind that a method needs."""
        from lamps_plugins.model_merging import _opening

        return _opening.open_any("toy", {"experts": getattr(method, "needs", None) or "full"})

    def candidates(
        self,
        problem: Problem,
        methods: Mapping[str, type[Method[Any, Any]]],
        models: Sequence[str],
        *,
        given: Mapping[str, Mapping[str, Any]],
        per_method: int,
        seed: int,
    ) -> list[Candidate]:
        """See `Family.candidates`; methods for another kind of experts are left out.

        Raises:
            ProblemError: Nothing is left.
        """
        kind = cast("MergeProblem", problem).experts.kind
        wanted = {name: getattr(method, "needs", None) for name, method in methods.items()}
        fit = {name: m for name, m in methods.items() if wanted[name] in (None, kind)}
        if methods and not fit:
            name = next(iter(methods))
            raise ProblemError(
                f"{name} needs {wanted[name]} experts, those of {problem.name} are {kind}"
            )
        return super().candidates(
            problem, fit, models, given=given, per_method=per_method, seed=seed
        )

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Put the scores into the member's card."""
        from lamps_plugins.model_merging import _export

        _export.with_scores(directory, scores)

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Json]]:
        """Labels of new texts by one task's head of an exported merge.

        Args:
            directory: The exported folder; the folder of one task inside it is a member of the
                text family.
            rows: A data file; None reads one text a line from standard input.
            options: ``task``, and how to read the file.
        """
        from lamps_plugins.model_merging import _export

        return _export.predict(directory, rows, options)

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Experts that must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.model_merging import _refused

        yield from _refused.bad_inputs(self.open_problem)


FAMILY = MergeFamily()
