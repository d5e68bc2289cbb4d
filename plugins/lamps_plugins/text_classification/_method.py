"""What all methods of the family share, and the whole life of the linear ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import MethodFailed, ProblemError
from lamps.method import Method, ModelInfo, State
from lamps.space import as_json
from lamps.types import Evaluation, Split
from lamps_plugins.text_classification import _export, _heads
from lamps_plugins.text_classification._models import CATALOGUE

if TYPE_CHECKING:
    from lamps_plugins.text_classification._problem import TextProblem

FAMILY = "text-classification"
P = TypeVar("P")
LogitsOf = Callable[[Sequence[str]], np.ndarray]


def first_prefix(problem: TextProblem) -> int:
    """Examples of the smallest landmark that sees any: what landmark 0 may look at."""
    return problem.prefix(min(f for f in problem.fidelities if f > 0))


def check_fidelity(problem: TextProblem, fidelity: float) -> None:
    """Refuse a fidelity at which the problem has no landmark."""
    if fidelity not in problem.fidelities:
        known = ", ".join(f"{f:g}" for f in problem.fidelities)
        raise ProblemError(
            f"fidelity {fidelity!r} is no landmark of the problem, expected one of {known}"
        )


class TextMethod(Method["TextProblem", P]):
    """A method that gives logits for texts."""

    params: P

    @abstractmethod
    def logits_of(self, problem: TextProblem) -> LogitsOf:
        """From texts to logits ``[n, n_labels] float32``, as the exported classifier does."""

    @abstractmethod
    def sizes(self, problem: TextProblem) -> tuple[int, int]:
        """Number of weights, and bytes that `save` writes."""

    def known_logits(self, problem: TextProblem, split: Split) -> np.ndarray | None:
        """Logits of a whole split where features that are cached anyway give them for nothing."""
        return None

    def signals(self) -> dict[str, float]:
        """Diagnostic numbers that go with an evaluation."""
        return {}

    def evaluate(self, problem: TextProblem, split: Split = "val") -> Evaluation:
        """See `Method.evaluate`; measured by `_measure.evaluate_classifier`."""
        from lamps_plugins.text_classification._measure import evaluate_classifier

        self.require_fitted()
        n_params, size_bytes = self.sizes(problem)
        found = evaluate_classifier(
            problem,
            split,
            self.logits_of(problem),
            n_params=n_params,
            size_bytes=size_bytes,
            known_logits=self.known_logits(problem, split),
        )
        return Evaluation(found.objectives, {**found.signals, **self.signals()})

    def require_fitted(self) -> None:
        """Refuse to work before the first landmark."""
        if self.fidelity_ is None:
            raise MethodFailed(f"{self.name()} was never fitted; call partial_fit first")

    def model_info(self) -> ModelInfo:
        """The pretrained model that the params name, ready to load."""
        return CATALOGUE.resolve(str(getattr(self.params, "model", "")))

    def card(self, problem: TextProblem) -> _export.Card:
        """What the exported folder says about itself."""
        info = self.model_info() if hasattr(self.params, "model") else None
        return _export.Card(
            family=FAMILY,
            method=self.name(),
            params=as_json(self.params),
            labels=tuple(problem.labels),
            multi_label=problem.multi_label,
            max_length=problem.max_length,
            data_hash=problem.data_hash("train"),
            data_name=problem.name,
            fidelity=float(self.fidelity_ or 0.0),
            model=info.name if info else None,
            model_licence=info.licence if info else None,
            model_source=info.source if info else None,
            text_column=_text(problem.card().get("text_column")),
        )


class LinearMethod(TextMethod[P]):
    """A linear head, fitted by L-BFGS, on features that need no training of a network."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.head_: _heads.Head | None = None
        self.converged_ = True
        self.size_: tuple[int, int] | None = None

    @abstractmethod
    def train_features(self, problem: TextProblem, n: int) -> Any:
        """Features [n, d] of the first ``n`` training texts, the only ones to learn from."""

    @abstractmethod
    def text_features(self, problem: TextProblem) -> Callable[[Sequence[str]], Any]:
        """The function from texts to features, [n, d]."""

    @abstractmethod
    def extra_state(self) -> State:
        """What besides the head must be kept."""

    @abstractmethod
    def load_extra_state(self, state: State) -> None:
        """The inverse of `extra_state`."""

    @abstractmethod
    def write(self, problem: TextProblem, directory: Path) -> None:
        """Write everything that the features need into a folder."""

    def n_feature_params(self) -> int:
        """Weights besides the head's."""
        return 0

    def feature_bytes(self, problem: TextProblem) -> int:
        """Bytes of what `write` writes, measured by writing into a folder that is thrown away."""
        return _export.written(lambda folder: self.write(problem, folder))

    def fit_head(self, x: Any, targets: np.ndarray, n_labels: int) -> tuple[_heads.Head, bool]:
        """The head of a landmark, and whether its fit converged."""
        p: Any = self.params
        return _heads.fit_logistic(
            x, targets, n_labels, c=p.c, balanced=p.class_weights == "balanced"
        )

    def zero_head(self, x: Any, targets: np.ndarray, n_labels: int) -> _heads.Head:
        """The head of landmark 0, from the few examples of the first block: their label shares."""
        return _heads.constant_head(targets, n_labels, x.shape[1])

    def partial_fit(self, problem: TextProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; each landmark is a fit of its own and needs no earlier one."""
        check_fidelity(problem, fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        n = problem.prefix(fidelity) if fidelity > 0 else first_prefix(problem)
        x = self.train_features(problem, n)
        targets = problem.targets("train")[:n]
        if fidelity > 0:
            self.head_, self.converged_ = self.fit_head(x, targets, problem.n_labels)
        else:
            self.head_ = self.zero_head(x, targets, problem.n_labels)
        self.fidelity_, self.size_ = fidelity, None
        return self

    def logits_of(self, problem: TextProblem) -> LogitsOf:
        """See `TextMethod.logits_of`."""
        assert self.head_ is not None
        weight, bias = self.head_
        features = self.text_features(problem)
        transposed = np.ascontiguousarray(weight.T)
        return lambda texts: np.asarray(features(texts) @ transposed + bias, dtype=np.float32)

    def signals(self) -> dict[str, float]:
        """Whether L-BFGS got to its tolerance."""
        return {"converged": float(self.converged_)}

    def sizes(self, problem: TextProblem) -> tuple[int, int]:
        """Measured by writing once a landmark to a temporary folder; large copies are counted."""
        if self.size_ is None:
            assert self.head_ is not None
            head = self.head_
            own = _export.written(lambda folder: self._write_own(problem, folder))
            n_params = head[0].size + head[1].size + self.n_feature_params()
            self.size_ = (n_params, own + self.feature_bytes(problem))
        return self.size_

    def _write_own(self, problem: TextProblem, directory: Path) -> None:
        assert self.head_ is not None
        _export.write_head(directory, self.head_)
        _export.write_card(directory, self.card(problem), kind=self.export_kind())

    def state_dict(self) -> State:
        """See `Method.state_dict`."""
        state: State = {"fidelity_": self.fidelity_, "converged_": self.converged_}
        if self.head_ is not None:
            state |= {"weight": self.head_[0], "bias": self.head_[1], **self.extra_state()}
        return state

    def load_state_dict(self, state: State, problem: TextProblem) -> None:
        """See `Method.load_state_dict`."""
        self.fidelity_, self.converged_ = state["fidelity_"], bool(state["converged_"])
        self.size_ = None
        if "weight" in state:
            self.head_ = (_float32(state["weight"]), _float32(state["bias"]))
            self.load_extra_state(state)

    def save(self, problem: TextProblem, directory: Path) -> None:
        """A folder of JSON and safetensors that `lamps predict` reads; see `_export`."""
        self.require_fitted()
        self._write_own(problem, directory)
        self.write(problem, directory)

    @abstractmethod
    def export_kind(self) -> str:
        """The word in ``lamps.json`` by which `_export` knows how to load the folder."""


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _float32(value: Any) -> np.ndarray:
    return np.asarray(value, dtype=np.float32)
