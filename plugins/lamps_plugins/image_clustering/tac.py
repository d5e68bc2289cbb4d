"""Images and their texts teach each other by neighbours: text-aided clustering, trained.

Paper: Li et al., Image Clustering with External Guidance, ICML 2024, arXiv 2310.11989, section 3.

    P = head(x),  Q = head'(t)
    L = D(P_i, Q_i') + D(Q_i, P_i'') - log <P_i, Q_i> - mu (H(mean P) + H(mean Q))              (1)

with a text neighbour i', an image neighbour i'' and D of `_losses`. One granularity, no adapters,
no alignment of columns. The paper makes texts by retrieval of WordNet nouns; ours are given.
Without training it is `joint_kmeans`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._guided import Guided, thirds
from lamps_plugins.image_clustering._losses import (
    column_contrast,
    entropy_of_mean,
    pair_consistency,
)
from lamps_plugins.image_clustering._nets import Head, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of text-aided clustering."""

    granularity: str = hp.choice(
        "fine", ("fine", "coarse"), doc="The texts that are used: the last view, or the first."
    )
    neighbours: int = hp.choice(50, (5, 10, 20, 50), doc="Nearest rows that are drawn from.")
    tau: float = hp.choice(0.5, (0.5, 1.1, 5.0), doc="Temperature of D, unitless; eq. (1).")
    balance: float = hp.choice(5.0, (1.0, 2.0, 5.0, 10.0), doc="Weight mu of evenness; eq. (1).")
    width: int = hp.fixed(384, doc="Width of the heads; wider images are reduced by PCA.")
    rate: float = hp.real(1e-4, low=3e-5, high=1e-3, log=True, doc="Learning rate of Adam.")
    batch: int = hp.choice(512, (128, 256, 512, 1024, 2048), doc="Rows of a batch.")
    epochs: int = hp.integer(100, low=10, high=100, log=True, doc="Passes over the rows.")


class Tac(Guided[Params]):
    """Two heads, one an image and one a text."""

    spec = MethodSpec(
        family="image-clustering",
        summary="image and text heads teach each other through neighbours",
        paper=Paper(
            title="Image Clustering with External Guidance",
            arxiv="2310.11989",
            venue="ICML 2024",
            section="3",
        ),
        tags=Tags(baseline=True),
    )

    def texts_used(self, data: ViewData) -> tuple[int, ...]:
        """One view."""
        return (data.n_views - 1 if self.params.granularity == "fine" else 1,)

    def settings(self) -> tuple[float, int, int, int]:
        """See `Guided.settings`."""
        p = self.params
        return p.rate, p.batch, p.epochs, p.neighbours

    def networks(self, data: ViewData) -> nn.ModuleDict:
        """See `Guided.networks`."""
        (view,) = self.texts_used(data)
        self._image, self._text, k = data.names[0], data.names[view], data.n_clusters
        reduction = Reduction(data.dims[0], self.params.width)
        d = reduction.width
        return nn.ModuleDict(
            {
                "reduction": reduction,
                "image_head": Head(d, d, k),
                "text_head": Head(data.dims[view], d, k),
            }
        )

    def student(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """See `Guided.student`; the embedding is the hidden layer of the head."""
        head = self.nets_["image_head"]
        return head.hidden(images), head(images)

    def loss(self, features: Mapping[str, Tensor], batch: int) -> dict[str, Tensor]:
        """Equation (1)."""
        p = self.params
        soft = self.student(features[self._image])[1]
        text = self.nets_["text_head"](features[self._text])
        (p0, _, p2), (q0, q1, _) = thirds(soft, batch), thirds(text, batch)
        inter = column_contrast(p0, q1, p.tau) + column_contrast(q0, p2, p.tau)
        agreed = pair_consistency(p0, q0)
        even = entropy_of_mean(p0) + entropy_of_mean(q0)
        return {
            "loss": inter + agreed - p.balance * even,
            "inter": inter,
            "agreed": agreed,
            "agreement": (p0.argmax(1) == q0.argmax(1)).float().mean(),
        }
