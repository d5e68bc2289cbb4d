"""CircuMerge: merge low-rank updates inside small sketches made by shared circulant transforms.

Paper: Sketch-based low-rank model merging with shared circulant transforms, ICML 2026; the
abstract fixes the steps (shared transform, sampling, sketches, rule, rebuilt adapter), not the
formulas, which are ours:

    B~ = S_m [B_1 .. B_K],  A~ = [A_1; ..; A_K] S_n^T,   S = sampled rows of a circulant
    M_k = B~_k A~_k                                                 sketches, q x p
    M = rule(M_1 .. M_K),   G = B~^+ M A~^+                         R x R
    D = [B_1 .. B_K] G [A_1; ..; A_K]

With ``q, p >= R`` and samples of full rank ``B~^+ B~ = I``, so linear rules come out exactly. No
dense update is formed at any step. Elementwise rules depend on the coordinates they are applied
in, so a TIES of sketches is not the TIES of the weights, nor should it be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lamps.errors import ConfigError
from lamps_plugins.model_merging._rules.checks import choice, positive
from lamps_plugins.model_merging._rules.circulant import (
    Dense,
    Sketch,
    gaussian_sketch,
    importance_sketch,
    uniform_sketch,
)
from lamps_plugins.model_merging._rules.knots import Rule, applied
from lamps_plugins.model_merging._rules.linalg import RANK_CUT, effective_rank
from lamps_plugins.model_merging._rules.lowrank import LowRank, qr_cores, rank_within

MAX_CONDITION = 1e4
"""Square samples worse than this are refused: their inverse would drown the rule in noise."""

INDEPENDENT = 1e-5
"""Share of a column of a sketch that the columns before it must not explain."""

OVERSAMPLING = (1.25, 2.0, 4.0)
"""Sizes that `choose_oversampling` tries, in multiples of the joint rank."""


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis of tall factors that is not written out: ``x = (y c^{-1}) r``.

    Args:
        y: Well-conditioned, of the span of the factors. Shape: [L, m, p].
        c: Upper triangular, ``y c^{-1}`` is orthonormal. Shape: [L, p, p] float64.
        r: The factors in that basis. Shape: [L, p, R] float64.
    """

    y: Tensor
    c: Tensor
    r: Tensor

    def apart(self, core: Tensor, right: Basis, rank: int) -> LowRank:
        """The best approximation of ``(y c^{-1}) core (y' c'^{-1})^T``, as one expert.

        Args:
            core: Shape: [L, p, p'] float64.
            right: The other side.
            rank: Rank of the result; directions that there are not come back as zeros.
        """
        u, s, vh = torch.linalg.svd(core, full_matrices=False)
        root = torch.nn.functional.pad(s, (0, max(0, rank - s.shape[1])))[:, None, :rank].sqrt()
        sides = []
        for side, directions in ((self, u), (right, vh.mT)):
            gap = max(0, rank - directions.shape[2])
            some = torch.nn.functional.pad(directions[..., :rank], (0, gap)) * root
            turned: Tensor = torch.linalg.solve_triangular(side.c, some, upper=True)
            sides.append(side.y @ turned.to(side.y.dtype))
        return LowRank((sides[0],), (sides[1].mT,))


def basis(x: Tensor, t: Tensor) -> Basis:
    """An orthonormal basis of tall factors by Cholesky, with their sketch as preconditioner.

    ``x t^{-1}`` is nearly orthonormal where ``t`` comes from the QR of a sketch of ``x``, so its
    Gram matrix loses nothing: matrix products in place of the QR of all of ``x``. Where the sketch
    has not the rank for that, the QR it is.

    Args:
        x: Shape: [L, m, R].
        t: Triangular factor of a sketch of ``x``. Shape: [L, q, R].
    """
    lengths = torch.linalg.vector_norm(t, dim=1)
    diagonal = torch.diagonal(t, dim1=-2, dim2=-1).abs()
    if t.shape[1] == t.shape[2] and bool((diagonal > INDEPENDENT * lengths).all()):
        y: Tensor = torch.linalg.solve_triangular(t, x, upper=True, left=False)
        lower, info = torch.linalg.cholesky_ex((y.mT @ y).double())
        if not bool(info.any()):
            return Basis(y, lower.mT, lower.mT @ t.double())
    y, r = torch.linalg.qr(x)
    eye = torch.eye(y.shape[2], dtype=torch.float64, device=x.device)
    return Basis(y, eye.expand(len(x), -1, -1), r.double())


