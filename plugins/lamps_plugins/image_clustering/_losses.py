"""Losses on soft assignments, column against column: what image and text agree on.

With columns of two assignment matrices A, B [B, K] scaled to length 1,

    D(A, B) = mean over 2 K columns of cross-entropy of the column with its partner against all
              other columns of both, similarities over tau                                      (1)

Clusters are compared instead of rows, so no row is ever a false negative of another.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["alignment", "column_contrast", "entropy_of_mean", "pair_consistency"]

_TINY = 1e-8


def column_contrast(a: Tensor, b: Tensor, tau: float) -> Tensor:
    """D(A, B) of (1); finite for clusters that no row is in. Shape: [B, K] twice, to []."""
    k = a.shape[1]
    columns = torch.cat([a.T, b.T])
    columns = columns / (columns.norm(dim=1, keepdim=True) + _TINY)
    logits = columns @ columns.T / tau
    itself = torch.eye(2 * k, dtype=torch.bool, device=a.device)
    partner = torch.arange(2 * k, device=a.device).roll(k)
    return torch.nn.functional.cross_entropy(logits.masked_fill(itself, -torch.inf), partner)


def alignment(student: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy of the students' columns, as distributions over rows, under the teacher's.

    Shape: [B, K] twice, to [].
    """
    p = student / (student.sum(dim=0, keepdim=True) + _TINY)
    q = teacher / (teacher.sum(dim=0, keepdim=True) + _TINY)
    return -(q * (p + _TINY).log()).sum(dim=0).mean()


def pair_consistency(a: Tensor, b: Tensor) -> Tensor:
    """Mean of ``-log <a_i, b_i>`` over rows. Shape: [B, K] twice, to []."""
    return -((a * b).sum(dim=1) + _TINY).log().mean()


def entropy_of_mean(p: Tensor) -> Tensor:
    """Entropy of the mean assignment, log K where clusters are even. Shape: [B, K] to []."""
    mean = p.mean(dim=0)
    return -(mean * (mean + _TINY).log()).sum()
