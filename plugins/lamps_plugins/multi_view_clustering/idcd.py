"""IDCD-style: views split into shared and own latents, pooled, clustered; missing views generated.

Paper: Chen et al., Information-Theoretic Disentangled Latent Modeling with Conditional Diffusion
for Incomplete Multi-View Clustering, ICML 2026. Only its abstract was to be had: the building
blocks are the paper's, every equation and size is ours, from the nearest published parts.

    z of a row    mixture over sets S of its observed views of Wasserstein barycentres
                  N(sum_v w_v mu_v, (sum_v w_v sigma_v)^2), v in S (`_aggregate_wasserstein`)   (1)
    loss = rec + beta_g gmm + beta_s own + lambda_d dep + lambda_c con                          (2)
    rec  = mean width * sum_v |x_v - decoder_v([z; s_v])|^2 / d_v,   z ~ N of one drawn S       (3)
    gmm  = mixture prior on z (`_deep_prior`);  own = sum_v KL(q(s_v | x_v) || N(0, I))         (4)
    dep  = sum_v CLUB bound on I(z_v; s_v), or normalised HSIC                                  (5)
    con  = sum_{v<w} InfoNCE(mu_v, mu_w) + c mean_v KL(N of S || q(z_v | x_v))                  (6)

Stages: ``autoencoder`` (30 epochs), ``joint`` (100, (4) left and (5) ramped over 20) and, only
where views are to be imputed, ``diffusion`` (encoders frozen; `_diffusion_imputer`): candidates
that only cluster never pay for it. Labels are the largest responsibility at z of all observed
views. With ``w_imp`` the generated views count by that weight in a second look (10 EM steps).

Weak points: what is generated for a missing view depends on its s, which comes from donors; (5)
bounds the dependence from above only while the critics are good (signal ``critics_usable``); a
barycentre does not get sharper with more views. Variants as parameters: no (5), no s
(``own=0``), product of experts, no (6), no mixture prior, the deterministic twin
(``imputation="regression"``), denoisers that tell the noise or the view in place of v
(``predict``). Oracles: the barycentre of equal views is the view; the condition of
a view's network does not change with the view's z.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.clusterer import Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import RESULT, EpochClusterer
from lamps_plugins._views.linear import kmeans
from lamps_plugins.multi_view_clustering._aggregate_correlated import co_observed
from lamps_plugins.multi_view_clustering._aggregate_wasserstein import Subsets
from lamps_plugins.multi_view_clustering._deep_disentangled import (
    Aggregator,
    DisentangledNets,
    Posteriors,
)
from lamps_plugins.multi_view_clustering._deep_information import Critics, sampled
from lamps_plugins.multi_view_clustering._deep_joint_loss import JointLoss
from lamps_plugins.multi_view_clustering._deep_nets import adam
from lamps_plugins.multi_view_clustering._deep_prior import MixturePrior
from lamps_plugins.multi_view_clustering._deep_refine import mixture_of, moved, refined_labels
from lamps_plugins.multi_view_clustering._deep_start import (
    mean_of_observed,
    spread_within,
    start_centres,
)
from lamps_plugins.multi_view_clustering._deep_views import (
    Tensors,
    batches,
    filled,
    refuse_unusable,
    tensors_of,
)
from lamps_plugins.multi_view_clustering._diffusion_imputer import Donors, Imputer, Kind, Settings
from lamps_plugins.multi_view_clustering._diffusion_schedule import Predict
from lamps_plugins.multi_view_clustering._diffusion_training import train_epoch

if TYPE_CHECKING:
    from torch.optim import Optimizer

CLIP_NORM = 10.0
RAMP = 20
HIDDEN: Mapping[str, tuple[int, ...]] = {"small": (128, 128), "medium": (256, 256)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of IDCD."""

    shared: int = hp.choice(16, (8, 16, 32), doc="Dimensions q of the shared latent z.")
    own: int = hp.choice(
        8, (0, 2, 4, 8, 16), doc="Dimensions r of a view's own latent s; 0: none."
    )
    hidden: str = hp.choice(
        "small", tuple(HIDDEN), doc="Hidden layers of the encoders: 128-128 or 256-256."
    )
    beta_g: float = hp.real(
        1.0, low=0.01, high=10.0, log=True, doc="Weight of the prior on z; eq. (2)."
    )
    beta_s: float = hp.real(
        0.1, low=0.01, high=10.0, log=True, doc="Weight of the prior on s; eq. (2)."
    )
    lambda_d: float = hp.choice(
        0.1, (0.0, 0.01, 0.1, 1.0), doc="Weight of the dependence of s and z; eq. (5)."
    )
    dependence: str = hp.choice(
        "club", ("club", "hsic"), doc="Measure of dependence: CLUB with critics, or HSIC."
    )
    lambda_c: float = hp.real(
        0.5, low=0.05, high=5.0, log=True, doc="Weight of the consistency of views; eq. (6)."
    )
    coherence: float = hp.real(0.1, low=0.0, high=1.0, doc="Factor c of the KL part of eq. (6).")
    contrast: bool = hp.choice(True, (True, False), doc="Whether (6) is part of the loss.")
    temperature: float = hp.choice(0.2, (0.1, 0.2, 0.5), doc="Of InfoNCE, unitless.")
    aggregator: str = hp.choice(
        "mixture",
        ("mixture", "barycentre", "poe", "moe", "correlated"),
        doc="How views are pooled: eq. (1), or one of its alternatives.",
    )
    subsets: str = hp.choice(
        "singles+full", ("full", "singles+full", "all"), doc="Sets of views of the mixture."
    )
    prior: str = hp.choice(
        "mixture", ("mixture", "normal"), doc="Prior of z; normal leaves clusters to k-means."
    )
    lr: float = hp.real(1e-3, low=1e-4, high=3e-3, log=True, doc="Rate of the networks.")
    prior_lr: float = hp.real(1e-2, low=1e-3, high=3e-2, log=True, doc="Rate of the prior.")
    pretrain_epochs: int = hp.choice(30, (10, 30), doc="Epochs of stage autoencoder.")
    epochs: int = hp.choice(100, (15, 50, 100), doc="Epochs of stage joint.")
    batch: int = hp.choice(256, (128, 256, 512), doc="Rows of a batch.")
    imputation: str = hp.fixed(
        "none", doc="Missing views: none (no third stage), diffusion, or its twin regression."
    )
    diffusion_epochs: int = hp.fixed(100, doc="Epochs of stage diffusion.")
    denoiser: int = hp.fixed(256, doc="Units of each of a denoiser's three layers.")
    noise_levels: int = hp.fixed(200, doc="Noise levels T of the cosine schedule.")
    ddim_steps: int = hp.fixed(20, doc="Calls of a denoiser to make one sample.")
    predict: str = hp.choice(
        "v", ("v", "x0", "noise"), doc="What a denoiser tells: v, the clean view or the noise."
    )
    guidance: float = hp.choice(
        1.0, (1.0, 1.5, 3.0), doc="Weight of the condition when sampling; 1 is plain."
    )
    draws: int = hp.fixed(5, doc="Samples of a missing view; their mean is its imputation.")
    donors: str = hp.fixed("knn", doc="Source of a missing view's s: knn, prior or regressor.")
    w_imp: float = hp.fixed(0.0, doc="Weight of generated views in a second look, 0 to 1.")