@dataclass(frozen=True)
class Sketched:
    """Low-rank updates in sketch coordinates; made once, it serves any number of rules.

    Args:
        low: The updates.
        b: Sketched factors ``B~``, or their triangular factor. Shape: [L, q, R].
        a: Sketched factors ``A~``, or their triangular factor. Shape: [L, R, p].
        updates: What a rule merges, ``b_k a_k``. Shape: [K, L, q, p].
        triangular: Whether ``b`` and ``a^T`` are upper triangular: the sketches in an orthonormal
            basis of their own.
    """

    low: LowRank
    b: Tensor
    a: Tensor
    updates: Tensor
    triangular: bool = False

    def rebuild(self, merged: Tensor, rank: int | None = None) -> LowRank:
        """A merged sketch as an adapter, ``[B] G [A]`` with ``G = B~^+ M A~^+``.

        Args:
            merged: Shape: that of one expert's sketch.
            rank: Rank of the adapter, by the best approximation, 1 to R; R with ``b = [B] G`` and
                ``a = [A]`` if None.
        """
        b, a = self.low.stacked()
        core = solve(self.b, merged, triangular=self.triangular)
        core = solve(self.a.mT, core.mT, triangular=self.triangular).mT
        if rank is None:
            return LowRank((b @ core,), (a,))
        left, right = self._basis(b, self.b), self._basis(a.mT.contiguous(), self.a.mT)
        return left.apart(left.r @ core.double() @ right.r.mT, right, rank)

    def _basis(self, x: Tensor, small: Tensor) -> Basis:
        return basis(x, small if self.triangular else torch.linalg.qr(small)[1])


def circumerge(
    low: LowRank,
    rule: Rule,
    *,
    oversampling: float = 2.0,
    rank: int | None = None,
    seed: int = 0,
    sampling: str = "uniform",
    sides: str = "both",
    transform: str = "circulant",
    orthonormal: bool = False,
) -> LowRank:
    """Merge adapters in sketches; see the module.

    Args:
        low: The adapters, scale folded in.
        rule: Applied to the sketches, [K, L, q, p].
        oversampling: Length of a sketch in multiples of the joint rank R, at most that of the
            vectors. Below 1 it compresses with loss; rules that look at spectra want 2 or more.
        rank: Rank of the adapter that comes back, 1 to R; R, without loss, if None.
        seed: Of transform and sample, which all layers of a width share.
        sampling: ``"uniform"`` or ``"importance"``; see `circulant`.
        sides: ``"both"``, or ``"input"``, which leaves the side of B as it is.
        transform: ``"circulant"``, or ``"gaussian"`` as a control.
        orthonormal: Merge R x R cores in an orthonormal basis of the sketches instead of the
            sketches themselves: faster, and better conditioned, but a basis that depends on the
            order of the experts, which elementwise rules notice.

    Returns:
        One expert with scale 1.

    Raises:
        ConfigError: A setting out of range, or a square sketch with a condition beyond 1e4.
        ProblemError: ``rank`` beyond R, or a rule that changes shapes.
    """
    rank_within(low, rank)
    found = sketch(
        low, oversampling=oversampling, seed=seed, sampling=sampling, sides=sides,
        transform=transform, orthonormal=orthonormal,
    )  # fmt: skip
    return found.rebuild(applied(rule, found.updates), rank)


def sketch(
    low: LowRank,
    *,
    oversampling: float = 2.0,
    seed: int = 0,
    sampling: str = "uniform",
    sides: str = "both",
    transform: str = "circulant",
    orthonormal: bool = False,
) -> Sketched:
    """The sketches of all updates in shared coordinates; arguments as for `circumerge`."""
    positive(oversampling, "oversampling")
    choice(sampling, "sampling", ("uniform", "importance"))
    choice(sides, "sides", ("both", "input"))
    choice(transform, "transform", ("circulant", "gaussian"))
    wanted = oversampling * low.rank
    if wanted < 1:
        raise ConfigError(
            f"oversampling {oversampling} of joint rank {low.rank} leaves no entry; expected a "
            f"product of at least 1"
        )
    if transform == "gaussian" and sampling != "uniform":
        raise ConfigError("sampling by importance needs the circulant transform")
    size = math.ceil(wanted - 1e-9)
    b, a = low.stacked()
    rows = b.mT.contiguous()  # the transform runs along contiguous vectors
    b_small = _side(rows, size, seed, sampling, transform, sides == "both")(rows).mT
    a_small = _side(a, size, seed, sampling, transform, True)(a)
    if size == low.rank:
        _refuse_square(b_small, a_small)
    if orthonormal:
        b_small = torch.linalg.qr(b_small)[1]
        a_small = torch.linalg.qr(a_small.mT.contiguous())[1].mT
    small = LowRank(low.blocks(b_small, 2), low.blocks(a_small, 1))
    return Sketched(low, b_small, a_small, small.dense(), orthonormal)


