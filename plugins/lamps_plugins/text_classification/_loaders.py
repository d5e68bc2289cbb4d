"""How each kind of exported folder becomes a function from texts to logits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps_plugins.text_classification import _export, _features, _nets
from lamps_plugins.text_classification._static import StaticVectors
from lamps_plugins.text_classification._tfidf import Tfidf

LogitsOf = Callable[[Sequence[str]], np.ndarray]


def _transformer(directory: Path, meta: dict[str, Any]) -> LogitsOf:
    with _nets.quiet():
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        net = AutoModelForSequenceClassification.from_pretrained(directory, use_safetensors=True)
        tokenizer = AutoTokenizer.from_pretrained(directory)
    net = net.eval().to(_nets.device())
    limit = int(tokenizer.model_max_length)
    return lambda texts: _nets.logits_of_tokens(
        net, _features.encode(tokenizer, texts, limit), tokenizer.pad_token_id
    )


def _head(directory: Path, features: Callable[[Sequence[str]], Any]) -> LogitsOf:
    from safetensors.numpy import load_file

    head = load_file(directory / _export.HEAD)
    weight, bias = np.ascontiguousarray(head["weight"].T), head["bias"]
    return lambda texts: np.asarray(features(texts) @ weight + bias, dtype=np.float32)


def _tfidf(directory: Path, meta: dict[str, Any]) -> LogitsOf:
    from safetensors.numpy import load_file

    terms = json.loads((directory / _export.TERMS).read_text(encoding="utf-8"))
    params = meta["params"]
    part = Tfidf(params["features"], params["max_features"])
    return _head(directory, part.load(terms, load_file(directory / _export.IDF)).transform)


def _static(directory: Path, meta: dict[str, Any]) -> LogitsOf:
    return _head(directory, StaticVectors(directory / "vectors"))


def _probe(directory: Path, meta: dict[str, Any]) -> LogitsOf:
    pooling = _nets.read_json(directory / _export.POOLING)
    with _nets.quiet():
        from transformers import AutoModel, AutoTokenizer

        folder = directory / "encoder"
        config = _nets.read_json(folder / "config.json")
        extra = {"add_pooling_layer": False} if config["model_type"] == "bert" else {}
        net = AutoModel.from_pretrained(folder, use_safetensors=True, **extra)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    net = net.eval().to(_nets.device())
    return _head(directory, _features.embedder(net, tokenizer, **pooling))


LOADERS: dict[str, Callable[[Path, dict[str, Any]], LogitsOf]] = {
    "transformer": _transformer,
    "tfidf": _tfidf,
    "static": _static,
    "probe": _probe,
}
"""By the ``kind`` in ``lamps.json``."""
