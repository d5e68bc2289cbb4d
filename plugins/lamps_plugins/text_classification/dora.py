"""Low-rank updates of direction with a learned length of each row (DoRA).

Paper: Liu et al., DoRA: Weight-Decomposed Low-Rank Adaptation, ICML 2024, arXiv 2402.09353,
section 4.1.

    W = m * V / |V|,    V = W_0 + (alpha / r) B A,    m = |W_0| at the start, norms of rows    (1)

Everything else is `lora`: one switch of peft apart, the same params, merged before export.
Oracle: at the start, with B = 0, the logits are the base's.
"""

from __future__ import annotations

from typing import ClassVar

from lamps.method import MethodSpec, Paper
from lamps_plugins.text_classification import lora
from lamps_plugins.text_classification._method import FAMILY

Params = lora.Params


class Dora(lora.Lora):
    """Weight-decomposed low-rank adapters, merged before export."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="trains low-rank updates of direction and the length of each row",
        paper=Paper(
            title="DoRA: Weight-Decomposed Low-Rank Adaptation",
            arxiv="2402.09353",
            venue="ICML 2024",
            section="4.1",
        ),
    )
    decomposed: ClassVar[bool] = True
