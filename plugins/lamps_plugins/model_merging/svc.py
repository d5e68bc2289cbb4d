"""Singular value calibration: shrink directions of a merge that several experts share.

Paper: Li et al., When Shared Knowledge Hurts: Spectral Over-Accumulation in Model Merging, ICML
2026, arXiv 2602.05536, equations (4), (7), (8) and algorithm 1.

    D = U diag(sigma) V^T the child's update,   a_r = u_r^T D,   a_r^k = u_r^T D_k              (4)
    s_r^k = <a_r, a_r^k> / ||a_r^k||^2                                                          (8)
    gamma_r = K / sum_k max(alpha, s_r^k),    D' = scale * U diag(gamma * sigma) V^T

A wrapper: the child is another method, and vectors are what it makes of them, times ``scale``.
Ours: where LoRA experts have a child that is linear in the updates, all runs on R x R cores;
``scale``; and ``factor="global"``, one factor a layer with the norm of D', the control that tells
calibration from a change of scale. What calibration gives at scale 1 is shared, so a sweep over
the scale costs one decomposition. Oracle: of K identical experts, summed, alpha <= K gives the
expert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from lamps import space as hp
from lamps.errors import ConfigError, did_you_mean
from lamps.method import MethodSpec, Paper, Tags
from lamps.space import as_json
from lamps.types import Json
from lamps_plugins.model_merging._children import CHILDREN, DOC, child_of, draws_of, merged_by
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger, Update
from lamps_plugins.model_merging._shared import factors, shared

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._problem import MergeProblem
    from lamps_plugins.model_merging._rules.svc import Calibrated

AUTO = "auto"
_FACTS = ("inflation", "shrunk_energy", "rank_before", "rank_after", "interference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of calibration."""

    scale: float = hp.real(
        1.0, low=0.2, high=2.0, log=True, doc="Factor on the calibrated update, unitless."
    )
    child: str = hp.choice("task-arithmetic", CHILDREN, doc="What merges first.")
    alpha: float | str = hp.choice(
        AUTO,
        (AUTO, 0.25, 0.5, 1.0),
        doc="Floor of the coefficients; auto is 1 for TSV-Merge and 1 / K for others. Below 1 it "
        "also enlarges what one expert owns.",
    )
    side: str = hp.choice(
        "column", ("column", "row"), doc="Along which singular vectors; eq. (4)."
    )
    child_params: str | Mapping[str, Json] = hp.fixed("{}", doc=DOC)
    target: str = hp.fixed("", doc="Calibrate for this task alone; for all if empty.")
    factor: str = hp.fixed("direction", doc="direction, or global as a control.")


class Svc(Merger[Params]):
    """A child's merge with calibrated singular values."""

    spec = MethodSpec(
        family=FAMILY,
        summary="shrinks singular values of a merge where experts share a direction",
        paper=Paper(
            title="When Shared Knowledge Hurts: Spectral Over-Accumulation in Model Merging",
            arxiv="2602.05536",
            venue="ICML 2026",
            section="algorithm 1",
        ),
        tags=Tags(data_free=True, wrapper=True),
    )

    def merge_all(
        self, problem: MergeProblem, groups: Sequence[Group], rng: Generator
    ) -> Iterator[Update]:
        """Equations (4) to (8), group by group."""
        import torch

        child, target = self._child(), self._target(problem)
        settings: list[Json] = [child.name(), as_json(child.params), draws_of(child, rng)]
        settings += [self._alpha(problem), self.params.side, self.params.factor, target]
        for group in groups:

            def make(group: Group = group) -> dict[str, torch.Tensor]:
                with torch.no_grad():
                    found = self._calibrated(problem, group, child, target, rng)
                facts = {name: getattr(found, name) for name in _FACTS}
                counts = torch.tensor([found.blown_up, found.skipped])
                return {"update": found.update, "counts": counts, **facts}

            made = shared(problem, "svc", [*settings, list(group.names)], make)
            for name in _FACTS:
                self.note(name, made[name])
            self.note("blown_up", made["counts"][:1])
            self.note("skipped", made["counts"][1:])
            yield group, self.params.scale * made["update"]

    def _calibrated(
        self,
        problem: MergeProblem,
        group: Group,
        child: Merger[Any],
        target: int | None,
        rng: Generator,
    ) -> Calibrated:
        from lamps_plugins.model_merging._rules.svc import svc, svc_linear

        p, alpha, k = self.params, self._alpha(problem), problem.n_experts
        weight = {"average": 1.0 / k}.get(p.child)
        if p.child == "task-arithmetic":
            weight = float(child.params.scale)
        low = factors(problem, group) if weight is not None else None
        if low is not None and weight is not None:
            return svc_linear(
                low, [weight] * k, alpha=alpha, side=p.side, target=target, factor=p.factor
            )
        merged = merged_by(child, problem, group, rng)
        return svc(
            problem.deltas(group), merged, alpha=alpha, side=p.side, target=target, factor=p.factor
        )

    def _child(self) -> Merger[Any]:
        return child_of(self.params.child, self.params.child_params)

    def _alpha(self, problem: MergeProblem) -> float:
        asked = self.params.alpha
        if asked == AUTO:
            return 1.0 if self.params.child == "tsv-m" else 1.0 / problem.n_experts
        return float(asked)

    def _target(self, problem: MergeProblem) -> int | None:
        name = self.params.target
        if not name:
            return None
        if name not in problem.tasks:
            raise ConfigError(f"target={name!r} is no task. {did_you_mean(name, problem.tasks)}")
        return problem.tasks.index(name)

    def vector_scale(self, problem: MergeProblem) -> float:
        """What the child makes of vectors, times the scale."""
        return self.params.scale * self._child().vector_scale(problem)
