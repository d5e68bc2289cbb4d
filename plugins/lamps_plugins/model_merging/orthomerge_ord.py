"""OrthoMerge of any experts: the rotation part in the Lie algebra, the rest by another method.

Paper: Yang et al., Orthogonal Model Merging, ICML 2026, arXiv 2602.05943, orthogonal-residual
decoupling.

    R_k = argmin ||W_0 R - T_k||, R a rotation;   T_k = W_k (variant G), or W_0 + m_k * D_k with
          m_k the rows of D_k that point away from the mean update (variant C)                  (1)
    A_k = (R_k + I)^-1 (R_k - I),   A = eta * mean ||A_k|| * sum A_k / ||sum A_k||              (2)
    W = W_0 cayley(A) + scale * child(W_k - W_0 R_k)                                            (3)

A wrapper: the child merges what the rotations leave, and vectors. Ours: a ridge in (1), which
picks the rotation closest to the identity where W_0 does not fix it (the Cayley map may not exist
without it), no rotation where R + I is singular, and eta. Rotations and residuals are shared:
every child, scale and eta reuses them. Oracle: eta = 0 is the child.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps.types import Json
from lamps_plugins.model_merging._children import CHILDREN, DOC, child_of
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger, Update
from lamps_plugins.model_merging._shared import shared
from lamps_plugins.model_merging._views import with_updates

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem

_CHILDREN = (*CHILDREN, "svc")
_TA_SCALE = 0.2  # the authors' coefficient of summed residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of OrthoMerge on any experts."""

    scale: float = hp.real(
        1.0, low=0.1, high=1.5, log=True, doc="Factor on the merged residual, unitless; eq. (3)."
    )
    variant: str = hp.choice("C", ("C", "G"), doc="Target of the rotations; eq. (1).")
    child: str = hp.choice("ties", _CHILDREN, doc="What merges the residuals; eq. (3).")
    eta: float = hp.real(1.0, low=0.0, high=1.5, doc="Strength of the merged rotation; eq. (2).")
    length: str = hp.choice(
        "mean", ("mean", "median", "max"), doc="Which of the experts' norms A has; eq. (2)."
    )
    directions: str = hp.choice(
        "theta", ("theta", "uniform"), doc="Whether directions weigh by their norm or alike."
    )
    threshold: float = hp.fixed(0.0, doc="Cosine below which a row points away; variant C.")
    reference: str = hp.fixed("inclusive", doc="Mean update with or without the own: others.")
    ridge: float = hp.fixed(1e-4, doc="Ridge of (1) as a share of the largest eigenvalue.")
    widest: int = hp.fixed(
        0, doc="Matrices with more inputs are left to the child, 0 for none: costs grow by cubes."
    )
    child_params: str | Mapping[str, Json] = hp.fixed(
        "{}", doc=DOC + " Task arithmetic starts from scale 0.2."
    )


class OrthomergeOrd(Merger[Params]):
    """Rotations merged as rotations, residuals by a child."""

    spec = MethodSpec(
        family=FAMILY,
        summary="splits experts into rotation and residual and merges each in its own way",
        paper=Paper(title="Orthogonal Model Merging", arxiv="2602.05943", venue="ICML 2026"),
        tags=Tags(data_free=True, wrapper=True),
    )

    def merge_all(
        self, problem: MergeProblem, groups: Sequence[Group], rng: Generator
    ) -> Iterator[Update]:
        """Equations (1) to (3)."""
        import torch

        from lamps_plugins.model_merging._rules.rotation import cayley

        p, child = self.params, self._child()
        if p.eta == 0.0:
            for group, update in child.merge_all(problem, groups, rng):
                yield group, p.scale * update
            return

        def residuals(group: Group) -> Tensor:
            return self._parts(problem, group)["residuals"]

        view = with_updates(problem, residuals, ["orthomerge", *self._settings()])
        for group, update in child.merge_all(view, groups, rng):
            parts = self._parts(problem, group)
            if "skew" not in parts:
                yield group, p.scale * update
                continue
            for name in ("explained", "angle", "refused"):
                self.note(name, parts[name])
            skew = p.eta * parts["skew"]
            eye = torch.eye(skew.shape[-1], dtype=skew.dtype)
            base = problem.base_weights(group)
            turn = base.to(skew.dtype) @ (cayley(skew) - eye)
            yield group, turn.to(base.dtype) + p.scale * update

    def _settings(self) -> list[Json]:
        p = self.params
        return [
            p.variant, p.threshold, p.reference, p.ridge, p.length, p.directions, p.widest
        ]  # fmt: skip

    def _parts(self, problem: MergeProblem, group: Group) -> dict[str, torch.Tensor]:
        """Merged rotation at eta = 1 and residuals of a group, shared; no rotation if too wide.

        Shape:
            ``skew`` [L, n, n], ``residuals`` [K, L, m, n], ``explained``, ``angle``, ``refused``
            [K, L].
        """
        import torch

        from lamps_plugins.model_merging._rules.orthomerge import decouple, merge_skew

        p = self.params
        if 0 < p.widest < group.shape[1]:
            return {"residuals": problem.deltas(group)}

        def make() -> dict[str, Tensor]:
            base, deltas = problem.base_weights(group), problem.deltas(group)
            found: dict[str, list[Tensor]] = {}
            # Layer by layer: the rotations of K experts take many times the memory of a layer.
            for i in range(len(base)):
                with torch.no_grad():
                    parts = decouple(
                        base[i : i + 1], deltas[:, i : i + 1], variant=p.variant,
                        threshold=p.threshold, reference=p.reference, ridge=p.ridge,
                    )  # fmt: skip
                    merged = merge_skew(parts.skew, length=p.length, directions=p.directions)
                one = {
                    "skew": merged,
                    "residuals": parts.residuals.float(),
                    "explained": parts.explained,
                    "angle": parts.mean_angle(),
                    "refused": parts.refused.float(),
                }
                for name, value in one.items():
                    found.setdefault(name, []).append(value)
            return {
                name: torch.cat(values, 0 if name == "skew" else 1)
                for name, values in found.items()
            }

        return shared(problem, "orthomerge", [*self._settings(), list(group.names)], make)

    def _child(self) -> Merger[Any]:
        p = self.params
        given: dict[str, Json] = {"scale": _TA_SCALE} if p.child == "task-arithmetic" else {}
        return child_of(p.child, p.child_params, known=_CHILDREN, **given)

    def vector_scale(self, problem: MergeProblem) -> float:
        """What the child makes of vectors, times the scale."""
        return self.params.scale * self._child().vector_scale(problem)
