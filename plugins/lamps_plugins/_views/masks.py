"""Which views are missing: seeded protocols, so that all methods of a comparison see one mask.

    sample-rate    a share of the rows loses views; each of those keeps the views whose uniform
                   number passes a uniform threshold of the row, drawn again until 1..V-1 stay
    entry-rate     a share of all cells goes, chosen at random, and every row keeps a view
    no-complete    every row loses a view or more: sample-rate with share 1
    unbalanced     observed shares fall linearly over the views, from 0.9 to 0.3
    none           nothing is missing

One nominal rate means very different numbers of complete rows under the first two, so problems
state observed cells and complete rows beside it.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps.errors import ConfigError, did_you_mean

__all__ = ["PROTOCOLS", "mask_facts", "mask_hash", "missing_mask"]

PROTOCOLS = ("none", "sample-rate", "entry-rate", "no-complete", "unbalanced")

Mask = NDArray[np.bool_]

_FIRST, _LAST = 0.9, 0.3  # observed shares of the first and the last view under 'unbalanced'


def missing_mask(protocol: str, rate: float, n: int, n_views: int, seed: int) -> Mask:
    """A mask [n, V], True where observed; every row keeps one view or more.

    Args:
        protocol: One of `PROTOCOLS`.
        rate: Share of incomplete rows (``sample-rate``) or of missing cells (``entry-rate``);
            without meaning for the others.
        n: Rows.
        n_views: V.
        seed: The same seed gives the same mask on every machine.

    Raises:
        ConfigError: No such protocol, or a rate that it cannot reach.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"no missing-view protocol {protocol!r}. {did_you_mean(protocol, PROTOCOLS)}"
        )
    mask = np.ones((n, n_views), dtype=np.bool_)
    if protocol == "none":
        return mask
    if n_views < 2:
        raise ConfigError(f"protocol {protocol!r} needs 2 views or more, there is {n_views}")
    rng = np.random.default_rng([seed, PROTOCOLS.index(protocol)])
    if protocol == "entry-rate":
        return _cells(mask, rate, rng)
    if protocol == "unbalanced":
        return _unbalanced(mask, rng)
    if protocol == "no-complete":
        rate = 1.0
    if not 0.0 <= rate <= 1.0:
        raise ConfigError(f"rate {rate} of 'sample-rate' is a share of rows, expected 0 to 1")
    for row in rng.permutation(n)[: int(rate * n)]:
        kept = np.zeros(n_views, dtype=np.bool_)
        while not 1 <= kept.sum() < n_views:
            kept = rng.random(n_views) >= rng.random()
        mask[row] = kept
    return mask


def _cells(mask: Mask, rate: float, rng: Generator) -> Mask:
    n, n_views = mask.shape
    most = 1.0 - 1.0 / n_views
    if not 0.0 <= rate <= most:
        raise ConfigError(
            f"rate {rate} of 'entry-rate' leaves rows without a view, expected 0 to {most:.3g} "
            f"for {n_views} views"
        )
    # One cell of each row is safe; the others compete.
    safe = rng.integers(n_views, size=n)
    order = rng.random((n, n_views))
    order[np.arange(n), safe] = np.inf
    gone = np.argsort(order, axis=None, kind="stable")[: int(rate * n * n_views)]
    mask.flat[gone] = False
    return mask


def _unbalanced(mask: Mask, rng: Generator) -> Mask:
    n, n_views = mask.shape
    shares = np.linspace(_FIRST, _LAST, n_views)
    mask = rng.random((n, n_views)) < shares
    for row in np.flatnonzero(~mask.any(axis=1)):
        mask[row, rng.choice(n_views, p=shares / shares.sum())] = True
    return mask


def mask_hash(mask: Mask) -> str:
    """First 16 hex digits of the SHA-256 of a mask and its shape."""
    total = hashlib.sha256(repr(mask.shape).encode())
    total.update(np.packbits(mask).tobytes())
    return total.hexdigest()[:16]


def mask_facts(mask: Mask) -> dict[str, int | float | str]:
    """Hash, observed cells and complete rows of a mask, for cards."""
    return {
        "mask_hash": mask_hash(mask),
        "observed_cells": int(mask.sum()),
        "observed_share": float(mask.mean()),
        "complete_rows": int(mask.all(axis=1).sum()),
    }
