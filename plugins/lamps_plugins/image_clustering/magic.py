"""Images clustered with texts at several granularities: adapters, neighbours, a consensus teacher.

Paper: MAGIC: Multi-Granularity Language-Informed Image Clustering, ICML 2026. The paper's modules
are known from its abstract; shapes, losses and defaults are those of a public re-implementation.

    t = |mean of self-attention over (t_fine, t_coarse)|,    h_I = a(x),  h_T = a'(t)           (1)
    P = head(h_I),  Q = head'([h_T; h_I])            student of images, teacher of the consensus
    L = D(P_i, P_i') + D(Q_i, Q_i'') + D(P_i, Q_i') + D(Q_i, P_i'')
        + lambda CE(P, Q by columns) - mu (H(mean P) + H(mean Q))                               (2)

with a text neighbour i', an image neighbour i'', and D of `_losses`. Labels come from the image
head alone, so new images need no text. ``granularities``, ``adapters`` and ``consensus`` switch
parts off. Texts here are embedded as they come: no caption model and no retrieval of nouns.
Oracle: with one granularity fusion is attention over one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lamps import space as hp
from lamps.errors import ProblemError
from lamps.method import MethodSpec, Paper
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._guided import Guided, thirds
from lamps_plugins.image_clustering._losses import alignment, column_contrast, entropy_of_mean
from lamps_plugins.image_clustering._nets import Adapter, Fusion, Head, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of MAGIC."""

    granularities: str = hp.choice(
        "all", ("all", "fine", "coarse"), doc="Texts that are used: all, the last view, the first."
    )
    adapters: bool = hp.choice(True, (True, False), doc="Bottlenecks of eq. (1); else identities.")
    consensus: bool = hp.choice(
        True, (True, False), doc="Whether the teacher sees the image as well as the text."
    )
    neighbours: int = hp.choice(50, (5, 10, 20, 50), doc="Nearest rows that are drawn from.")
    tau: float = hp.choice(1.1, (0.5, 1.1, 5.0), doc="Temperature of D, unitless; eq. (2).")
    alignment: float = hp.real(
        0.6, low=0.1, high=3.0, log=True, doc="Weight lambda of the alignment; eq. (2)."
    )
    balance: float = hp.choice(5.0, (1.0, 2.0, 5.0, 10.0), doc="Weight mu of evenness; eq. (2).")
    bottleneck: float = hp.choice(
        0.25, (0.0625, 0.125, 0.25, 0.5, 1.0), doc="Inner width of an adapter over its width."
    )
    width: int = hp.fixed(384, doc="Width of the common space; wider images are reduced by PCA.")
    rate: float = hp.real(1e-4, low=3e-5, high=1e-3, log=True, doc="Learning rate of Adam.")
    batch: int = hp.choice(512, (128, 256, 512, 1024, 2048), doc="Rows of a batch.")
    epochs: int = hp.integer(100, low=10, high=100, log=True, doc="Passes over the rows.")


class Magic(Guided[Params]):
    """A student of images, taught by the consensus of image and text."""

    spec = MethodSpec(
        family="image-clustering",
        summary="learns from texts at several granularities, answers from the image alone",
        paper=Paper(
            title="MAGIC: Multi-Granularity Language-Informed Image Clustering", venue="ICML 2026"
        ),
    )

    def texts_used(self, data: ViewData) -> tuple[int, ...]:
        """Views that are read: coarse texts come first."""
        every = tuple(range(1, data.n_views))
        return {"all": every, "fine": every[-1:], "coarse": every[:1]}[self.params.granularities]

    def check(self, data: ViewData) -> None:
        """See `Guided.check`; two texts are needed to leave one out."""
        if self.params.granularities != "all" and data.n_views < 3:
            raise ProblemError(
                f"granularities={self.params.granularities!r} chooses among texts, there is one "
                "kind only; use 'all'"
            )
        super().check(data)

    def settings(self) -> tuple[float, int, int, int]:
        """See `Guided.settings`."""
        p = self.params
        return p.rate, p.batch, p.epochs, p.neighbours

    def networks(self, data: ViewData) -> nn.ModuleDict:
        """See `Guided.networks`."""
        p, k = self.params, data.n_clusters
        self._image = data.names[0]
        self._texts = tuple(data.names[v] for v in self.texts_used(data))
        reduction = Reduction(data.dims[0], p.width)
        d = reduction.width
        adapt = p.adapters
        return nn.ModuleDict(
            {
                "reduction": reduction,
                "fusion": Fusion(tuple(data.dims[v] for v in self.texts_used(data)), d),
                "image_adapter": Adapter(d, p.bottleneck) if adapt else nn.Identity(),
                "text_adapter": Adapter(d, p.bottleneck) if adapt else nn.Identity(),
                "image_head": Head(d, d, k),
                "teacher": Head(2 * d if p.consensus else d, d, k),
            }
        )

    def student(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """See `Guided.student`."""
        hidden = self.nets_["image_adapter"](images)
        return hidden, self.nets_["image_head"](hidden)

    def loss(self, features: Mapping[str, Tensor], batch: int) -> dict[str, Tensor]:
        """Equation (2)."""
        p = self.params
        hidden, soft = self.student(features[self._image])
        fused = self.nets_["fusion"](*(features[name] for name in self._texts))
        text = self.nets_["text_adapter"](fused)
        teacher = self.nets_["teacher"](torch.cat([text, hidden], 1) if p.consensus else text)
        (p0, p1, p2), (q0, q1, q2) = thirds(soft, batch), thirds(teacher, batch)
        intra = column_contrast(p0, p1, p.tau) + column_contrast(q0, q2, p.tau)
        inter = column_contrast(p0, q1, p.tau) + column_contrast(q0, p2, p.tau)
        aligned = alignment(p0, q0)
        even = entropy_of_mean(p0) + entropy_of_mean(q0)
        return {
            "loss": intra + inter + p.alignment * aligned - p.balance * even,
            "intra": intra,
            "inter": inter,
            "aligned": aligned,
            "agreement": (p0.argmax(1) == q0.argmax(1)).float().mean(),
        }
