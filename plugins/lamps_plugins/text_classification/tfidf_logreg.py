"""Logistic regression on TF-IDF of words or characters: the baseline that every pool contains.

No pretrained model, seconds of training, microseconds of inference; on topics with a few thousand
texts it is hard to beat.

    P(c | x) = softmax_c(W x + b),   x = tf-idf of the text,   min C sum_i loss_i + |W|^2 / 2   (1)

Landmarks learn terms and weights from the first share of the training texts; landmark 0 knows only
their label shares. Oracle: scikit-learn's own pipeline of ``TfidfVectorizer`` and
``LogisticRegression`` gives the same logits, up to a common shift.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps import space as hp
from lamps.method import MethodSpec, State, Tags
from lamps_plugins.text_classification import _export
from lamps_plugins.text_classification._method import FAMILY, LinearMethod
from lamps_plugins.text_classification._tfidf import ANALYZERS, Tfidf

if TYPE_CHECKING:
    from lamps_plugins.text_classification._problem import TextProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the baseline."""

    features: str = hp.choice(
        "word", tuple(ANALYZERS), doc="Words and pairs, 2 to 5 characters, or both."
    )
    c: float = hp.real(
        10.0, low=0.1, high=100.0, log=True, doc="Inverse strength of the penalty; eq. (1)."
    )
    max_features: int = hp.fixed(50_000, doc="Terms of each kind, the most frequent ones.")
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class TfidfLogreg(LinearMethod[Params]):
    """TF-IDF and logistic regression."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="logistic regression on TF-IDF of words or characters",
        tags=Tags(baseline=True, cheap=True),
    )

    tfidf_: Tfidf | None = None

    def train_features(self, problem: TextProblem, n: int) -> Any:
        """Terms are learned from the same ``n`` texts."""
        texts = problem.texts("train")[:n]
        self.tfidf_ = Tfidf(self.params.features, self.params.max_features).fit(texts)
        return self.tfidf_.transform(texts)

    def text_features(self, problem: TextProblem) -> Callable[[Sequence[str]], Any]:
        """TF-IDF with the terms that were learned."""
        assert self.tfidf_ is not None
        return self.tfidf_.transform

    def extra_state(self) -> State:
        """Terms and their weights."""
        assert self.tfidf_ is not None
        terms, arrays = self.tfidf_.state()
        return {"terms": terms, **arrays}

    def load_extra_state(self, state: State) -> None:
        """The inverse of `extra_state`."""
        arrays = {k: np.asarray(v) for k, v in state.items() if k.startswith("idf_")}
        self.tfidf_ = Tfidf(self.params.features, self.params.max_features).load(
            state["terms"], arrays
        )

    def write(self, problem: TextProblem, directory: Path) -> None:
        """Terms as JSON, their weights as safetensors."""
        assert self.tfidf_ is not None
        _export.write_tfidf(directory, *self.tfidf_.state())

    def export_kind(self) -> str:
        """See `LinearMethod.export_kind`."""
        return "tfidf"
