"""Averages weighted by what the data says of the experts: Fisher merging and RegMean.

Papers: Matena and Raffel, Merging models with Fisher-weighted averaging, NeurIPS 2022,
arXiv 2111.09832, section 2; Jin et al., Dataless knowledge fusion (RegMean), ICLR 2023,
arXiv 2212.09849, section 3.

Both are averages of weights, so they are the same averages of updates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamps.errors import ProblemError
from lamps_plugins.model_merging._rules.checks import checked, share, working


def fisher_merge(deltas: Tensor, fishers: Tensor) -> Tensor:
    """``sum_k F_k D_k / sum_k F_k`` entry by entry; the mean where no expert has any weight.

    Args:
        deltas: Shape: [K, L, m, n] or [K, L, d].
        fishers: Diagonals of the experts' Fisher matrices, not negative. Shape: that of
            ``deltas``.

    Returns:
        Shape: [L, m, n] or [L, d].
    """
    deltas = checked(deltas)
    if fishers.shape != deltas.shape:
        raise ProblemError(
            f"Fisher weights have shape {list(fishers.shape)}, updates {list(deltas.shape)}"
        )
    f = working(fishers, "Fisher weights").to(deltas.dtype)
    if bool((f < 0).any()):
        raise ProblemError("Fisher weights contain negative numbers; they are mean squares")
    # Divided by the largest first: squares of small gradients underflow when multiplied.
    top = f.amax(0)
    f = torch.where(top > 0, f / torch.where(top > 0, top, 1), 1)
    return (f * deltas).sum(0) / f.sum(0)


def regmean(deltas: Tensor, grams: Tensor, off_diagonal: float = 0.9) -> Tensor:
    """The update whose outputs are closest to the experts' on their own inputs.

    ``D = (sum_k D_k G_k) (sum_k G_k)^{-1}`` for layers ``y = W x`` and ``G_k = X_k^T X_k``. An
    input that is always zero leaves its column undetermined; it gets the mean.

    Args:
        deltas: Shape: [K, L, m, n].
        grams: Inner products of the inputs of each expert's layer. Shape: [K, L, n, n].
        off_diagonal: Factor of the entries off the diagonal, in [0, 1]; 1 trusts the inputs fully.

    Returns:
        Shape: [L, m, n].

    Raises:
        ProblemError: Shapes that do not fit, Grams not symmetric, or their sum singular.
    """
    deltas = checked(deltas, matrices=True)
    share(off_diagonal, "off_diagonal")
    n = deltas.shape[3]
    if grams.shape != (*deltas.shape[:2], n, n):
        raise ProblemError(
            f"Grams have shape {list(grams.shape)}; expected {[*deltas.shape[:2], n, n]}"
        )
    g = working(grams, "Grams").double()
    if not torch.allclose(g, g.mT, rtol=1e-4, atol=1e-5 * float(g.abs().amax())):
        raise ProblemError("Grams are not symmetric; expected inner products of inputs")
    diagonal = torch.diagonal(g, dim1=-2, dim2=-1)
    dead = (diagonal.sum(0) == 0).double()
    g = off_diagonal * g + torch.diag_embed((1 - off_diagonal) * diagonal + dead)
    total = g.sum(0)
    lower, info = torch.linalg.cholesky_ex(total)
    if bool(info.any()):
        raise ProblemError("the sum of the Grams is singular; give more inputs than columns, or "
                           "off_diagonal below 1")  # fmt: skip
    right = (deltas.double() @ g).sum(0)
    return torch.cholesky_solve(right.mT, lower).mT.to(deltas.dtype)
