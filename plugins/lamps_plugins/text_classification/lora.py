"""Low-rank updates of the attention projections (LoRA).

Paper: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022, arXiv 2106.09685,
section 4.1.

    W = W_0 + (alpha / r) B A,      A: [r, d_in] random,  B: [d_out, r] zero at the start       (1)

Ours, not the paper's: ``alpha`` is a multiple of the rank, the head is trained with it, and the
product is added to the weights before export, so the exported network is as fast as the base.
Oracle: with B = 0 the logits are the base's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lamps import space as hp
from lamps.method import MethodSpec, Paper
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._method import FAMILY
from lamps_plugins.text_classification._peft import PeftMethod, attention_layers, linear_layers

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of LoRA, and of DoRA, which shares them."""

    model: str = hp.model(accepts=("encoder", "decoder"), doc="Pretrained network.")
    n_layers: int = hp.choice(
        0, _nets.DEPTHS, doc="Lower layers that are kept; 0, or more than there are, keeps all."
    )
    rank: int = hp.integer(8, low=2, high=32, log=True, doc="Rank r of the update; eq. (1).")
    scale: float = hp.choice(2.0, (1.0, 2.0, 4.0), doc="alpha / r; eq. (1).")
    dropout: float = hp.fixed(0.05, doc="Dropout before A.")
    targets: str = hp.choice(
        "attention", ("attention", "all"), doc="Layers with an update: q, k, v or all."
    )
    lr: float = hp.real(2e-3, low=2e-4, high=1e-2, log=True, doc="Peak learning rate of A and B.")
    head_lr: float = hp.fixed(1e-3, doc="Peak learning rate of the last layer.")
    epochs: int = hp.integer(3, low=1, high=6, doc="Passes over the training set.")
    batch_size: int = hp.choice(16, (8, 16, 32), doc="Examples a step.")
    micro_batch: int = hp.fixed(0, doc="Examples a forward pass; 0 means the whole batch.")
    weight_decay: float = hp.fixed(0.01, doc="Decoupled weight decay of matrices.")
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class Lora(PeftMethod[Params]):
    """Low-rank adapters, merged before export."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="trains low-rank updates of the attention projections",
        paper=Paper(
            title="LoRA: Low-Rank Adaptation of Large Language Models",
            arxiv="2106.09685",
            venue="ICLR 2022",
            section="4.1",
        ),
    )
    decomposed: ClassVar[bool] = False

    def config(self, net: nn.Module) -> Any:
        """The peft configuration for a network."""
        from peft import LoraConfig

        p = self.params
        layers = attention_layers(net) if p.targets == "attention" else linear_layers(net)
        return LoraConfig(
            r=p.rank,
            lora_alpha=p.scale * p.rank,
            lora_dropout=p.dropout,
            target_modules=layers,
            use_dora=self.decomposed,
        )
