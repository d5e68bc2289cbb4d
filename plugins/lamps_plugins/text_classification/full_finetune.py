"""Fine-tuning of the whole network.

Paper: Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, NAACL 2019, arXiv
1810.04805, section 4.1: every weight moves, in small steps, for a few epochs.

    theta <- theta - rate(s) (AdamW(grad) + decay theta)    rate: warm-up, then linear to zero  (1)

Ours, not the paper's: the token embeddings stay as they are unless asked for (they are half of a
small encoder's weights and most of their rows never occur), and the head starts from that of
landmark 0, not from noise.
Oracle: with ``lr`` 0 only the last layer moves.
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
    """Hyperparameters of full fine-tuning."""

    model: str = hp.model(accepts=("encoder", "decoder"), doc="Pretrained network.")
    n_layers: int = hp.choice(
        0, _nets.DEPTHS, doc="Lower layers that are kept; 0, or more than there are, keeps all."
    )
    lr: float = hp.real(1e-4, low=1e-5, high=5e-4, log=True, doc="Peak learning rate; eq. (1).")
    head_lr: float = hp.fixed(1e-3, doc="Peak learning rate of the last layer.")
    epochs: int = hp.integer(3, low=1, high=6, doc="Passes over the training set.")
    batch_size: int = hp.choice(16, (8, 16, 32), doc="Examples a step.")
    micro_batch: int = hp.fixed(0, doc="Examples a forward pass; 0 means the whole batch.")
    weight_decay: float = hp.fixed(0.01, doc="Decoupled weight decay of matrices; eq. (1).")
    train_embeddings: bool = hp.fixed(False, doc="Whether token embeddings move too.")
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class FullFinetune(TunedMethod[Params]):
    """All weights are trained."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="fine-tunes every layer of a pretrained network",
        paper=Paper(
            title=(
                "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"
            ),
            arxiv="1810.04805",
            venue="NAACL 2019",
            section="4.1",
        ),
    )

    def adapt(self, net: nn.Module, problem: TextProblem) -> nn.Module:
        """Freeze the input embeddings unless they are asked for."""
        if not self.params.train_embeddings:
            embeddings = getattr(
                net.base_model, "embeddings", None
            )  # BERT's also holds positions and a norm
            for module in (net.get_input_embeddings(), embeddings):  # type: ignore[operator]
                if module is not None:
                    module.requires_grad_(False)
        return net
