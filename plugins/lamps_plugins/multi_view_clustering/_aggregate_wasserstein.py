"""Wasserstein barycentres of diagonal Gaussians, and their mixture over sets of views.

The barycentre in the 2-Wasserstein distance of ``N(mu_v, diag(sigma_v^2))`` with weights ``w_v``
is Gaussian in closed form (Agueh and Carlier, SIAM J. Math. Anal. 2011, commuting case):

    mu_S = sum_v w_v mu_v,      sigma_S = sum_v w_v sigma_v        v in S, weights of S sum to 1

Standard deviations average, so the result does not get sharper with more views; ``sigma_S`` is no
certainty. A row's consensus is the uniform mixture of the barycentres of several sets of its
observed views (a family of subsets).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Subsets = Literal["full", "singles+full", "all"]

MOST_VIEWS = 4
"""Views up to which all subsets are enumerated; beyond, ``all`` means singles and pairs too."""


def barycentre(mean: Tensor, std: Tensor, logits: Tensor, subset: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the barycentre over one set of views for each row.

    Args:
        mean: What each view says.
        std: Its standard deviation.
        logits: Of the views' weights; a softmax over the set.
        subset: Which views are in the set, at least one a row.

    Shape:
        mean, std: [n, V, q]; logits: [V]; subset: [n, V] bool. Returns two of [n, q].
    """
    weights = logits.expand(subset.shape).masked_fill(~subset, float("-inf")).softmax(1)
    weights = weights[:, :, None]
    return (weights * mean).sum(1), (weights * std).sum(1)


def subsets_of(n_views: int, family: Subsets) -> tuple[tuple[int, ...], ...]:
    """The sets of a family over all views; a row uses those that fit into its observed views.

    The set of all observed views always belongs to it and is not listed here.
    """
    if family == "full":
        return ()
    if family == "singles+full":
        return tuple((v,) for v in range(n_views))
    largest = n_views - 1 if n_views <= MOST_VIEWS else 2
    return tuple(
        chosen
        for size in range(1, largest + 1)
        for chosen in itertools.combinations(range(n_views), size)
    )


def membership(mask: Tensor, family: Subsets) -> tuple[Tensor, Tensor]:
    """All sets of a family against the observed views of each row.

    Shape:
        mask: [n, V] bool. Returns the sets [n, m, V] bool, the last one being all observed views,
        and whether a row has them [n, m] bool. A set that equals all observed views counts once.
    """
    import torch

    n, n_views = mask.shape
    listed = torch.zeros((len(subsets_of(n_views, family)), n_views), dtype=torch.bool)
    for row, chosen in enumerate(subsets_of(n_views, family)):
        listed[row, list(chosen)] = True
    fits = ~(listed[None] & ~mask[:, None]).any(2) & (listed[None] != mask[:, None]).any(2)
    sets = torch.cat([listed.expand(n, *listed.shape), mask[:, None]], 1)
    return sets, torch.cat([fits, torch.ones((n, 1), dtype=torch.bool)], 1)


def mixture_mean(mean: Tensor, logits: Tensor, mask: Tensor, family: Subsets) -> Tensor:
    """Mean of the uniform mixture over a row's sets. Shape: as `barycentre`; returns [n, q]."""
    sets, has = membership(mask, family)
    n, m, n_views = sets.shape
    wide = logits.expand(n, m, n_views).masked_fill(~sets, float("-inf"))
    # Sets that a row lacks may be empty for it; they get weight 0 below.
    weights = wide.softmax(2).nan_to_num(0.0)
    share = has.to(mean.dtype) / has.sum(1, keepdim=True)
    return ((weights * share[:, :, None]).sum(1)[:, :, None] * mean).sum(1)


def drawn_subsets(mask: Tensor, family: Subsets, *, full_share: float = 0.5) -> Tensor:
    """One set for each row: all observed views for a share of the rows, else any of its sets.

    Draws from torch's global generator, in strata: the share is met exactly up to rounding.

    Shape:
        mask: [n, V] bool; returns the same.
    """
    import torch

    sets, has = membership(mask, family)
    n = len(mask)
    picked = torch.multinomial(has.to(torch.float32), 1).squeeze(1)
    full = torch.zeros(n, dtype=torch.bool)
    full[torch.randperm(n)[: round(full_share * n)]] = True
    picked = torch.where(full, sets.shape[1] - 1, picked)
    return sets[torch.arange(n), picked]