def _side(x: Tensor, size: int, seed: int, sampling: str, transform: str, shorten: bool) -> Sketch:
    n = x.shape[-1]
    if not shorten:
        return Dense()
    size = min(n, size)
    if transform == "gaussian":
        return gaussian_sketch(n, size, seed, x)
    if sampling == "importance":
        return importance_sketch(x, size, seed)
    return uniform_sketch(n, size, seed, x)


def solve(x: Tensor, y: Tensor, *, triangular: bool = False) -> Tensor:
    """A least-squares solution of ``x z = y``, the shortest with columns of ``x`` of unit length.

    Columns are scaled first because how the size of an update is split between B and A must not
    matter. By QR where they are clearly independent, by the pseudo-inverse otherwise.

    Args:
        x: Shape: [L, q, R].
        y: Shape: [L, q, p].
        triangular: Whether ``x`` is known to be upper triangular, which saves its QR.

    Returns:
        Shape: [L, R, p].
    """
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    lengths = torch.where(lengths > 0, lengths, 1)
    x = x / lengths
    if x.shape[1] >= x.shape[2]:
        r, turned = (x, y) if triangular else _turned(x, y)
        if bool((torch.diagonal(r, dim1=-2, dim2=-1).abs() > INDEPENDENT).all()):
            found: Tensor = torch.linalg.solve_triangular(r, turned, upper=True)
            return found / lengths.mT
    inverse: Tensor = torch.linalg.pinv(x.double(), rtol=RANK_CUT)
    return (inverse @ y.double()).to(y.dtype) / lengths.mT


def _turned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    q, r = torch.linalg.qr(x)
    return r, q.mT @ y


def condition(x: Tensor) -> Tensor:
    """Condition number of sketched factors, columns taken at unit length, over their rank.

    Near ``(sqrt(os) + 1) / (sqrt(os) - 1)`` for independent factors: 18 at oversampling 1.25, 5.8
    at 2, 3 at 4.

    Shape:
        x: ``B~`` or ``A~^T``, [L, q, R]; returns [L].
    """
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    s = torch.linalg.svdvals((x / torch.where(lengths > 0, lengths, 1)).double())
    top = s[..., 0]
    real = torch.where(s > RANK_CUT * top.unsqueeze(-1), s, torch.inf).amin(-1)
    return torch.where(top > 0, top / real, 1)


def _refuse_square(b: Tensor, a: Tensor) -> None:
    worst = max(float(condition(b).amax()), float(condition(a.mT).amax()))
    if worst > MAX_CONDITION:
        raise ConfigError(
            f"oversampling 1 gives square samples of condition {worst:.1e}, more than "
            f"{MAX_CONDITION:.0e}; use 1.25 or more"
        )


def reconstruction_error(found: Sketched) -> Tensor:
    """Relative error of each update taken alone through sketch and rebuilding, in Frobenius norm.

    About 1e-6 with oversampling of 1 or more; what is lost below.

    Shape:
        Returns [K, L]; 0 for updates that are zero.
    """
    errors = []
    for k, sketched in enumerate(found.updates):
        back = found.rebuild(sketched)
        b, a = found.low.b[k], found.low.a[k]
        gap = qr_cores(LowRank((back.b[0], -b), (back.a[0], a))).cores.sum(0)
        size = torch.linalg.matrix_norm(qr_cores(LowRank((b,), (a,))).cores[0])
        error = torch.linalg.matrix_norm(gap)
        errors.append(torch.where(size > 0, error / torch.where(size > 0, size, 1), 0))
    return torch.stack(errors)


def sketch_rank(found: Sketched) -> Tensor:
    """Effective rank of all sketches side by side, ``[M_1 .. M_K]``. Shape: [L]."""
    wide = torch.cat(found.updates.unbind(), -1).double()
    # Eigenvalues of the small Gram matrix: the wide matrix has K times as many columns.
    s = torch.linalg.eigvalsh(wide @ wide.mT).clamp_min(0).sqrt().flip(-1)
    return effective_rank(s * (s > RANK_CUT * s[..., :1]))


def rank_ratio(found: Sketched) -> Tensor:
    """Effective rank of the summed sketch as a share of its smaller side. Shape: [L]."""
    total = found.updates.sum(0)
    s = torch.linalg.svdvals(total.double())
    return effective_rank(s) / min(total.shape[1:])


def choose_oversampling(low: LowRank, *, seed: int = 0, share: float = 0.95) -> float:
    """The smallest of `OVERSAMPLING` whose sketches keep the effective rank in every layer.

    Args:
        low: The updates.
        seed: Of transform and sample.
        share: Of the effective rank at the largest oversampling.
    """
    full = sketch_rank(sketch(low, oversampling=OVERSAMPLING[-1], seed=seed))
    for candidate in OVERSAMPLING[:-1]:
        if bool(
            (sketch_rank(sketch(low, oversampling=candidate, seed=seed)) >= share * full).all()
        ):
            return candidate
    return OVERSAMPLING[-1]
