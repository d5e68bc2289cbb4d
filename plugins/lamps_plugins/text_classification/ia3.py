"""Learned rescaling of keys, values and feed-forward activations ((IA)^3).

Paper: Liu et al., Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context
Learning, NeurIPS 2022, arXiv 2205.05638, section 3.3.

    attention = softmax(Q (l_k * K)^T / sqrt(d)) (l_v * V)                                      (1)
    feed-forward = W_2 (l_ff * act(W_1 x))

The three vectors start at one and are all that is trained besides the head; they are multiplied
into the weights before export. Ours, not the paper's: the head, which the paper's text-to-text
model has no need of.
Oracle: at the start the logits are the base's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Paper
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._method import FAMILY
from lamps_plugins.text_classification._peft import (
    PeftMethod,
    attention_layers,
    second_feed_forward,
)

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of (IA)^3."""

    model: str = hp.model(accepts=("encoder", "decoder"), doc="Pretrained network.")
    n_layers: int = hp.choice(
        0, _nets.DEPTHS, doc="Lower layers that are kept; 0, or more than there are, keeps all."
    )
    lr: float = hp.real(
        2e-2, low=3e-3, high=5e-2, log=True, doc="Peak learning rate of the vectors; eq. (1)."
    )
    head_lr: float = hp.fixed(1e-3, doc="Peak learning rate of the last layer.")
    epochs: int = hp.integer(3, low=1, high=6, doc="Passes over the training set.")
    batch_size: int = hp.choice(16, (8, 16, 32), doc="Examples a step.")
    micro_batch: int = hp.fixed(0, doc="Examples a forward pass; 0 means the whole batch.")
    weight_decay: float = hp.fixed(0.0, doc="Decoupled weight decay of matrices.")
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class Ia3(PeftMethod[Params]):
    """Rescaling vectors, merged before export."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="trains vectors that rescale keys, values and feed-forward activations",
        paper=Paper(
            title=(
                "Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context "
                "Learning"
            ),
            arxiv="2205.05638",
            venue="NeurIPS 2022",
            section="3.3",
        ),
    )

    def config(self, net: nn.Module) -> Any:
        """The peft configuration for a network."""
        from peft import IA3Config

        inner = second_feed_forward(net)
        if not inner:
            raise ProblemError(
                f"{type(net).__name__} has no feed-forward layer of a known name; use lora instead"
            )
        keys = attention_layers(net, without=("query", "q_proj", "q_lin", "query_proj"))
        return IA3Config(target_modules=keys + inner, feedforward_modules=inner)