class Idcd(EpochClusterer[Params]):
    """Shared and own latents of views, a mixture of barycentres, and generated views."""

    spec = MethodSpec(
        family="multi-view-clustering",
        summary="Shared and own latents, Wasserstein mixture, diffusion of missing views.",
        paper=Paper(
            title="Information-Theoretic Disentangled Latent Modeling with Conditional Diffusion "
            "for Incomplete Multi-View Clustering",
            venue="ICML 2026",
        ),
        tags=Tags(),
        version="2",
    )

    # --- what a method says ---------------------------------------------------------------------

    @property
    def imputes(self) -> bool:
        """Whether missing views are generated."""
        return self.params.imputation != "none"

    def check(self, data: ViewData) -> None:
        """See `EpochClusterer.check`."""
        refuse_unusable(data, self.name(), least_views=2)
        if not self.imputes:
            return
        alone = co_observed(data.mask).sum(1) < 2
        if alone.any():
            name = data.names[int(np.argmax(alone))]
            raise ProblemError(
                f"view {name!r} is never seen with another view, so it cannot be generated from "
                "others; leave it out, or take imputation=none"
            )

    def stages(self) -> tuple[tuple[str, int], ...]:
        """See `EpochClusterer.stages`."""
        p = self.params
        last = (("diffusion", p.diffusion_epochs),) if self.imputes else ()
        return ("autoencoder", p.pretrain_epochs), ("joint", p.epochs), *last

    def build(self, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.build`."""
        p = self.params
        widths = [array.shape[1] for array in data.arrays]
        self.nets_ = DisentangledNets(
            widths,
            HIDDEN[p.hidden],
            shared=p.shared,
            own=p.own,
            aggregator=cast(Aggregator, p.aggregator),
            subsets=cast(Subsets, p.subsets),
        )
        self.prior_ = MixturePrior(data.n_clusters, p.shared)
        self.modules_: dict[str, nn.Module] = {"nets": self.nets_, "prior": self.prior_}
        nets = list(self.nets_.parameters())
        self.optimizers_ = {
            "autoencoder": adam(nets, 1e-3),
            "nets": adam(nets, p.lr),
            "prior": adam(list(self.prior_.parameters()), p.prior_lr),
        }
        self.critics_: Critics | None = None
        if p.own and p.lambda_d > 0.0 and p.dependence == "club":
            self.critics_ = Critics(len(widths), p.shared, p.own)
            self.modules_["critics"] = self.critics_
            self.optimizers_["critics"] = adam(list(self.critics_.parameters()), 1e-3)
        self.loss_ = JointLoss(
            nets=self.nets_,
            prior=self.prior_ if p.prior == "mixture" else None,
            critics=self.critics_,
            hsic=p.own > 0 and p.lambda_d > 0.0 and p.dependence == "hsic",
            contrast=p.contrast,
            coherence=p.coherence,
            temperature=p.temperature,
        )
        self.imputer_: Imputer | None = None
        if self.imputes:
            self.imputer_ = Imputer(widths, p.shared + p.own, self._imputation())
            self.modules_["imputer"] = self.imputer_
            learning = list(self.imputer_.nets.parameters())
            self.optimizers_["imputer"] = adam(learning, 1e-3)

    def _imputation(self) -> Settings:
        p = self.params
        return Settings(
            kind=cast(Kind, p.imputation),
            hidden=p.denoiser,
            steps=p.noise_levels,
            ddim_steps=p.ddim_steps,
            predict=cast(Predict, p.predict),
            guidance=p.guidance,
            draws=p.draws,
            donors=cast(Donors, p.donors),
        )

    def modules(self) -> Mapping[str, nn.Module]:
        """See `EpochClusterer.modules`."""
        return self.modules_

    def optimizers(self) -> Mapping[str, Optimizer]:
        """See `EpochClusterer.optimizers`."""
        return self.optimizers_

    # --- training -------------------------------------------------------------------------------

    def enter(self, stage: str, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.enter`: the prior's centres, or the codes of wide views."""
        tensors = Tensors(data)
        if stage == "joint":
            with torch.no_grad():
                latents = self.nets_.encode(tensors.views).z.numpy()
            centres, fell_back = start_centres(latents, data.mask, data.n_clusters, rng)
            spread = spread_within(mean_of_observed(latents, data.mask), centres)
            self.prior_.start(torch.from_numpy(centres), torch.from_numpy(spread))
            self.signals_["start_from_all_rows"] = float(fell_back)
        elif stage == "diffusion":
            assert self.imputer_ is not None
            self.imputer_.start(tensors.views, tensors.mask, data.names)

    def train_epoch(
        self, stage: str, epoch: int, data: ViewData, rng: Generator
    ) -> Mapping[str, float]:
        """See `EpochClusterer.train_epoch`."""
        tensors = tensors_of(data)
        if stage == "diffusion":
            return {"imputation": self._impute(tensors, epoch, rng)}
        steps = {
            "autoencoder": lambda views, mask: self._autoencode(views, mask),
            "joint": lambda views, mask: self._joint(views, mask, min(1.0, (epoch + 1) / RAMP)),
        }
        sums: dict[str, float] = {}
        for rows in batches(tensors.n, self.params.batch, rng):
            for name, value in steps[stage](*tensors.take(rows)).items():
                sums[name] = sums.get(name, 0.0) + value * len(rows)
        means = {name: total / tensors.n for name, total in sums.items()}
        return means | ({"least_share": self.prior_.smallest_share()} if stage == "joint" else {})

    def _autoencode(self, views: tuple[Tensor, ...], mask: Tensor) -> dict[str, float]:
        said = self.nets_.encode(views)
        loss = torch.zeros(())
        for v, (x, net) in enumerate(zip(views, self.nets_.decoders, strict=True)):
            error = ((net(torch.cat([said.z[:, v], said.s[:, v]], 1)) - x) ** 2).mean(1)
            loss = loss + (error * mask[:, v]).sum() / mask[:, v].sum().clamp_min(1)
        self._step(loss, "autoencoder")
        return {"autoencoder": float(loss.detach())}

    def _joint(self, views: tuple[Tensor, ...], mask: Tensor, ramp: float) -> dict[str, float]:
        p = self.params
        said = self.nets_.encode(views)
        critic = {}
        if self.critics_ is not None:
            critic = {"critic_nll": self._train_critics(said, mask)}
        found = self.loss_.parts(said, views, mask)
        loss = (
            found["rec"]
            + ramp * p.beta_g * found["gmm"]
            + p.beta_s * found["own"]
            + ramp * p.lambda_d * found["dep"]
            + p.lambda_c * found["con"]
        )
        self._step(loss, "nets", "prior")
        return {name: float(value.detach()) for name, value in found.items()} | critic

    def _train_critics(self, said: Posteriors, mask: Tensor) -> float:
        assert self.critics_ is not None
        with torch.no_grad():
            z, s = sampled(said.z, said.z_std), sampled(said.s, said.s_std)
        loss = self.critics_.nll(z, s, mask)
        self._step(loss, "critics")
        return float(loss.detach())

    def _impute(self, tensors: Tensors, epoch: int, rng: Generator) -> float:
        assert self.imputer_ is not None
        adam = self.optimizers_["imputer"]
        return train_epoch(self.imputer_, self.nets_, tensors, adam, epoch=epoch, rng=rng)

    def _step(self, loss: Tensor, *names: str) -> None:
        used = [self.optimizers_[name] for name in names]
        for optimizer in used:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        weights = [w for o in used for group in o.param_groups for w in group["params"]]
        nn.utils.clip_grad_norm_(weights, CLIP_NORM)
        for optimizer in used:
            optimizer.step()

    # --- answers --------------------------------------------------------------------------------

    def result(self, data: ViewData) -> Clustering:
        """See `EpochClusterer.result`."""
        place = self._place_of(Tensors(data))
        labels, soft = self._labels(place, data.n_clusters)
        if not self.entered("diffusion"):
            return Clustering(labels=labels, soft=soft, embedding=place)
        drawn = self.draw(data, draws=self.params.draws, rng=self.stream(RESULT, 2))
        guesses = [np.zeros_like(array) for array in data.arrays]
        for v, samples in drawn.items():
            guesses[v][~data.mask[:, v]] = samples.mean(0)
        imputed = filled(data, guesses)
        if self.params.w_imp > 0.0:
            with torch.no_grad():
                said = self.nets_.encode(tuple(torch.from_numpy(array) for array in imputed))
            place = moved(place, said.z.numpy(), data.mask, self.params.w_imp)
            mixture = mixture_of(place, labels, data.n_clusters)
            if self.params.prior == "mixture":
                mixture = self.prior_.numbers()
            labels, soft = refined_labels(place, *mixture)
        return Clustering(labels=labels, soft=soft, embedding=place, imputed=imputed)

    def draw(
        self, data: ViewData, *, draws: int, rng: Generator
    ) -> Mapping[int, NDArray[np.float32]]:
        """Samples of the missing views of some rows; see `Imputer.draw`.

        Call it inside `seeded` to leave torch's global generator alone.
        """
        assert self.imputer_ is not None
        tensors = Tensors(data)
        return self.imputer_.draw(
            self.nets_, data, tensors.views, tensors.mask, draws=draws, rng=rng
        )

    def own_latents(self, data: ViewData) -> tuple[NDArray[np.float32], ...]:
        """Means of the views' own latents s_v, V times [n, r]; of hidden cells without meaning."""
        with torch.no_grad():
            found = self.nets_.encode(Tensors(data).views).s.numpy()
        return tuple(found[:, v] for v in range(data.n_views))

    def assign(self, data: ViewData) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Clusters of new rows by their own views; see `Clusterer.assign`."""
        if not self.entered("joint") or self.params.prior == "normal":
            return super().assign(data)
        soft = self._responsibilities(self._place_of(Tensors(data)))
        return soft.argmax(1).astype(np.int64), soft

    def _place_of(self, tensors: Tensors) -> NDArray[np.float32]:
        with torch.no_grad():
            found = self.nets_.consensus(self.nets_.encode(tensors.views), tensors.mask)
        return cast(NDArray[np.float32], found.numpy())

    def _responsibilities(self, place: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            found = self.prior_.log_responsibilities(torch.from_numpy(place)).exp()
        return cast(NDArray[np.float32], found.numpy())

    def _labels(
        self, place: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        if not self.entered("joint") or self.params.prior == "normal":
            return kmeans(place, k, self.stream(RESULT, 1))[0], None
        soft = self._responsibilities(place)
        return soft.argmax(1).astype(np.int64), soft
