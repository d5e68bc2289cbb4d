"""DARE: drop entries of each update at random, rescale the rest, then merge by another rule.

Paper: Yu et al., Language models are super Mario: Absorbing abilities from homologous models as a
free lunch, ICML 2024, arXiv 2311.03099, section 3.

    tau_k = m_k * tau_k / (1 - drop),    m_k ~ Bernoulli(1 - drop),    then TA or TIES          (1)

A mask belongs to an expert and a layer by their names and the trial's seed, so neither the order
of the experts nor how layers are batched changes it. Vectors are not dropped. Oracle: ``drop=0``
is the child alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.model_merging import task_arithmetic, ties
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger, Update
from lamps_plugins.model_merging._views import with_updates

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of DARE."""

    scale: float = hp.real(
        0.3, low=0.02, high=3.0, log=True, doc="Factor of the rule behind; TIES wants about 1."
    )
    drop: float = hp.real(
        0.8, low=0.0, high=0.95, doc="Probability that an entry is dropped; p of eq. (1)."
    )
    rule: str = hp.choice(
        "task-arithmetic", ("task-arithmetic", "ties"), doc="What merges the rest; eq. (1)."
    )
    keep: float = hp.real(
        0.2, low=0.05, high=1.0, log=True, doc="Share of entries that TIES keeps; else unused."
    )


class Dare(Merger[Params]):
    """Updates with most entries dropped."""

    spec = MethodSpec(
        family=FAMILY,
        summary="drops entries of each update at random and rescales before merging",
        paper=Paper(
            title="Language models are super Mario: Absorbing abilities from homologous models "
            "as a free lunch",
            arxiv="2311.03099",
            venue="ICML 2024",
            section="3",
        ),
        tags=Tags(data_free=True),
    )

    def merge_all(
        self, problem: MergeProblem, groups: Sequence[Group], rng: Generator
    ) -> Iterator[Update]:
        """Equation (1), then the rule."""
        from lamps_plugins.model_merging._rules.dare import dare, mask_seeds

        seed, drop = int(rng.integers(2**63)), self.params.drop

        def dropped(group: Group) -> Tensor:
            return dare(problem.deltas(group), drop, mask_seeds(seed, problem.tasks, group.names))

        view = with_updates(problem, dropped, ["dare", drop, str(seed)])
        yield from self._rule().merge_all(view, groups, rng)

    def vector_scale(self, problem: MergeProblem) -> float:
        """That of the rule."""
        return self._rule().vector_scale(problem)

    def _rule(self) -> Merger[Any]:
        p = self.params
        if p.rule == "ties":
            return ties.Ties(ties.Params(scale=p.scale, keep=p.keep))
        return task_arithmetic.TaskArithmetic(task_arithmetic.Params(scale=p.scale))
