"""The common body of SiMVC and CoMVC: views are weighed into one code, clusters are read off it.

Source: Trosten et al., Reconsidering representation alignment for multi-view clustering, CVPR
2021, sections 3 and 4, in the frame of DeepMVC (Trosten et al., CVPR 2023); for incomplete rows
the weights are those of the observed views, scaled to sum to 1 (ours).

    h = sum_v w_v h_v,   w = softmax over the observed views                                    (1)
    a = softmax(head(hidden)),   hidden = relu(batch norm(linear(h)))                           (2)
    loss = ddc(a, hidden) (`_deep_losses.ddc`) + contrast * mean_{v<w} InfoNCE(h_v, h_w)        (3)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from lamps import space as hp
from lamps_plugins._views.clusterer import Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import EpochClusterer
from lamps_plugins.multi_view_clustering._deep_losses import ddc, info_nce
from lamps_plugins.multi_view_clustering._deep_nets import adam, mlp
from lamps_plugins.multi_view_clustering._deep_views import (
    Tensors,
    batches,
    refuse_unusable,
    tensors_of,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

WIDTHS: Mapping[str, tuple[int, ...]] = {"small": (128, 128), "paper": (512, 512)}
HIDDEN = 100
CLIP_NORM = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceParams:
    """Hyperparameters that SiMVC and CoMVC share."""

    latent: int = hp.choice(64, (32, 64, 256), doc="Dimensions of a view's code h_v.")
    hidden: str = hp.choice(
        "small", tuple(WIDTHS), doc="Hidden layers of the encoders: 128-128 or 512-512."
    )
    lr: float = hp.real(1e-3, low=1e-4, high=3e-3, log=True, doc="Rate of Adam.")
    epochs: int = hp.choice(100, (25, 50, 100), doc="Passes over the rows.")
    batch: int = hp.choice(128, (100, 128, 256), doc="Rows of a batch.")


D = TypeVar("D", bound=DivergenceParams)


class FusedNets(nn.Module):
    """Encoders, weights, and the head that reads clusters; equations (1) and (2).

    Args:
        widths: Features of each view.
        hidden: Hidden layers of the encoders.
        latent: Size of h.
        n_clusters: K.
    """

    def __init__(
        self, widths: list[int], hidden: tuple[int, ...], latent: int, n_clusters: int
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(mlp((d, *hidden, latent)) for d in widths)
        self.weight_logits = nn.Parameter(torch.zeros(len(widths)))
        self.linear = nn.Linear(latent, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.head = nn.Linear(HIDDEN, n_clusters)

    def forward(self, views: tuple[Tensor, ...], mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The views' codes [n, V, q], hidden [n, 100] and assignment [n, K]."""
        codes = torch.stack([net(x) for net, x in zip(self.encoders, views, strict=True)], 1)
        weights = self.weight_logits.expand(mask.shape).masked_fill(~mask, float("-inf"))
        fused = (weights.softmax(1)[:, :, None] * codes).sum(1)
        hidden = F.relu(self.norm(self.linear(fused)))
        return codes, hidden, self.head(hidden).softmax(1)


class DivergenceClusterer(EpochClusterer[D]):
    """Clusters by a divergence of kernels; subclasses say how much views are aligned."""

    params: D

    @property
    def contrast(self) -> float:
        """Weight of the alignment of views; eq. (3)."""
        return 0.0

    @property
    def temperature(self) -> float:
        """Of InfoNCE."""
        return 0.1

    def check(self, data: ViewData) -> None:
        """See `EpochClusterer.check`."""
        refuse_unusable(data, self.name())

    def stages(self) -> tuple[tuple[str, int], ...]:
        """See `EpochClusterer.stages`."""
        return (("joint", self.params.epochs),)

    def build(self, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.build`."""
        p = self.params
        widths = [array.shape[1] for array in data.arrays]
        self.nets_ = FusedNets(widths, WIDTHS[p.hidden], p.latent, data.n_clusters)
        self.adam_ = adam(list(self.nets_.parameters()), p.lr)

    def modules(self) -> Mapping[str, nn.Module]:
        """See `EpochClusterer.modules`."""
        return {"nets": self.nets_}

    def optimizers(self) -> Mapping[str, Optimizer]:
        """See `EpochClusterer.optimizers`."""
        return {"adam": self.adam_}

    def train_epoch(
        self, stage: str, epoch: int, data: ViewData, rng: Generator
    ) -> Mapping[str, float]:
        """See `EpochClusterer.train_epoch`."""
        tensors, sums = tensors_of(data), {"ddc": 0.0, "contrast": 0.0}
        self.nets_.train()
        for rows in batches(tensors.n, self.params.batch, rng):
            views, mask = tensors.take(rows)
            codes, hidden, assignment = self.nets_(views, mask)
            parts = {"ddc": ddc(assignment, hidden), "contrast": self._alignment(codes, mask)}
            loss = parts["ddc"] + self.contrast * parts["contrast"]
            self.adam_.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.nets_.parameters(), CLIP_NORM)
            self.adam_.step()
            for name, value in parts.items():
                sums[name] += float(value.detach()) * len(rows)
        return {name: total / tensors.n for name, total in sums.items()}

    def _alignment(self, codes: Tensor, mask: Tensor) -> Tensor:
        if not self.contrast:
            return torch.zeros(())
        each = []
        for v, w in combinations(range(mask.shape[1]), 2):
            rows = mask[:, v] & mask[:, w]
            each.append(info_nce(codes[rows, v], codes[rows, w], temperature=self.temperature))
        return torch.stack(each).mean() if each else torch.zeros(())

    def result(self, data: ViewData) -> Clustering:
        """See `EpochClusterer.result`."""
        hidden, soft = self._read(data)
        return Clustering(labels=soft.argmax(1).astype(np.int64), soft=soft, embedding=hidden)

    def assign(self, data: ViewData) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Clusters of new rows by the networks; see `Clusterer.assign`."""
        _, soft = self._read(data)
        return soft.argmax(1).astype(np.int64), soft

    def _read(self, data: ViewData) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        tensors = Tensors(data)
        self.nets_.eval()
        with torch.no_grad():
            _, hidden, soft = self.nets_(tensors.views, tensors.mask)
        return cast(NDArray[np.float32], hidden.numpy()), cast(NDArray[np.float32], soft.numpy())
