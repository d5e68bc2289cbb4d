"""From what a user typed to an image clustering problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins._views.checks import check_views
from lamps_plugins._views.data import ViewData
from lamps_plugins._views.files import named_files, open_views, read_column, read_table
from lamps_plugins.image_clustering._described import Described, refuse_labels_in_texts
from lamps_plugins.image_clustering._options import ENCODERS
from lamps_plugins.image_clustering._problem import ImageProblem

__all__ = ["BUILTIN", "encoded", "open_any", "toy_data"]

BUILTIN: Mapping[str, tuple[str, ...]] = {
    "emoji": ("flags", "image_encoder", "text_encoder"),
    "mnist-text": ("distractors", "rows", "image_encoder", "text_encoder"),
    "toy": (),
}
"""Built-in problems and the options that they take beside the common ones."""

_COMMON = ("track", "text_hidden", "data_seed", "split_seed")
_FEATURES = ("image_features", "text_features", "clusters", "labels")
_PICTURES = ("images", "texts", "clusters", "image_encoder", "text_encoder")

TEXT_ENCODER = "all-MiniLM-L6-v2"


def open_any(reference: str | None, options: Mapping[str, Any]) -> ImageProblem:
    """A built-in problem by its name, or the user's own; see `ImageFamily`."""
    if reference is not None:
        if reference not in BUILTIN:
            raise ProblemError(
                f"image-clustering has no problem {reference!r}; for your own data give "
                f"--image-features or --images. {did_you_mean(reference, BUILTIN)}"
            )
        _refuse(options, BUILTIN[reference], f"the built-in {reference!r}")
        return _builtin(reference, options)
    if "images" in options:
        _refuse(options, _PICTURES, "a folder of pictures")
        return _pictures(options)
    _refuse(options, _FEATURES, "features from files")
    return _features(options)


def _refuse(options: Mapping[str, Any], allowed: tuple[str, ...], what: str) -> None:
    for name in options:
        if name not in (*allowed, *_COMMON):
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} has no meaning for {what}; leave it out")


def _builtin(reference: str, options: Mapping[str, Any]) -> ImageProblem:
    seed = int(options.get("data_seed", 0))
    facts: dict[str, Json]
    if reference == "toy":
        data, truth = toy_data(seed)
        facts = {"what": "made in code", "source": "none", "licence": "none needed"}
    else:
        described = _described(reference, options, seed)
        refuse_labels_in_texts(described.texts, described.classes)
        assert described.truth is not None
        truth = described.truth
        data = encoded(described, len(np.unique(truth)), options)
        facts = {**described.facts, "classes": list(described.classes), **_made_by(options)}
    return _problem(
        reference, data, truth, {"builtin": reference, "options": dict(options)}, facts
    )


def _described(reference: str, options: Mapping[str, Any], seed: int) -> Described:
    if reference == "emoji":
        from lamps_plugins.image_clustering._emoji import emoji

        return emoji(flags=bool(options.get("flags", False)))
    from lamps_plugins.image_clustering._digits import described_digits

    return described_digits(
        int(options.get("rows", 2000)), int(options.get("distractors", 1)), seed
    )


def _made_by(options: Mapping[str, Any]) -> dict[str, Json]:
    return {
        "image_encoder": str(options.get("image_encoder", ENCODERS[0])),
        "text_encoder": str(options.get("text_encoder", TEXT_ENCODER)),
    }


def encoded(described: Described, n_clusters: int, options: Mapping[str, Any]) -> ViewData:
    """Features of pictures and of their texts, coarse granularities first."""
    from lamps_plugins.image_clustering._encoders import encode_images, encode_texts

    made = _made_by(options)
    names = sorted(described.texts)
    images = encode_images(described.images, str(made["image_encoder"]))
    texts = [encode_texts(described.texts[name], str(made["text_encoder"])) for name in names]
    return ViewData(
        names=("image", *names),
        arrays=(images, *texts),
        mask=np.ones((len(images), 1 + len(texts)), dtype=np.bool_),
        n_clusters=n_clusters,
    )


