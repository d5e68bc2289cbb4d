"""COMPLETER: codes that agree between views and predict each other, so missing ones are predicted.

Paper: Lin et al., COMPLETER: Incomplete Multi-view Clustering via Contrastive Prediction, CVPR
2021, equations 2-6. Codes z_v are softmax outputs; over the rows of a batch that show both views,

    P = symmetric part of mean_i z_v(i) z_w(i)'
    L_cl = -sum_ab P_ab [ln P_ab - (alpha + 1) ln P_a - (alpha + 1) ln P_b]                     (1)
    L_pre = |G_vw(z_v) - z_w|^2 + |G_wv(z_w) - z_v|^2                                           (2)
    L = L_cl + lambda_1 L_pre + lambda_2 L_rec                                                  (3)

with autoencoders of the views in L_rec. (2) joins after the first fifth of the epochs. Ours: more
than two views (all pairs, mean in (1) and (2)), and any row that shows a pair is used, not only
complete ones. A missing code is the mean of what the observed views predict; k-means on all codes
side by side gives the labels. All networks have batch norms, as in the public code: without them
(1) stays at codes that are the same for every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import RESULT, EpochClusterer
from lamps_plugins._views.linear import kmeans
from lamps_plugins.multi_view_clustering._deep_nets import adam, mlp
from lamps_plugins.multi_view_clustering._deep_views import (
    Tensors,
    batches,
    filled,
    refuse_unusable,
    tensors_of,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

WIDTHS: Mapping[str, tuple[int, ...]] = {"small": (256, 256), "paper": (1024, 1024, 1024)}
CLIP_NORM = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of COMPLETER."""

    alpha: float = hp.real(9.0, low=1.0, high=20.0, doc="Weight of the entropies; eq. (1).")
    lambda_1: float = hp.real(
        0.1, low=0.01, high=1.0, log=True, doc="Weight of the prediction; eq. (3)."
    )
    lambda_2: float = hp.real(
        0.1, low=0.01, high=1.0, log=True, doc="Weight of the reconstruction; eq. (3)."
    )
    latent: int = hp.choice(64, (32, 64, 128), doc="Entries of a code; the paper takes 128.")
    hidden: str = hp.choice(
        "small", tuple(WIDTHS), doc="Hidden layers of the encoders: 256-256 or three of 1024."
    )
    lr: float = hp.real(
        3e-4, low=1e-4, high=1e-3, log=True, doc="Rate of Adam; the paper takes 1e-4."
    )
    epochs: int = hp.choice(
        100, (25, 50, 100, 500), doc="Passes over the rows; the paper takes 500."
    )
    batch: int = hp.choice(256, (128, 256), doc="Rows of a batch.")


