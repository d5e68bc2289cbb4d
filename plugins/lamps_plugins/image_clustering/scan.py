"""Images clustered by the consistency of neighbours, without any text.

Paper: Van Gansbeke et al., SCAN: Learning to Classify Images without Labels, ECCV 2020,
arXiv 2005.12320, section 2.2, the clustering step on features that stay frozen.

    L = -log <P_i, P_i''> - mu H(mean P),     i'' one of the nearest images                     (1)

What texts are worth is the difference between this and the methods that read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from lamps import space as hp
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._guided import Guided, thirds
from lamps_plugins.image_clustering._losses import entropy_of_mean, pair_consistency
from lamps_plugins.image_clustering._nets import Head, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of neighbour consistency."""

    neighbours: int = hp.choice(20, (5, 10, 20, 50), doc="Nearest images that are drawn from.")
    balance: float = hp.choice(5.0, (1.0, 2.0, 5.0, 10.0), doc="Weight mu of evenness; eq. (1).")
    width: int = hp.fixed(384, doc="Width of the head; wider images are reduced by PCA.")
    rate: float = hp.real(1e-4, low=3e-5, high=1e-3, log=True, doc="Learning rate of Adam.")
    batch: int = hp.choice(512, (128, 256, 512, 1024, 2048), doc="Rows of a batch.")
    epochs: int = hp.integer(100, low=10, high=100, log=True, doc="Passes over the rows.")


class Scan(Guided[Params]):
    """One head that agrees with itself on neighbours."""

    spec = MethodSpec(
        family="image-clustering",
        summary="image head that agrees with itself on neighbouring images; no text",
        paper=Paper(
            title="SCAN: Learning to Classify Images without Labels",
            arxiv="2005.12320",
            venue="ECCV 2020",
            section="2.2",
        ),
        tags=Tags(baseline=True),
    )

    def texts_used(self, data: ViewData) -> tuple[int, ...]:
        """None."""
        return ()

    def settings(self) -> tuple[float, int, int, int]:
        """See `Guided.settings`."""
        p = self.params
        return p.rate, p.batch, p.epochs, p.neighbours

    def networks(self, data: ViewData) -> nn.ModuleDict:
        """See `Guided.networks`."""
        self._image = data.names[0]
        reduction = Reduction(data.dims[0], self.params.width)
        d = reduction.width
        return nn.ModuleDict({"reduction": reduction, "image_head": Head(d, d, data.n_clusters)})

    def student(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """See `Guided.student`; the embedding is the hidden layer of the head."""
        head = self.nets_["image_head"]
        return head.hidden(images), head(images)

    def loss(self, features: Mapping[str, Tensor], batch: int) -> dict[str, Tensor]:
        """Equation (1)."""
        soft = self.student(features[self._image])[1]
        p0, _, p2 = thirds(soft, batch)
        agreed, even = pair_consistency(p0, p2), entropy_of_mean(p0)
        return {"loss": agreed - self.params.balance * even, "agreed": agreed, "even": even}
