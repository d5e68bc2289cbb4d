"""LoRA factors side by side: the weighted sum of adapters, without loss.

Paper: Hu et al., LoRA: Low-rank adaptation of large language models, ICLR 2022, arXiv 2106.09685,
section 4.1, for the update ``s B A``; `peft` merges adapters like this under the name ``cat``.

    B = [s_1 B_1 .. s_K B_K],  A = [A_1; ..; A_K],    D = scale * B A                           (1)

It is task arithmetic, from factors of joint rank R. Oracle: task arithmetic on dense updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of concatenation."""

    scale: float = hp.real(
        0.3, low=0.02, high=1.5, log=True, doc="Weight of each adapter, unitless; eq. (1)."
    )


class LoraCat(Merger[Params]):
    """All adapters at once."""

    spec = MethodSpec(
        family=FAMILY,
        summary="puts the factors of LoRA experts side by side",
        paper=Paper(
            title="LoRA: Low-rank adaptation of large language models",
            arxiv="2106.09685",
            venue="ICLR 2022",
            section="4.1",
        ),
        tags=Tags(data_free=True),
    )
    needs: ClassVar[str | None] = "lora"

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
        """Equation (1)."""
        from lamps_plugins.model_merging._rules.lora import lora_cat

        weights = [self.params.scale] * problem.n_experts
        return lora_cat(problem.low_rank(group), weights).merged()

    def vector_scale(self, problem: MergeProblem) -> float:
        """The sum of vectors too."""
        return self.params.scale * problem.n_experts