class Completer(EpochClusterer[Params]):
    """Contrastive codes with predictors between views."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Codes that agree between views and predict the missing ones.",
        paper=Paper(
            title="COMPLETER: Incomplete Multi-view Clustering via Contrastive Prediction",
            venue="CVPR 2021",
        ),
        tags=Tags(),
    )

    def check(self, data: ViewData) -> None:
        """See `EpochClusterer.check`."""
        refuse_unusable(data, self.name(), least_views=2)

    def stages(self) -> tuple[tuple[str, int], ...]:
        """See `EpochClusterer.stages`."""
        first = self.params.epochs // 5
        return ("contrast", first), ("prediction", self.params.epochs - first)

    def build(self, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.build`."""
        p, widths = self.params, [array.shape[1] for array in data.arrays]
        hidden, q = WIDTHS[p.hidden], p.latent
        self.encoders_ = nn.ModuleList(
            nn.Sequential(mlp((d, *hidden, q), norm=True), nn.Softmax(1)) for d in widths
        )
        self.decoders_ = nn.ModuleList(mlp((q, *reversed(hidden), d), norm=True) for d in widths)
        self.predictors_ = nn.ModuleDict(
            {
                f"{v}-{w}": nn.Sequential(mlp((q, 2 * q, q, 2 * q, q), norm=True), nn.Softmax(1))
                for v, w in permutations(range(len(widths)), 2)
            }
        )
        weights = [w for module in self.modules().values() for w in module.parameters()]
        self.adam_ = adam(weights, p.lr)

    def modules(self) -> Mapping[str, nn.Module]:
        """See `EpochClusterer.modules`."""
        return {
            "encoders": self.encoders_,
            "decoders": self.decoders_,
            "predictors": self.predictors_,
        }

    def optimizers(self) -> Mapping[str, Optimizer]:
        """See `EpochClusterer.optimizers`."""
        return {"adam": self.adam_}

    def train_epoch(
        self, stage: str, epoch: int, data: ViewData, rng: Generator
    ) -> Mapping[str, float]:
        """See `EpochClusterer.train_epoch`."""
        p, tensors = self.params, tensors_of(data)
        weights = {"contrast": 1.0, "prediction": p.lambda_1, "rec": p.lambda_2}
        sums = dict.fromkeys(weights, 0.0)
        self._set_training(True)
        for rows in batches(tensors.n, p.batch, rng):
            parts = self.losses(*tensors.take(rows), predict=stage == "prediction")
            loss = torch.stack([weights[name] * value for name, value in parts.items()]).sum()
            self.adam_.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            used = [w for g in self.adam_.param_groups for w in g["params"]]
            nn.utils.clip_grad_norm_(used, CLIP_NORM)
            self.adam_.step()
            for name, value in parts.items():
                sums[name] += float(value.detach()) * len(rows)
        return {name: total / tensors.n for name, total in sums.items()}

    def losses(
        self, views: tuple[Tensor, ...], mask: Tensor, *, predict: bool
    ) -> dict[str, Tensor]:
        """The three parts of (3), each without its weight; prediction only where asked."""
        mask = mask & (mask.sum(0) > 1)  # a batch norm needs two rows
        rec, codes = torch.zeros(()), []
        for v, x in enumerate(views):
            seen, code = mask[:, v], torch.zeros(len(x), self.params.latent)
            if bool(seen.any()):  # hidden rows must not enter the norms
                own = self.encoders_[v](x[seen])
                rec = rec + ((self.decoders_[v](own) - x[seen]) ** 2).mean()
                code = code.index_put((seen,), own)
            codes.append(code)
        agree, guess = [], [torch.zeros(())]
        for v, w in combinations(range(len(views)), 2):
            rows = mask[:, v] & mask[:, w]
            if int(rows.sum()) < 2:
                continue
            a, b = codes[v][rows], codes[w][rows]
            agree.append(mutual_information_loss(a, b, alpha=self.params.alpha))
            if predict:
                guess.append(((self.predictors_[f"{v}-{w}"](a) - b) ** 2).sum(1).mean())
                guess.append(((self.predictors_[f"{w}-{v}"](b) - a) ** 2).sum(1).mean())
        contrast = torch.stack(agree).mean() if agree else torch.zeros(())
        return {"contrast": contrast, "prediction": torch.stack(guess).mean(), "rec": rec}

    def result(self, data: ViewData) -> Clustering:
        """See `EpochClusterer.result`."""
        self._set_training(False)
        codes = self._codes(data)
        flat = codes.reshape(len(codes), -1)
        labels, _ = kmeans(flat, data.n_clusters, self.stream(RESULT, 1))
        with torch.no_grad():
            decoded = [
                net(torch.from_numpy(np.ascontiguousarray(codes[:, v]))).numpy()
                for v, net in enumerate(self.decoders_)
            ]
        return Clustering(labels=labels, embedding=flat, imputed=filled(data, decoded))

    def _set_training(self, training: bool) -> None:
        for module in self.modules().values():
            module.train(training)

    def _codes(self, data: ViewData) -> NDArray[np.float32]:
        """Codes of all views, predicted where missing. Shape: [n, V, q]."""
        tensors = Tensors(data)
        with torch.no_grad():
            own = torch.stack(
                [net(x) for net, x in zip(self.encoders_, tensors.views, strict=True)], 1
            )
            found = own.clone()
            for w in range(data.n_views):
                guesses = torch.zeros_like(own[:, w])
                counts = torch.zeros(tensors.n, 1)
                for v in range(data.n_views):
                    if v != w:
                        seen = tensors.mask[:, v, None].float()
                        guesses += seen * self.predictors_[f"{v}-{w}"](own[:, v])
                        counts += seen
                hidden = ~tensors.mask[:, w]
                found[hidden, w] = (guesses / counts.clamp_min(1.0))[hidden]
        return cast(NDArray[np.float32], found.numpy())


def mutual_information_loss(a: Tensor, b: Tensor, *, alpha: float) -> Tensor:
    """Equation (1): minus the mutual information of two codes, entropies weighed by ``alpha``.

    Shape:
        a, b: [n, q], rows are distributions; returns a scalar.
    """
    joint = a.T @ b / len(a)
    joint = ((joint + joint.T) / 2.0).clamp_min(1e-9)
    joint = joint / joint.sum()
    rows, columns = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    inner = joint.log() - (alpha + 1.0) * rows.log() - (alpha + 1.0) * columns.log()
    return -(joint * inner).sum()
