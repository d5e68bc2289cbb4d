"""Training of biases only (BitFit).

Paper: Ben Zaken, Ravfogel, Goldberg, BitFit: Simple Parameter-efficient Fine-tuning for
Transformer-based Masked Language-models, ACL 2022, arXiv 2106.10199, section 3.

    h = g(W_0 x + b),      W_0 fixed, b trained, in every layer                                 (1)

Networks without biases (Llama) train the scales of their norms instead, the vectors that stand in
the same places. Ours, not the paper's: that substitute. Oracle: after training every matrix of the
base is bit for bit the pretrained one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._method import FAMILY
from lamps_plugins.text_classification._tuned import TunedMethod

if TYPE_CHECKING:
    from torch import nn

    from lamps_plugins.text_classification._problem import TextProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of BitFit."""

    model: str = hp.model(accepts=("encoder", "decoder"), doc="Pretrained network.")
    n_layers: int = hp.choice(
        0, _nets.DEPTHS, doc="Lower layers that are kept; 0, or more than there are, keeps all."
    )
    lr: float = hp.real(
        3e-3, low=3e-4, high=1e-2, log=True, doc="Peak learning rate of the biases; eq. (1)."
    )
    head_lr: float = hp.fixed(1e-3, doc="Peak learning rate of the last layer.")
    epochs: int = hp.integer(3, low=1, high=6, doc="Passes over the training set.")
    batch_size: int = hp.choice(16, (8, 16, 32), doc="Examples a step.")
    micro_batch: int = hp.fixed(0, doc="Examples a forward pass; 0 means the whole batch.")
    weight_decay: float = hp.fixed(
        0.0, doc="Decoupled weight decay of matrices, the head's alone."
    )
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class Bitfit(TunedMethod[Params]):
    """Biases and the head are trained."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="trains the biases of a pretrained network",
        paper=Paper(
            title=(
                "BitFit: Simple Parameter-efficient Fine-tuning for Transformer-based Masked "
                "Language-models"
            ),
            arxiv="2106.10199",
            venue="ACL 2022",
            section="3",
        ),
    )

    def adapt(self, net: nn.Module, problem: TextProblem) -> nn.Module:
        """Freeze everything but biases (vectors where there are none) and the head."""
        heads = _nets.head_names(net)
        body = {n: p for n, p in net.named_parameters() if n not in heads}
        chosen = {n for n in body if n.endswith(".bias")}
        if not chosen:
            chosen = {n for n, p in body.items() if p.ndim == 1}
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(name in heads or name in chosen)
        return net
