"""Static token vectors: one vector a token, a text is their weighted mean."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps_plugins.text_classification._nets import read_json

FILES = ("model.safetensors", "tokenizer.json", "config.json")
"""What a folder of static vectors consists of."""


class StaticVectors:
    """Vectors in memory.

    Args:
        folder: Holds `FILES`: ``embeddings [rows, d]``, optionally ``mapping [tokens]`` (row of
            each token) and ``weights [tokens]``; a config with ``skip`` (rows that count as
            nothing) and ``normalize`` (length 1).
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        config = read_json(folder / "config.json")
        tensors = load_file(folder / "model.safetensors")
        self.table: np.ndarray = tensors["embeddings"]
        self.mapping: np.ndarray | None = tensors.get("mapping")
        self.weights: np.ndarray | None = tensors.get("weights")
        self.normalize = bool(config["normalize"])
        self.skip = np.asarray(config["skip"], dtype=np.int64)
        self.tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    @property
    def n_params(self) -> int:
        """Number of weights."""
        return self.table.size + (0 if self.weights is None else self.weights.size)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Mean vector of each text, zero where no token is known. Shape: [n, d] float32."""
        result = np.zeros((len(texts), self.table.shape[1]), dtype=np.float32)
        for i, text in enumerate(texts):
            ids = np.asarray(
                self.tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64
            )
            rows = ids if self.mapping is None else self.mapping[ids].astype(np.int64)
            if len(self.skip):
                kept = ~np.isin(rows, self.skip)
                ids, rows = ids[kept], rows[kept]
            if not len(rows):
                continue
            vectors = self.table[rows].astype(np.float32)
            if self.weights is not None:
                vectors *= self.weights[ids].astype(np.float32)[:, None]
            mean = vectors.mean(axis=0)
            result[i] = mean / max(float(np.linalg.norm(mean)), 1e-12) if self.normalize else mean
        return result


@functools.lru_cache(maxsize=2)
def vectors(folder: str) -> StaticVectors:
    """The vectors of a folder, kept for the next caller in this process."""
    return StaticVectors(Path(folder))
