"""The common body of ACOVA, DVIMC and CoDE-VAE: one encoder a view, one pooled latent, one prior.

Encoders say ``N(mu_v, sigma_v^2)`` for each observed view, `_aggregate_correlated` pools them into
``N(mean, var)`` under a correlation ``R`` of the views' errors, a Gaussian mixture is the prior.
The methods differ in nothing but ``R``. Loss of a batch, as means over rows:

    sum_v m_v |x_v - decoder_v(z)|^2,   z ~ N(mean, var)                                        (1)
    + sum_k gamma_k(z) KL(N(mean, var) || N(m_k, s_k^2)) + sum_k gamma_k log(gamma_k / pi_k)    (2)
    + coherence / |O| sum_{v in O} KL(N(mean, var) || N(mu_v, sigma_v^2))                       (3)

Stages: ``autoencoder`` trains each view's mean head and decoder alone on the rows that show it;
before ``joint`` the prior's means come from k-means on the mean latents (`_deep_start`), ``R``
from how the latents go along. Rates fall by a tenth every 20 epochs. Labels are the largest
responsibility at ``mean``; before ``joint`` they are k-means on mean latents.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.nn import functional as F

from lamps import space as hp
from lamps_plugins._views.clusterer import Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import RESULT, EpochClusterer
from lamps_plugins._views.linear import kmeans
from lamps_plugins.multi_view_clustering._aggregate_correlated import Block, co_observed, pooled
from lamps_plugins.multi_view_clustering._deep_correlation import Correlation
from lamps_plugins.multi_view_clustering._deep_nets import (
    NARROW,
    STD_FLOOR,
    WIDTHS,
    GaussianEncoder,
    adam,
    decoder,
    set_rate,
)
from lamps_plugins.multi_view_clustering._deep_prior import MixturePrior, gaussian_kl
from lamps_plugins.multi_view_clustering._deep_start import (
    mean_of_observed,
    spread_within,
    start_centres,
)
from lamps_plugins.multi_view_clustering._deep_views import (
    Tensors,
    batches,
    filled,
    n_batches,
    refuse_outside_unit,
    refuse_unusable,
    tensors_of,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

CLIP_NORM = 10.0
DECAY, DECAY_EPOCHS = 0.9, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationalParams:
    """Hyperparameters that ACOVA, DVIMC and CoDE-VAE share."""

    coherence: float = hp.real(
        15.0, low=1.0, high=100.0, log=True, doc="Weight of the coherence, unitless; eq. (3)."
    )
    latent: int = hp.integer(10, low=5, high=32, doc="Latent dimensions q.")
    hidden: str = hp.choice(
        "small",
        tuple(WIDTHS),
        doc="Hidden layers: 128-128-256, 256-256-512, or the paper's 500-500-2000.",
    )
    lr: float = hp.real(1e-3, low=1e-4, high=2e-3, log=True, doc="First rate of the networks.")
    prior_lr: float = hp.real(0.05, low=3e-3, high=0.1, log=True, doc="First rate of the prior.")
    pretrain_epochs: int = hp.choice(
        40, (20, 40, 100, 200), doc="Epochs of the autoencoders; the paper takes 200."
    )
    epochs: int = hp.choice(
        300, (20, 60, 100, 300), doc="Epochs of joint training; the paper takes 300."
    )
    batch: int = hp.choice(256, (128, 256, 512), doc="Rows of a batch.")
    rec_scale: str = hp.choice(
        "sum", ("sum", "mean"), doc="Squared error of a view: summed over features, or their mean."
    )
    start: str = hp.choice(
        "unit",
        ("unit", "clusters"),
        doc="Deviations that joint training begins with: 1 for the prior and near 0.7 for views, "
        "or those inside the clusters found and near 0.13 (ours).",
    )
    likelihood: str = hp.fixed(
        "gaussian", doc="gaussian, or bernoulli for views whose values lie in [0, 1]."
    )


V = TypeVar("V", bound=VariationalParams)


class VariationalClusterer(EpochClusterer[V]):
    """One pooled variational latent with a mixture prior; subclasses give ``R``."""

    params: V

    # --- what a method says ---------------------------------------------------------------------

    @abstractmethod
    def make_correlation(self, n_views: int) -> Correlation:
        """R before training."""

    def start_correlation(self, latents: np.ndarray, mask: np.ndarray, rng: Generator) -> None:
        """Set R when joint training begins; latents [n, V, q] of all rows, mask [n, V]."""
        return

    def refresh_correlation(self, tensors: Tensors, epoch: int) -> None:
        """Called before each joint epoch; for an R that is computed rather than trained."""
        return

    block: Block = "observed"
    """Which block of R is inverted; see `_aggregate_correlated`."""

    correlation_lr: float = 0.01

    coherence_on_std: bool = False
    """Take the views' standard deviations where (3) has variances, as ACOVA's public code does."""

    # --- the networks ---------------------------------------------------------------------------

    def check(self, data: ViewData) -> None:
        """See `EpochClusterer.check`."""
        refuse_unusable(data, self.name())
        if self.params.likelihood == "bernoulli":
            refuse_outside_unit(data)

    def stages(self) -> tuple[tuple[str, int], ...]:
        """See `EpochClusterer.stages`."""
        return ("autoencoder", self.params.pretrain_epochs), ("joint", self.params.epochs)

    def build(self, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.build`."""
        p, hidden = self.params, WIDTHS[self.params.hidden]
        widths = [array.shape[1] for array in data.arrays]
        start = NARROW if p.start == "clusters" else 0.0
        self.encoders_ = nn.ModuleList(
            GaussianEncoder(d, hidden, (p.latent,), start=start) for d in widths
        )
        self.decoders_ = nn.ModuleList(decoder(p.latent, hidden, d) for d in widths)
        self.prior_ = MixturePrior(data.n_clusters, p.latent)
        self.correlation_ = self.make_correlation(len(widths))
        nets = [*self.encoders_.parameters(), *self.decoders_.parameters()]
        self.optimizers_ = {
            "autoencoder": adam(nets, 1e-3),
            "nets": adam(nets, p.lr),
            "prior": adam(list(self.prior_.parameters()), p.prior_lr),
        }
        learned = [c for c in self.correlation_.parameters() if c.requires_grad]
        if learned:
            self.optimizers_["correlation"] = adam(learned, self.correlation_lr)

    def modules(self) -> Mapping[str, nn.Module]:
        """See `EpochClusterer.modules`."""
        return {
            "encoders": self.encoders_,
            "decoders": self.decoders_,
            "prior": self.prior_,
            "correlation": self.correlation_,
        }

    def optimizers(self) -> Mapping[str, Optimizer]:
        """See `EpochClusterer.optimizers`."""
        return self.optimizers_

    def posteriors(self, views: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """What each view says: means and standard deviations, two of [n, V, q]."""
        pairs = [net(x)[0] for net, x in zip(self.encoders_, views, strict=True)]
        return torch.stack([mean for mean, _ in pairs], 1), torch.stack([s for _, s in pairs], 1)

    def reconstruction(self, z: Tensor, views: tuple[Tensor, ...], mask: Tensor) -> Tensor:
        """Equation (1) for each row. Shape: z [n, q]; returns [n]."""
        total = torch.zeros(len(z))
        for v, (net, x) in enumerate(zip(self.decoders_, views, strict=True)):
            if self.params.likelihood == "bernoulli":
                error = F.binary_cross_entropy_with_logits(net(z), x, reduction="none")
            else:
                error = (net(z) - x) ** 2
            each = error.sum(1) if self.params.rec_scale == "sum" else error.mean(1)
            total = total + each * mask[:, v]
        return total

    # --- training -------------------------------------------------------------------------------

    def enter(self, stage: str, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.enter`: before ``joint``, centres and R from the latents."""
        together = co_observed(data.mask)
        self.signals_["pairs_never_together"] = float((~together).sum() / 2)
        self.correlation_.limit_to(together)
        if stage != "joint":
            return
        tensors = Tensors(data)
        with torch.no_grad():
            latents = self.posteriors(tensors.views)[0].numpy()
        centres, fell_back = start_centres(latents, data.mask, data.n_clusters, rng)
        self.signals_["start_from_all_rows"] = float(fell_back)
        if self.params.start == "clusters":
            spread = spread_within(mean_of_observed(latents, data.mask), centres)
            self.prior_.start(torch.from_numpy(centres), torch.from_numpy(spread))
        else:
            self.prior_.start(torch.from_numpy(centres))
        self.start_correlation(latents, data.mask, rng)

    def train_epoch(
        self, stage: str, epoch: int, data: ViewData, rng: Generator
    ) -> Mapping[str, float]:
        """See `EpochClusterer.train_epoch`."""
        tensors = tensors_of(data)
        if stage == "autoencoder":
            return self._autoencode(tensors, rng)
        self.refresh_correlation(tensors, epoch)
        p, steps = self.params, n_batches(tensors.n, self.params.batch)
        rates = {"nets": p.lr, "prior": p.prior_lr, "correlation": self.correlation_lr}
        used = {k: o for k, o in self.optimizers_.items() if k in rates}
        weights = [w for module in self.modules().values() for w in module.parameters()]
        sums: dict[str, float] = {}
        for step, rows in enumerate(batches(tensors.n, p.batch, rng)):
            views, mask = tensors.take(rows)
            parts = self.losses(views, mask)
            for name, optimizer in used.items():
                set_rate(optimizer, rates[name] * DECAY ** ((epoch + step / steps) / DECAY_EPOCHS))
                optimizer.zero_grad(set_to_none=True)
            loss = parts["rec"] + parts["prior"] + p.coherence * parts["coherence"]
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_([w for w in weights if w.requires_grad], CLIP_NORM)
            for optimizer in used.values():
                optimizer.step()
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach()) * len(rows)
        means = {name: total / tensors.n for name, total in sums.items()}
        return means | {"least_share": self.prior_.smallest_share(), **self.correlation_.facts()}

    def losses(self, views: tuple[Tensor, ...], mask: Tensor) -> dict[str, Tensor]:
        """Means over rows of (1), (2) and the unweighted (3); share of deviations at the floor."""
        mu, sigma = self.posteriors(views)
        mean, var, _ = pooled(mu, sigma, mask, self.correlation_(), block=self.block)
        z = mean + var.sqrt() * torch.randn_like(mean)
        log_gamma = self.prior_.log_responsibilities(z)
        spread = sigma if self.coherence_on_std else sigma**2
        each = gaussian_kl(mean[:, None], var[:, None], mu, spread)  # [n, V]
        coherence = (each * mask).sum(1) / mask.sum(1)
        return {
            "rec": self.reconstruction(z, views, mask).mean(),
            "prior": self.prior_.penalty(mean, var, log_gamma).mean(),
            "coherence": coherence.mean(),
            "std_at_floor": (sigma.detach() < 2.0 * STD_FLOOR).float().mean(),
        }

    def _autoencode(self, tensors: Tensors, rng: Generator) -> dict[str, float]:
        optimizer, total = self.optimizers_["autoencoder"], 0.0
        for rows in batches(tensors.n, self.params.batch, rng):
            views, mask = tensors.take(rows)
            loss = torch.zeros(())
            for v, (x, net, back) in enumerate(
                zip(views, self.encoders_, self.decoders_, strict=True)
            ):
                out = back(cast(GaussianEncoder, net)(x)[0][0])
                if self.params.likelihood == "bernoulli":
                    out = out.sigmoid()
                error = ((out - x) ** 2).mean(1)
                loss = loss + (error * mask[:, v]).sum() / mask[:, v].sum().clamp_min(1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        return {"autoencoder": total / tensors.n}

    # --- answers --------------------------------------------------------------------------------

    def result(self, data: ViewData) -> Clustering:
        """See `EpochClusterer.result`."""
        tensors = Tensors(data)
        with torch.no_grad():
            mu, sigma = self.posteriors(tensors.views)
            if not self.entered("joint"):
                points = mean_of_observed(mu.numpy(), data.mask)
                labels, _ = kmeans(points, data.n_clusters, self.stream(RESULT, 1))
                return Clustering(labels=labels, embedding=points)
            mean, soft = self._pooled(tensors, mu, sigma)
            decoded = [self._decoded(net, mean) for net in self.decoders_]
        return Clustering(
            labels=soft.argmax(1).astype(np.int64),
            soft=soft,
            embedding=mean.numpy(),
            imputed=filled(data, decoded),
        )

    def assign(self, data: ViewData) -> tuple[np.ndarray, np.ndarray]:
        """Clusters of new rows by their views' networks; see `Clusterer.assign`."""
        if not self.entered("joint"):
            return super().assign(data)
        tensors = Tensors(data)
        with torch.no_grad():
            _, soft = self._pooled(tensors, *self.posteriors(tensors.views))
        return soft.argmax(1).astype(np.int64), soft

    def _pooled(self, tensors: Tensors, mu: Tensor, sigma: Tensor) -> tuple[Tensor, np.ndarray]:
        matrix = self.correlation_.usable()
        mean, _, _ = pooled(mu, sigma, tensors.mask, matrix, block=self.block)
        return mean, self.prior_.log_responsibilities(mean).exp().numpy()

    def _decoded(self, net: nn.Module, mean: Tensor) -> np.ndarray:
        out = net(mean)
        if self.params.likelihood == "bernoulli":
            out = out.sigmoid()
        return cast(np.ndarray, out.numpy())
