"""Methods of the library imml, as clusterers: arrays in, labels and embedding out.

imml takes one table a view with rows of NaN where the view is missing, and seeds NumPy's global
generator here and there; it is put back afterwards.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import MethodFailed, MissingExtra
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.data import ViewData

__all__ = ["LIBRARY", "ImmlClusterer", "quiet"]

P = TypeVar("P")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing on stdout, no warnings, and NumPy's global generator as it was."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _library() -> Any:
    """The module `imml.cluster`, without its deep methods.

    Those would load lightning, which takes ten times as long as everything else and is not used.
    """
    block = "lightning" not in sys.modules
    if block:
        sys.modules["lightning"] = None  # type: ignore[assignment]
    try:
        with quiet():
            from imml import cluster
    except ImportError as error:
        raise MissingExtra("this method", "imml", "views") from error
    finally:
        if block:
            del sys.modules["lightning"]
    return cluster


# Here and not at the first fit, whose seconds it would add to.
LIBRARY = _library()


class ImmlClusterer(Clusterer[P]):
    """A method that imml implements."""

    @abstractmethod
    def estimator(self, library: Any, data: ViewData, seed: int) -> Any:
        """The unfitted object of `imml.cluster`.

        Args:
            library: That module.
            data: What it will be fitted on.
            seed: Its ``random_state``.
        """

    def cluster(self, data: ViewData, *, rng: Generator) -> Clustering:
        """Fit the library's object."""
        seed = int(rng.integers(2**31 - 1))
        model = self.estimator(LIBRARY, data, seed)
        with quiet():
            try:
                labels = np.asarray(model.fit_predict(_tables(data))).ravel()
            except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError) as error:
                raise MethodFailed(
                    f"{self.name()} of imml failed on {data.n} rows: "
                    f"{type(error).__name__}: {error}"
                ) from error
        embedding = np.real(np.asarray(self.embedding_of(model))).astype(np.float32)
        return Clustering(labels=labels.astype(np.int64), embedding=embedding)

    def embedding_of(self, model: Any) -> Any:
        """What a fitted object read its labels off. Shape: [n, q]."""
        return model.embedding_


def _tables(data: ViewData) -> list[Any]:
    import pandas as pd

    tables = []
    for v, array in enumerate(data.arrays):
        values = array.astype(np.float64)
        values[~data.mask[:, v]] = np.nan
        tables.append(pd.DataFrame(values))
    return tables
