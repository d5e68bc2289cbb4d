"""Logistic regression on the mean of static token vectors: no network runs.

    P(c | x) = softmax_c(W x + b),   x = mean_t w_t e_t over the tokens t of a text             (1)

The vectors are pretrained and fixed. Landmarks fit the head on the first share of the training
texts; landmark 0 knows only their label shares. Oracle: with one token a text, ``x`` is that
token's vector.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps import space as hp
from lamps.method import MethodSpec, State, Tags
from lamps_plugins.text_classification import _heads, _static
from lamps_plugins.text_classification._method import FAMILY, LinearMethod

if TYPE_CHECKING:
    from lamps_plugins.text_classification._problem import TextProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the head."""

    model: str = hp.model(accepts=("static",), doc="Pretrained token vectors.")
    c: float = hp.real(
        1.0, low=1e-2, high=1e2, log=True, doc="Inverse strength of the penalty; eq. (1)."
    )
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class StaticLogreg(LinearMethod[Params]):
    """Mean of static vectors and logistic regression."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="logistic regression on the mean of static token vectors",
        tags=Tags(cheap=True),
    )

    def _vectors(self) -> _static.StaticVectors:
        return _static.vectors(str(self.model_info().path))

    def train_features(self, problem: TextProblem, n: int) -> Any:
        """Mean vectors; nothing is learned."""
        return self._vectors()(problem.texts("train")[:n])

    def fit_head(self, x: Any, targets: np.ndarray, n_labels: int) -> tuple[_heads.Head, bool]:
        """Logistic regression on scaled features, so that C means the same for all vectors."""
        balanced = self.params.class_weights == "balanced"
        return _heads.frozen_head(x, targets, n_labels, c=self.params.c, balanced=balanced)

    def text_features(self, problem: TextProblem) -> Callable[[Sequence[str]], Any]:
        """The mean vectors."""
        return self._vectors()

    def extra_state(self) -> State:
        """Nothing besides the head."""
        return {}

    def load_extra_state(self, state: State) -> None:
        """Nothing besides the head."""

    def write(self, problem: TextProblem, directory: Path) -> None:
        """A copy of the vectors and their tokenizer."""
        (directory / "vectors").mkdir()
        for name in _static.FILES:
            shutil.copyfile(Path(str(self.model_info().path)) / name, directory / "vectors" / name)

    def feature_bytes(self, problem: TextProblem) -> int:
        """Bytes of what `write` copies."""
        folder = Path(str(self.model_info().path))
        return sum((folder / name).stat().st_size for name in _static.FILES)

    def n_feature_params(self) -> int:
        """Weights of the vectors."""
        return self._vectors().n_params

    def export_kind(self) -> str:
        """See `LinearMethod.export_kind`."""
        return "static"
