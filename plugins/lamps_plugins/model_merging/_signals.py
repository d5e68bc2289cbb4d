"""Signals of experts that cost no forward pass.

With updates ``D_i`` of all merged tensors, ``D = sum_i D_i`` and cosines ``c_ij``:

    norm_ratio = ||D|| / sum_i ||D_i||      1 where all updates agree, 1/sqrt(K) where none meet
    cosine_mean, cosine_max, cosine_min     over pairs i < j
    update_norm = mean_i ||D_i|| / ||W_0||  how far the experts went

and on the matrices of the first landmark, from the SVD ``D = U diag(sigma) V'``:

    effective_rank = exp(H(sigma / sum sigma)) / min(m, n), H the entropy in nats              (1)
    inflation = mean over the top tenth of directions r of max_i s_ri,
        s_ri = <sigma_r v_r, u_r' D_i> / ||u_r' D_i||^2                                        (2)

Source of (2): the projection coefficients of spectral calibration, how often a direction that
several experts share is counted in their sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._sets import ExpertSet


def of_set(experts: ExpertSet) -> dict[str, np.ndarray]:
    """The signals of a set of experts, as scalars of float64."""
    import torch

    k = len(experts)
    gram = torch.zeros(k, k, dtype=torch.float64)
    base = torch.zeros((), dtype=torch.float64)
    ranks: list[torch.Tensor] = []
    inflations: list[torch.Tensor] = []
    for group in (*experts.groups, *experts.vectors):
        deltas = experts.deltas(group)
        flat = deltas.flatten(1).double()
        gram += flat @ flat.T
        base += experts.base_weights(group).double().square().sum()
        if group.first:
            rank, inflation = _spectral(deltas)
            ranks.append(rank)
            inflations.append(inflation)
    norms = gram.diagonal().sqrt()
    cosines = (gram / norms.outer(norms))[tuple(torch.triu_indices(k, k, 1))]
    found = {
        "norm_ratio": gram.sum().clamp_min(0).sqrt() / norms.sum(),
        "cosine_mean": cosines.mean(),
        "cosine_max": cosines.max(),
        "cosine_min": cosines.min(),
        "update_norm": norms.mean() / base.sqrt(),
        "effective_rank": torch.cat(ranks).mean(),
        "inflation": torch.cat(inflations).mean(),
    }
    return {name: np.asarray(float(value)) for name, value in found.items()}


def _spectral(deltas: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Equations (1) and (2) of each layer: [L] and [L] from updates [K, L, m, n]."""
    import torch

    u, sigma, vt = torch.linalg.svd(deltas.sum(0).double(), full_matrices=False)
    share = sigma / sigma.sum(-1, keepdim=True).clamp_min(1e-300)
    entropy = -(share * share.clamp_min(1e-300).log()).sum(-1)
    top = max(1, sigma.shape[-1] // 10)
    own = u[..., :top].transpose(-1, -2) @ deltas.double()  # [K, L, top, n]
    shared = (own * (sigma[..., :top, None] * vt[..., :top, :])).sum(-1)
    scores = shared / own.square().sum(-1).clamp_min(1e-12)
    return entropy.exp() / sigma.shape[-1], scores.amax(0).mean(-1)
