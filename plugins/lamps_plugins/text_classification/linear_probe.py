"""Logistic regression on what a frozen pretrained network says about a text.

    P(c | h) = softmax_c(W h + b),   h = mean_t f(text)_t over its tokens t                     (1)

The features are computed once for a model and a dataset and kept on disk, so further candidates of
the same model cost milliseconds. Landmarks fit the head on the first share of the training texts;
landmark 0 fits it on the first block's with a strong penalty. Exported as the encoder's folder
beside the head: the classifier classes of transformers read one token and cannot represent the
mean. Oracle: cached features equal those of the exported encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps import space as hp
from lamps.method import MethodSpec, State
from lamps.types import Split
from lamps_plugins.text_classification import _export, _features, _heads, _nets
from lamps_plugins.text_classification._method import FAMILY, LinearMethod

if TYPE_CHECKING:
    from lamps_plugins.text_classification._problem import TextProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of the probe."""

    model: str = hp.model(accepts=("encoder", "decoder"), doc="Pretrained network.")
    n_layers: int = hp.choice(
        0, _nets.DEPTHS, doc="Lower layers that are kept; 0, or more than there are, keeps all."
    )
    pooling: str = hp.choice(
        "mean",
        ("mean", "token"),
        doc="Mean over tokens, or the first (encoder) or last (decoder) one.",
    )
    c: float = hp.real(
        0.1, low=1e-3, high=10.0, log=True, doc="Inverse strength of the penalty; eq. (1)."
    )
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class LinearProbe(LinearMethod[Params]):
    """A linear head on frozen features."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY, summary="logistic regression on frozen features of a pretrained network"
    )

    encoder_: Any = None

    def train_features(self, problem: TextProblem, n: int) -> Any:
        """Cached features."""
        p = self.params
        found = _features.features(problem, self.model_info(), "train", n_layers=p.n_layers, n=n)
        return found[p.pooling]

    def fit_head(self, x: Any, targets: np.ndarray, n_labels: int) -> tuple[_heads.Head, bool]:
        """Logistic regression on scaled features, so that C means the same for all networks."""
        balanced = self.params.class_weights == "balanced"
        return _heads.frozen_head(x, targets, n_labels, c=self.params.c, balanced=balanced)

    def zero_head(self, x: Any, targets: np.ndarray, n_labels: int) -> _heads.Head:
        """The head that every fine-tuned network starts from, on these features."""
        return _heads.frozen_head(x, targets, n_labels)[0]

    def _encoder(self) -> Any:
        if self.encoder_ is None:
            self.encoder_ = _nets.load_encoder(self.model_info(), self.params.n_layers)
        return self.encoder_

    def text_features(self, problem: TextProblem) -> Callable[[Sequence[str]], Any]:
        """Features by the network itself, as the exported classifier computes them."""
        info = self.model_info()
        return _features.embedder(
            self._encoder(),
            _features.tokenizer_of(info),
            limit=_features.token_limit(info, problem.max_length),
            last=info.kind == "decoder",
            pooling=self.params.pooling,
        )

    def known_logits(self, problem: TextProblem, split: Split) -> np.ndarray | None:
        """The head on the split's features, which all probes of this network share."""
        assert self.head_ is not None
        p = self.params
        found = _features.features(problem, self.model_info(), split, n_layers=p.n_layers)
        weight, bias = self.head_
        return np.asarray(found[p.pooling] @ weight.T + bias, dtype=np.float32)

    def extra_state(self) -> State:
        """Nothing besides the head."""
        return {}

    def load_extra_state(self, state: State) -> None:
        """Nothing besides the head."""

    def write(self, problem: TextProblem, directory: Path) -> None:
        """The encoder and its tokenizer in a folder of their own, and how to pool."""
        info = self.model_info()
        limit = _features.token_limit(info, problem.max_length)
        _export.write_encoder(
            directory,
            self._encoder(),
            _features.tokenizer_of(info),
            limit=limit,
            last=info.kind == "decoder",
            pooling=self.params.pooling,
        )

    def feature_bytes(self, problem: TextProblem) -> int:
        """Bytes of what `write` writes, counted from the tensors."""
        return _export.network_bytes(self._encoder(), _features.tokenizer_of(self.model_info()))

    def n_feature_params(self) -> int:
        """Weights of the encoder."""
        return _export.count(self._encoder())

    def export_kind(self) -> str:
        """See `LinearMethod.export_kind`."""
        return "probe"
