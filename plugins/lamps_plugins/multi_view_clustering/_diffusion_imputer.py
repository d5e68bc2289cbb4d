"""Missing views from what the other views say: by diffusion, or by its deterministic twin.

One network a view learns ``x_v`` given ``[z without v, s_v]``. Leaving v out of the pooled z is
what makes training like use: a row that lacks v has no z from it, and a network that saw x_v
through z would copy it. A missing view has no s_v either: it is drawn from donors (the rows
nearest in z that show v), from the prior, or from a linear fit on z.

Views of up to 256 features are modelled as they are, wider ones by their leading principal
components, scaled to variance 1.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from lamps.errors import ConfigError, LampsWarning
from lamps_plugins._views.data import ViewData
from lamps_plugins.multi_view_clustering._deep_disentangled import DisentangledNets, Posteriors
from lamps_plugins.multi_view_clustering._diffusion_denoiser import Denoiser, Regressor
from lamps_plugins.multi_view_clustering._diffusion_schedule import (
    Predict,
    clean_of,
    cosine_levels,
    ddim,
)

Kind = Literal["diffusion", "regression"]
Donors = Literal["knn", "prior", "regressor"]

WIDEST = 256
LEAST_ROWS = 200
"""Rows that show a view, below which no network is trained for it and donors' means are taken."""

NEIGHBOURS = 10
CHUNK = 8192
"""Rows and draws that are denoised at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How views are imputed.

    Args:
        kind: ``diffusion`` or ``regression``.
        hidden: Units of the networks.
        steps: Noise levels T.
        ddim_steps: Calls of the network when sampling.
        predict: What a denoiser tells.
        guidance: See `Denoiser.guided`.
        draws: Samples of each missing view; their mean is its imputation.
        donors: Where a missing view's s comes from.
    """

    kind: Kind
    hidden: int
    steps: int
    ddim_steps: int
    predict: Predict
    guidance: float
    draws: int
    donors: Donors

    def __post_init__(self) -> None:
        for name, allowed in (("kind", Kind), ("predict", Predict), ("donors", Donors)):
            value, known = getattr(self, name), get_args(allowed)
            if value not in known:
                raise ConfigError(
                    f"imputation cannot have {name} {value!r}; expected {', '.join(known)}"
                )


def without(nets: DisentangledNets, said: Posteriors, mask: Tensor, view: int) -> Tensor:
    """Z of rows pooled without a view; nothing of the view's features is in it.

    Args:
        nets: The networks.
        said: What the encoders say of the rows.
        mask: What is observed, at least one view besides ``view`` in each row.
        view: Which view is left out.

    Shape:
        mask: [n, V]; returns [n, q].
    """
    others = mask.clone()
    others[:, view] = False
    # What the view says is wiped too, so that no rule of pooling can read it.
    z, z_std = said.z.clone(), said.z_std.clone()
    z[:, view], z_std[:, view] = 0.0, 1.0
    return nets.consensus(Posteriors(z, z_std, said.s, said.s_std), others)


class Codes(nn.Module):
    """A view's features as the network sees them, and back."""

    scale: Tensor
    axes: Tensor
    centre: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = min(width, WIDEST)
        self.register_buffer("axes", torch.eye(width)[:, : self.width].clone())
        self.register_buffer("scale", torch.ones(self.width))
        self.register_buffer("centre", torch.zeros(width))

    def fit(self, x: Tensor) -> None:
        """Principal components of the rows that show the view, where it is wide."""
        if x.shape[1] <= WIDEST:
            return
        centre = x.mean(0)
        _, size, axes = torch.linalg.svd(x - centre, full_matrices=False)
        rank = min(self.width, len(size))
        self.centre.copy_(centre)
        self.axes.zero_()
        self.axes[:, :rank] = axes[:rank].T
        self.scale[:rank] = (size[:rank] / len(x) ** 0.5).clamp_min(1e-6)

    def code(self, x: Tensor) -> Tensor:
        """[n, d] to [n, codes]."""
        found: Tensor = (x - self.centre) @ self.axes / self.scale
        return found

    def back(self, code: Tensor) -> Tensor:
        """[n, codes] to [n, d]."""
        found: Tensor = (code * self.scale) @ self.axes.T + self.centre
        return found


