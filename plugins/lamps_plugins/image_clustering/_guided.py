"""The base class of methods that train a head on image features with neighbours and texts.

Rows whose texts are all there are trained on; every row is answered for, by its image alone. A
batch holds rows, and for each one image neighbour and one text neighbour, drawn anew every epoch.
The last rows join the batch before them, so no batch is smaller than asked, and never one row.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from lamps.errors import ProblemError
from lamps_plugins._views.clusterer import Assignment, Clustering
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.epochs import EpochClusterer
from lamps_plugins.image_clustering import _losses

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["Guided", "Triple", "neighbours", "thirds"]

P = TypeVar("P")

_BLOCK = 2048  # rows whose similarities are held at once

Triple = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Rows of a batch, a text neighbour and an image neighbour of each."""


def neighbours(x: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The ``k`` rows of largest cosine, itself excluded; in blocks, never [n, n].

    Shape:
        x: [n, d] of length 1; Returns [n, k].
    """
    found = np.empty((len(x), k), dtype=np.int64)
    for low in range(0, len(x), _BLOCK):
        close = x[low : low + _BLOCK] @ x.T
        rows = np.arange(len(close))
        close[rows, rows + low] = -np.inf
        found[low : low + _BLOCK] = np.argpartition(-close, k - 1, axis=1)[:, :k]
    return found


def thirds(both: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of a batch, their text neighbours and their image neighbours. Shape: [3 B, K]."""
    return both[:batch], both[batch : 2 * batch], both[2 * batch :]


class Guided(EpochClusterer[P]):
    """Heads on frozen features; see the module.

    Attributes:
        nets_: All networks by name; made by `networks`.
        adam_: Their optimiser.
    """

    params: P

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.nets_: Any = nn.ModuleDict()
        self.adam_: Any = None
        self._tables: Triple | None = None
        self._tensors: dict[str, Tensor] | None = None

    # --- what a method says -------------------------------------------------------------------

    @abstractmethod
    def networks(self, data: ViewData) -> nn.ModuleDict:
        """The networks, untrained; reads widths and ``n_clusters`` only."""

    @abstractmethod
    def student(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding [B, q] and soft assignments [B, K] of images alone, reduced already."""

    @abstractmethod
    def loss(self, features: Mapping[str, Tensor], batch: int) -> dict[str, Tensor]:
        """Parts of the loss, with ``loss`` their sum.

        Args:
            features: Views by name, each [3 B, d]: the rows, their text and image neighbours.
                Images come first and are reduced.
            batch: B.
        """

    @abstractmethod
    def settings(self) -> tuple[float, int, int, int]:
        """Learning rate, batch size, epochs, neighbours."""

    def texts_used(self, data: ViewData) -> tuple[int, ...]:
        """Which views are texts that the method reads."""
        return tuple(range(1, data.n_views))

    # --- common to all ------------------------------------------------------------------------

    def stages(self) -> tuple[tuple[str, int], ...]:
        """One stage."""
        return (("train", self.settings()[2]),)

    def check(self, data: ViewData) -> None:
        """Refuse too few described images for batch or neighbours."""
        _, batch, _, k = self.settings()
        if batch < data.n_clusters:
            raise ProblemError(
                f"batch {batch} is smaller than the {data.n_clusters} clusters, whose contrast a "
                "batch must hold; raise it"
            )
        n = len(self._described(data))
        if n <= max(k, data.n_clusters):
            raise ProblemError(
                f"{n} images have all their texts, expected more than {max(k, data.n_clusters)}: "
                "the neighbours and the clusters asked for; lower neighbours, or describe more"
            )

    def _described(self, data: ViewData) -> NDArray[np.int64]:
        used = list(self.texts_used(data))
        return np.flatnonzero(data.mask[:, used].all(axis=1)).astype(np.int64)

    def build(self, data: ViewData, rng: Generator) -> None:
        """See `EpochClusterer.build`."""
        self.nets_ = self.networks(data)
        trained = [p for p in self.nets_.parameters() if p.requires_grad]
        self.adam_ = torch.optim.Adam(trained, lr=self.settings()[0], betas=(0.9, 0.99))

    def modules(self) -> Mapping[str, nn.Module]:
        """See `EpochClusterer.modules`."""
        return {"nets": self.nets_}

    def optimizers(self) -> Mapping[str, Optimizer]:
        """See `EpochClusterer.optimizers`."""
        return {"adam": self.adam_}

    def enter(self, stage: str, data: ViewData, rng: Generator) -> None:
        """Fit the reduction of the images."""
        self.nets_["reduction"].fit(torch.from_numpy(data.arrays[0].copy()))
        self._tables = self._tensors = None

    def tables(self, data: ViewData) -> Triple:
        """Described rows, and positions among them of text and image neighbours; [n'], [n', k]."""
        if self._tables is None:
            rows = self._described(data)
            k = self.n_neighbours(len(rows), data.n_clusters)
            by_image = neighbours(data.arrays[0][rows], k)
            used = self.texts_used(data)
            by_text = by_image
            if used:
                by_text = neighbours(_text_space(data, rows, used), k)
            shared = np.mean(
                [len(np.intersect1d(a, b)) / k for a, b in zip(by_image, by_text, strict=True)]
            )
            self.signals_ |= {"neighbours": float(k), "neighbours_shared": float(shared)}
            self._tables = (rows, by_text, by_image)
        return self._tables

    def n_neighbours(self, n: int, n_clusters: int) -> int:
        """Neighbours asked for, but no more than half a cluster of even size holds."""
        return max(1, min(self.settings()[3], n // n_clusters // 2))

    def train_epoch(
        self, stage: str, epoch: int, data: ViewData, rng: Generator
    ) -> Mapping[str, float]:
        """See `EpochClusterer.train_epoch`."""
        rows, by_text, by_image = self.tables(data)
        n, width = by_text.shape
        batch = self.settings()[1]
        pick = rng.integers(width, size=(2, n))
        order = rng.permutation(n)
        text, image = by_text[np.arange(n), pick[0]], by_image[np.arange(n), pick[1]]
        if self._tensors is None:
            self._tensors = {
                name: torch.from_numpy(array[rows].copy())
                for name, array in zip(data.names, data.arrays, strict=True)
            }
            images = self._tensors[data.names[0]]
            self._tensors[data.names[0]] = self.nets_["reduction"](images)
        tensors = self._tensors
        self.nets_.train()
        sums: dict[str, float] = {}
        for part in np.array_split(order, max(1, n // batch)):
            chosen = torch.from_numpy(np.concatenate([part, text[part], image[part]]))
            found = self.loss({name: t[chosen] for name, t in tensors.items()}, len(part))
            self.adam_.zero_grad()
            found["loss"].backward()  # type: ignore[no-untyped-call]
            self.adam_.step()
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach()) * len(part) / n
        return sums

    def result(self, data: ViewData) -> Clustering:
        """Labels of all rows by the student alone."""
        embedding, soft = self._answer(data)
        labels = soft.argmax(axis=1).astype(np.int64)
        mean = torch.from_numpy(soft)
        even = float(_losses.entropy_of_mean(mean)) / math.log(data.n_clusters)
        self.signals_ |= {"evenness": even, "parameters": float(self._parameters())}
        return Clustering(labels=labels, embedding=embedding, soft=soft)

    def _answer(self, data: ViewData) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.nets_.eval()
        parts: list[tuple[Tensor, Tensor]] = []
        with torch.inference_mode():
            for low in range(0, data.n, _BLOCK):
                images = torch.from_numpy(data.arrays[0][low : low + _BLOCK].copy())
                unit = nn.functional.normalize(images, dim=1)
                parts.append(self.student(self.nets_["reduction"](unit)))
        embedding, soft = (torch.cat(p).numpy() for p in zip(*parts, strict=True))
        return embedding, soft

    def _parameters(self) -> int:
        return sum(p.numel() for p in self.nets_.parameters() if p.requires_grad)

    def assign(self, data: ViewData) -> Assignment:
        """See `Clusterer.assign`: by the image alone, texts are not asked for."""
        if self.built_ is None:
            return super().assign(data)
        if not data.mask[:, 0].all():
            row = int(np.flatnonzero(~data.mask[:, 0])[0])
            raise ProblemError(f"image {row} has no features; the image head needs them")
        soft = self._answer(data)[1]
        return soft.argmax(axis=1).astype(np.int64), soft

    @property
    def size_bytes(self) -> int:
        """Bytes of all networks; of class means before there are any."""
        if self.built_ is None:
            return super().size_bytes
        tensors = [*self.nets_.parameters(), *self.nets_.buffers()]
        return sum(t.numel() * t.element_size() for t in tensors)


def _text_space(
    data: ViewData, rows: NDArray[np.int64], used: tuple[int, ...]
) -> NDArray[np.float32]:
    """Texts of all granularities side by side, each of length 1: cosines are their mean."""
    joined = np.hstack([data.arrays[v][rows] for v in used])
    return np.asarray(joined / np.sqrt(len(used)), dtype=np.float32)
