"""Low-rank updates of several experts, and the small matrices that stand for them.

With ``B = [B_1 .. B_K] = Q_B T_B`` and ``A^T = [A_1; ..; A_K]^T = Q_A T_A`` every update is
``D_k = B_k A_k = Q_B C_k Q_A^T`` with a core ``C_k = T_B,k T_A,k^T`` no larger than R x R, R the
sum of the ranks. ``Q_B`` and ``Q_A`` are isometries, so whatever depends on inner products alone
can be done on the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import working


@dataclass(frozen=True)
class LowRank:
    """Updates ``D_k = B_k A_k`` of K experts for L layers of one shape; ranks may differ.

    Args:
        b: One per expert, scale folded in. Shape: K times [L, m, r_k] float32.
        a: One per expert. Shape: K times [L, r_k, n] float32.

    Raises:
        ProblemError: No expert, factors that do not fit each other, or numbers not finite.
    """

    b: tuple[Tensor, ...]
    a: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if not self.b or len(self.b) != len(self.a):
            raise ProblemError(
                f"{len(self.b)} factors B and {len(self.a)} factors A; expected one of each per "
                "expert, and at least one expert"
            )
        first_b, first_a = self.b[0], self.a[0]
        for k, (b, a) in enumerate(zip(self.b, self.a, strict=True)):
            if b.ndim != 3 or a.ndim != 3 or b.shape[2] != a.shape[1] or b.shape[2] < 1:
                raise ProblemError(
                    f"expert {k} has factors {list(b.shape)} and {list(a.shape)}; expected "
                    "[L, m, r] and [L, r, n] with r >= 1"
                )
            if (b.shape[:2], a.shape[2]) != (first_b.shape[:2], first_a.shape[2]) or len(a) != len(
                b
            ):
                raise ProblemError(
                    f"expert {k} has factors {list(b.shape)} and {list(a.shape)}, expert 0 has "
                    f"{list(first_b.shape)} and {list(first_a.shape)}; all need the same modules"
                )
        object.__setattr__(self, "b", tuple(working(b, "factors B") for b in self.b))
        object.__setattr__(self, "a", tuple(working(a, "factors A") for a in self.a))

    @classmethod
    def from_lora(
        cls, b: Sequence[Tensor], a: Sequence[Tensor], scales: Sequence[float | Tensor]
    ) -> LowRank:
        """Adapters as they are stored, with the scale that applies them.

        Args:
            b: Shape: K times [L, m, r_k].
            a: Shape: K times [L, r_k, n].
            scales: One per expert, alpha / r, or alpha / sqrt(r) for rank-stabilised LoRA; a
                number, or one per layer. Shape: [] or [L].
        """
        if not len(b) == len(a) == len(scales):
            raise ProblemError(
                f"{len(b)} factors B, {len(a)} factors A and {len(scales)} scales; expected one "
                "of each per expert"
            )
        scaled = []
        for one, scale in zip(b, scales, strict=True):
            one = working(one, "factors B")
            s = torch.as_tensor(scale, dtype=one.dtype, device=one.device)
            if s.ndim and s.shape != one.shape[:1]:
                raise ProblemError(
                    f"scales have shape {list(s.shape)}; expected one, or {len(one)}"
                )
            scaled.append(one * (s[:, None, None] if s.ndim else s))
        return cls(tuple(scaled), tuple(a))

    @property
    def n_experts(self) -> int:
        """K."""
        return len(self.b)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of each expert."""
        return tuple(b.shape[2] for b in self.b)

    @property
    def rank(self) -> int:
        """Sum of the experts' ranks, R."""
        return sum(self.ranks)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, rows and columns: (L, m, n)."""
        return self.b[0].shape[0], self.b[0].shape[1], self.a[0].shape[2]

    def blocks(self, x: Tensor, dim: int) -> tuple[Tensor, ...]:
        """A tensor with R entries along an axis, taken apart by expert."""
        return torch.split(x, list(self.ranks), dim)

    def stacked(self) -> tuple[Tensor, Tensor]:
        """All factors side by side. Shape: [L, m, R] and [L, R, n]."""
        return torch.cat(self.b, 2), torch.cat(self.a, 1)

    def weighted(self, weights: Tensor) -> LowRank:
        """The updates times one number each. Shape of ``weights``: [K]."""
        return LowRank(tuple(w * b for w, b in zip(weights, self.b, strict=True)), self.a)

    def dense(self) -> Tensor:
        """Every update as a matrix; for elementwise rules and for tests. Shape: [K, L, m, n]."""
        return torch.stack([b @ a for b, a in zip(self.b, self.a, strict=True)])

    def merged(self) -> Tensor:
        """The sum of the updates; of one expert, the update itself. Shape: [L, m, n]."""
        b, a = self.stacked()
        return b @ a


@dataclass(frozen=True)
class Cores:
    """Updates in an orthonormal basis that all experts share: ``D_k = left C_k right^T``.

    Args:
        left: Orthonormal columns. Shape: [L, m, p].
        cores: Shape: [K, L, p, q].
        right: Orthonormal columns. Shape: [L, n, q].
    """

    left: Tensor
    cores: Tensor
    right: Tensor

    def expand(self, core: Tensor, rank: int | None = None) -> LowRank:
        """A core back in the weights' coordinates, as one expert.

        Args:
            core: Shape: [L, p, q].
            rank: Rank of the result, by the best approximation with both factors carrying half of
                the size, ``b = left U sqrt(S)`` and ``a = sqrt(S) V^T right^T``; the core as it
                is if None.
        """
        if rank is None:
            return LowRank((self.left @ core.to(self.left.dtype),), (self.right.mT,))
        u, s, vh = torch.linalg.svd(core.double(), full_matrices=False)
        root = s[:, :rank].sqrt()
        b = self.left @ (u[:, :, :rank] * root[:, None]).to(self.left.dtype)
        a = (root[:, :, None] * vh[:, :rank]).to(b.dtype) @ self.right.mT
        # A weight with fewer rows or columns than the rank asked for: the rest has no size.
        gap = rank - b.shape[2]
        if gap > 0:
            b, a = torch.nn.functional.pad(b, (0, gap)), torch.nn.functional.pad(a, (0, 0, 0, gap))
        return LowRank((b,), (a,))


def qr_cores(low: LowRank) -> Cores:
    """Shared bases by one thin QR per side; see the module."""
    b, a = low.stacked()
    left, t_b = torch.linalg.qr(b)
    right, t_a = torch.linalg.qr(a.mT.contiguous())
    pairs = zip(low.blocks(t_b, 2), low.blocks(t_a, 2), strict=True)
    return Cores(left, torch.stack([x @ y.mT for x, y in pairs]), right)


def truncate(low: LowRank, rank: int | None = None) -> LowRank:
    """The best approximation of the sum of the updates with a given rank, as one expert.

    Args:
        low: The updates.
        rank: Rank of the result, at most that of the parts together; all of it if None.

    Raises:
        ProblemError: ``rank`` is larger than the sum of the ranks, or less than 1.
    """
    found = qr_cores(low)
    return found.expand(found.cores.sum(0), rank_within(low, rank) or low.rank)


def rank_within(low: LowRank, rank: int | None) -> int | None:
    """A rank asked for, which the updates must have between them.

    Raises:
        ProblemError: It is less than 1 or larger than the sum of the ranks.
    """
    if rank is not None and not 1 <= rank <= low.rank:
        raise ProblemError(f"rank {rank} asked of updates of rank {low.rank}; expected 1 to that")
    return rank
