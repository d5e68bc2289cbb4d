"""Losses that the deep methods share: contrast between views, dependence, cluster geometry."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

KERNEL_WIDTH = 0.15
"""Width of the kernel of `ddc`, as a share of the median distance; DeepMVC's value."""


def info_nce(a: Tensor, b: Tensor, *, temperature: float) -> Tensor:
    """Symmetric InfoNCE of two views of the same rows, cosine similarities.

    Source: van den Oord et al., arXiv 1807.03748; both directions as in CLIP.

    Shape:
        a, b: [n, q]; returns a scalar; 0 for fewer than 2 rows, where nothing can be told apart.
    """
    if len(a) < 2:
        return a.sum() * 0.0
    logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / temperature
    target = torch.arange(len(a))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2.0


def ddc(assignment: Tensor, hidden: Tensor) -> Tensor:
    """Deep divergence-based clustering: separated, orthogonal, one-hot clusters.

    Source: Kampffmeyer et al., Deep divergence-based approach to clustering, Neural Networks 2019;
    Trosten et al., CVPR 2021, equations 3-6. With kernel ``K`` over rows and columns ``alpha_k``
    of the assignment,

        L1 = mean_{k<l} alpha_k' K alpha_l / sqrt(alpha_k' K alpha_k alpha_l' K alpha_l)
        L2 = 2 / (n (n - 1)) sum_{i<j} a_i' a_j
        L3 = L1 with alpha replaced by exp(-|a_i - e_k|^2)

    Shape:
        assignment: [n, K], rows sum to 1; hidden: [n, q]; returns a scalar.
    """
    n, k = assignment.shape
    if n < 2:
        return assignment.sum() * 0.0
    squared = torch.cdist(hidden, hidden) ** 2
    with torch.no_grad():
        off = squared[~torch.eye(n, dtype=torch.bool)]
        width = (KERNEL_WIDTH * off.median()).clamp_min(1e-9)
    kernel = (-squared / (2.0 * width)).exp()
    overlap = assignment @ assignment.T
    pairs = overlap.triu(1).sum() * 2.0 / (n * (n - 1))
    corners = (-(torch.cdist(assignment, torch.eye(k)) ** 2)).exp()
    return _separation(assignment, kernel) + pairs + _separation(corners, kernel)


def _separation(columns: Tensor, kernel: Tensor) -> Tensor:
    product = columns.T @ kernel @ columns
    norms = product.diagonal().clamp_min(1e-9)
    ratio = product / (norms[:, None] * norms[None, :]).sqrt()
    k = len(product)
    return ratio.triu(1).sum() * 2.0 / (k * (k - 1))


def hsic(a: Tensor, b: Tensor) -> Tensor:
    """Normalised Hilbert-Schmidt independence criterion, Gaussian kernels of median width.

    Source: Gretton et al., ALT 2005; divided by both self-terms, so it lies in [0, 1].

    Shape:
        a: [n, p]; b: [n, q]; returns a scalar.
    """
    if len(a) < 2:
        return a.sum() * 0.0
    ka, kb = _centred_kernel(a), _centred_kernel(b)
    norm = (ka.pow(2).sum() * kb.pow(2).sum()).sqrt().clamp_min(1e-12)
    return (ka * kb).sum() / norm


def _centred_kernel(x: Tensor) -> Tensor:
    squared = (x[:, None] - x[None]).pow(2).sum(2)
    with torch.no_grad():
        off = squared[~torch.eye(len(x), dtype=torch.bool)]
        width = off.median().clamp_min(1e-9)
    kernel = (-squared / width).exp()
    return kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
