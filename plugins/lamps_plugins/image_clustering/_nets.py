"""The small networks on top of frozen features: reduction, fusion, adapters and heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Adapter", "Fusion", "Head", "Reduction", "attention_heads"]


class Reduction(nn.Module):
    """Principal components of the training images, rows scaled to length 1; the identity if wide.

    Args:
        d_in: Width of the features.
        d_out: Width wanted; features are left alone where it is not smaller.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.width = min(d_in, d_out)
        self.whole = d_in <= d_out
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("basis", torch.eye(d_in)[:, : self.width].clone())

    def fit(self, x: Tensor) -> None:
        """Take mean and components from rows [n, d_in]."""
        if self.whole:
            return
        centre = x.double().mean(dim=0)
        z = x.double() - centre
        vectors = torch.linalg.eigh(z.T @ z).eigenvectors.flip(1)[:, : self.width]
        # A component's sign means nothing; fix it by its largest entry.
        largest = vectors.abs().argmax(dim=0)
        vectors = vectors * vectors[largest, torch.arange(self.width)].sign()
        self.mean.copy_(centre)
        self.basis.copy_(vectors)

    def forward(self, x: Tensor) -> Tensor:
        if self.whole:
            return x
        return nn.functional.normalize((x - self.mean) @ self.basis, dim=1)


def attention_heads(width: int, most: int = 8) -> int:
    """The largest number of heads up to ``most`` that divides a width."""
    return max(h for h in range(1, most + 1) if width % h == 0)


class Fusion(nn.Module):
    """Texts of several granularities become one vector: tokens, self-attention, mean, length 1.

    Args:
        widths: Width of each granularity.
        width: Of the result; granularities of another width are projected first.
    """

    def __init__(self, widths: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(
            nn.Identity() if d == width else nn.Linear(d, width) for d in widths
        )
        self.attention = nn.MultiheadAttention(width, attention_heads(width), batch_first=True)

    def forward(self, *texts: Tensor) -> Tensor:
        """Shape: G times [B, d_g] to [B, width]."""
        tokens = torch.stack([p(t) for p, t in zip(self.projections, texts, strict=True)], dim=1)
        mixed = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return nn.functional.normalize(mixed.mean(dim=1), dim=1)


class Adapter(nn.Module):
    """A bottleneck that keeps what is common and drops the rest: LN(dropout(W2 gelu(W1 x)))."""

    def __init__(self, width: int, ratio: float) -> None:
        super().__init__()
        inner = max(1, round(ratio * width))
        self.net = nn.Sequential(
            nn.Linear(width, inner),
            nn.GELU(),
            nn.Linear(inner, width),
            nn.Dropout(0.1),
            nn.LayerNorm(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Shape: [B, width] to the same."""
        found: Tensor = self.net(x)
        return found


class Head(nn.Module):
    """Soft assignments by an MLP with one hidden layer and batch norm."""

    def __init__(self, d_in: int, width: int, n_clusters: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, n_clusters),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Shape: [B, d_in] to [B, K], rows sum to 1."""
        return torch.softmax(self.net(x), dim=1)

    def hidden(self, x: Tensor) -> Tensor:
        """What the last layer sees. Shape: [B, d_in] to [B, width]."""
        found: Tensor = self.net[:-1](x)
        return found