def _problem(
    name: str,
    data: ViewData,
    truth: NDArray[np.int64] | None,
    source: Mapping[str, Json],
    facts: Mapping[str, Json],
) -> ImageProblem:
    options: Any = source["options"]
    hidden, seed = float(options.get("text_hidden", 0.0)), int(options.get("data_seed", 0))
    if not 0.0 <= hidden < 1.0:
        raise ConfigError(f"text_hidden={hidden}: expected a share from 0 to below 1")
    shown = with_hidden_texts(data, hidden, seed)
    return ImageProblem(
        name=name if not hidden else f"{name}-hidden-{hidden:g}",
        raw=shown,
        truth=truth,
        track=str(options.get("track", "internal")),
        source=source,
        facts={**facts, "text_hidden": hidden},
        notes=check_views(shown),
        seed=int(options.get("split_seed", 0)),
    )


def with_hidden_texts(data: ViewData, share: float, seed: int) -> ViewData:
    """The same with all texts of a random share of the images hidden."""
    if share == 0.0:
        return data
    mask = data.mask.copy()
    gone = np.random.default_rng([seed, 6]).permutation(data.n)[: round(share * data.n)]
    mask[gone, 1:] = False
    return ViewData(names=data.names, arrays=data.arrays, mask=mask, n_clusters=data.n_clusters)


def toy_data(seed: int) -> tuple[ViewData, NDArray[np.int64]]:
    """Three classes that texts tell apart better than images, [180, 24], [180, 12], [180, 16]."""
    rng = np.random.default_rng([seed, 7])
    truth = rng.permutation(np.resize(np.arange(3), 180)).astype(np.int64)
    arrays = []
    for d, noise in ((24, 0.8), (12, 0.5), (16, 0.6)):
        centres = rng.normal(size=(3, d))
        arrays.append((centres[truth] + noise * rng.normal(size=(180, d))).astype(np.float32))
    data = ViewData(
        names=("image", "coarse", "fine"),
        arrays=tuple(arrays),
        mask=np.ones((180, 3), dtype=np.bool_),
        n_clusters=3,
    )
    return data, truth


def _features(options: Mapping[str, Any]) -> ImageProblem:
    given = list(options.get("text_features") or ())
    if "image_features" not in options or not given:
        raise ConfigError(
            "images and texts are needed: --image-features x.npz --text-features t.npz, or "
            f"--images FOLDER --texts FILE, or a built-in problem: {', '.join(BUILTIN)}"
        )
    k = _clusters(options)
    texts, files = named_files(given)
    names, paths = ["image", *texts], [_absolute(options["image_features"]), *files]
    data, ids = open_views([read_table(p) for p in paths], names, None, k)
    truth = None
    source: dict[str, Json] = {
        "image_features": str(paths[0]),
        "text_features": [f"{n}={p}" for n, p in zip(names[1:], paths[1:], strict=True)],
        "clusters": k,
    }
    if "labels" in options:
        path = _absolute(options["labels"])
        truth, source["labels"] = read_column(path, data.n, ids, "labels"), str(path)
    source |= {name: options[name] for name in _COMMON if name in options}
    facts: dict[str, Json] = {"source": "the user's files"}
    return _problem(paths[0].name.split(".")[0], data, truth, {"options": source}, facts)


def _pictures(options: Mapping[str, Any]) -> ImageProblem:
    from lamps_plugins.image_clustering._listed import listed

    if "texts" not in options:
        raise ConfigError("texts of the pictures are needed: --texts FILE.csv or FILE.jsonl")
    k = _clusters(options)
    folder, file = _absolute(options["images"]), _absolute(options["texts"])
    described = listed(folder, file)
    refuse_labels_in_texts(described.texts, described.classes)
    source: dict[str, Json] = {**options, "images": str(folder), "texts": str(file)}
    facts: dict[str, Json] = {**described.facts, **_made_by(options)}
    data = encoded(described, k, options)
    return _problem(folder.name, data, described.truth, {"options": source}, facts)


def _clusters(options: Mapping[str, Any]) -> int:
    if "clusters" not in options:
        raise ConfigError("the number of clusters is needed: --clusters K")
    return int(options["clusters"])


def _absolute(path: object) -> Path:
    return Path(str(path)).expanduser().absolute()