class Imputer(nn.Module):
    """One conditional network a view.

    ``nets`` learn, ``averaged`` follow them and are what samples; see `_diffusion_training`.

    Args:
        widths: Features of each view.
        condition: q + r.
        settings: See `Settings`.
    """

    def __init__(self, widths: list[int], condition: int, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.codes = nn.ModuleList(Codes(d) for d in widths)
        net = Denoiser if settings.kind == "diffusion" else Regressor
        self.nets = nn.ModuleList(
            net(cast(Codes, c).width, condition, settings.hidden) for c in self.codes
        )
        self.averaged = copy.deepcopy(self.nets).requires_grad_(False)
        self.levels = cosine_levels(settings.steps)

    def start(self, views: tuple[Tensor, ...], mask: Tensor, names: tuple[str, ...]) -> None:
        """Fit the codes; warn of views that too few rows show."""
        for v, x in enumerate(views):
            cast(Codes, self.codes[v]).fit(x[mask[:, v]])
            if int(mask[:, v].sum()) < LEAST_ROWS:
                warnings.warn(
                    f"view {names[v]!r} is shown by {int(mask[:, v].sum())} rows, fewer than the "
                    f"{LEAST_ROWS} that a network needs: means of donors fill it instead",
                    LampsWarning,
                    stacklevel=2,
                )

    def draw(
        self,
        nets: DisentangledNets,
        data: ViewData,
        views: tuple[Tensor, ...],
        mask: Tensor,
        *,
        draws: int,
        rng: Generator,
    ) -> Mapping[int, NDArray[np.float32]]:
        """Samples of every missing view, for the rows that lack it, in their order.

        The twin gives the same for each draw. Torch's global generator is drawn from, too.

        Shape:
            Returns [draws, rows that lack the view, d_v] by view.
        """
        with torch.no_grad():
            said = nets.encode(views)
            place = nets.mixture(said, mask).numpy()
            whole = nets.consensus(said, mask)
            found = {}
            for v in range(data.n_views):
                lacking = np.flatnonzero(~data.mask[:, v])
                if not len(lacking):
                    continue
                donors = donors_of(place, data.mask[:, v], lacking)
                if int(data.mask[:, v].sum()) < LEAST_ROWS:
                    mean = data.arrays[v][donors].mean(1)
                    found[v] = np.broadcast_to(mean, (draws, *mean.shape)).astype(np.float32)
                    continue
                s = self._own(said.s, place, data.mask[:, v], v, lacking, donors, draws, rng)
                z = whole[torch.from_numpy(lacking)]
                found[v] = self.sample(v, z, s)
        return found

    def _own(
        self,
        s: Tensor,
        place: NDArray[np.float32],
        shown: NDArray[np.bool_],
        view: int,
        lacking: NDArray[np.int64],
        donors: NDArray[np.int64],
        draws: int,
        rng: Generator,
    ) -> Tensor:
        """The views' own latents for rows that lack it. Shape: [draws, rows, r]."""
        shape = (draws, len(lacking), s.shape[2])
        known = s[:, view].numpy()
        if self.settings.donors == "prior" or not shape[2]:
            found = rng.normal(size=shape)
        elif self.settings.donors == "regressor":
            from sklearn.linear_model import Ridge

            fit = Ridge(1.0).fit(place[shown], known[shown])
            guess = np.asarray(fit.predict(place)).reshape(len(place), -1)
            spread = (known[shown] - guess[shown]).std(0)
            found = guess[lacking] + spread * rng.normal(size=shape)
        else:
            pick = rng.integers(donors.shape[1], size=shape[:2])
            found = known[donors[np.arange(len(lacking)), pick]]
        if self.settings.kind == "regression":  # deterministic: what draws say on average
            mean = known[donors].mean(1) if self.settings.donors == "knn" else found.mean(0)
            found = np.broadcast_to(mean, shape)
        return torch.from_numpy(np.array(found, dtype=np.float32))

    def sample(self, v: int, z: Tensor, s: Tensor) -> NDArray[np.float32]:
        """Samples of one view; the twin gives the same for each draw.

        Args:
            v: Which view.
            z: Pooled from the other views. Shape: [n, q].
            s: The view's own latent. Shape: [draws, n, r].

        Shape:
            Returns [draws, n, d_v].
        """
        draws, n = s.shape[:2]
        net, codes = self.averaged[v], cast(Codes, self.codes[v])
        if isinstance(net, Regressor):
            one = codes.back(net(torch.cat([z, s[0]], 1)))
            return cast(NDArray[np.float32], one.expand(draws, *one.shape).numpy())
        conditions = torch.cat([z.expand(draws, *z.shape), s], 2).reshape(draws * n, -1)
        parts = [
            codes.back(self._codes_of(cast(Denoiser, net), condition, codes.width))
            for condition in torch.split(conditions, CHUNK)
        ]
        return cast(NDArray[np.float32], torch.cat(parts).reshape(draws, n, -1).numpy())

    def _codes_of(self, net: Denoiser, condition: Tensor, width: int) -> Tensor:
        start = torch.randn(len(condition), width)
        predict, guidance = self.settings.predict, self.settings.guidance

        def clean(x: Tensor, t: Tensor) -> Tensor:
            told = net.guided(x, t, condition, guidance)
            return clean_of(told, x, t, self.levels, predict)

        return ddim(clean, start, self.levels, steps=self.settings.ddim_steps)


def donors_of(
    place: NDArray[np.float32], shown: NDArray[np.bool_], lacking: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The rows nearest in z that show a view, for rows that lack it. Shape: [rows, donors]."""
    from sklearn.neighbors import NearestNeighbors

    able = np.flatnonzero(shown)
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(able))).fit(place[able])
    found: NDArray[np.int64] = able[near.kneighbors(place[lacking], return_distance=False)]
    return found
