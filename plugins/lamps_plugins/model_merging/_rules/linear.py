"""Rules that are linear in the updates: weight average and task arithmetic.

Papers: Wortsman et al., Model soups, ICML 2022, arXiv 2203.05482, section 2; Ilharco et al.,
Editing models with task arithmetic, ICLR 2023, arXiv 2212.04089, section 2.
"""

from __future__ import annotations

from torch import Tensor

from lamps_plugins.model_merging._rules.checks import checked


def average(deltas: Tensor) -> Tensor:
    """The mean of the updates, ``(1/K) sum_k D_k``; the mean of the experts' weights.

    Shape:
        deltas: [K, L, m, n] or [K, L, d]; returns [L, m, n] or [L, d].
    """
    return checked(deltas).mean(0)


def task_arithmetic(deltas: Tensor, scale: float = 0.3) -> Tensor:
    """The scaled sum of the updates, ``scale * sum_k D_k``.

    Shape:
        deltas: [K, L, m, n] or [K, L, d]; returns [L, m, n] or [L, d].
    """
    return scale * checked(deltas).sum(0)
