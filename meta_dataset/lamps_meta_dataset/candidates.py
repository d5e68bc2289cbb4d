"""The candidates that every task is measured with, from cheap and poor to expensive and good.

The same list for every task, so that tables compare. Networks are cut to their lower layers where
the whole one would not fit into the time that a table may cost on one core. Two settings are wrong
on purpose, because real pools hold such candidates too: a last layer that learns far too fast, and
one whose weights leave the range of float32, which fails.
"""

from __future__ import annotations

from typing import Any

from lamps.types import Candidate

FAMILY = "text-classification"
L3, L6 = "paraphrase-MiniLM-L3-v2", "all-MiniLM-L6-v2"
BGE, E5, SMOL = "bge-small-en-v1.5", "multilingual-e5-small", "SmolLM2-135M-Instruct"
GLOVE, M2V = "glove-6b-50d", "model2vec-10k-64"


def of(method: str, **params: Any) -> Candidate:
    """A candidate of the family; params that are not given have their defaults."""
    return Candidate(FAMILY, method, params)


def _linear() -> list[Candidate]:
    tfidf: list[dict[str, Any]] = [
        {"features": "word", "c": 10.0},
        {"features": "word", "c": 0.5},
        {"features": "word", "c": 10.0, "max_features": 1_000},
        {"features": "word", "c": 10.0, "class_weights": "balanced"},
        {"features": "char", "c": 10.0},
        {"features": "word+char", "c": 10.0},
    ]
    static: list[dict[str, Any]] = [
        {"model": GLOVE, "c": 0.1},
        {"model": GLOVE, "c": 10.0},
        {"model": M2V, "c": 0.1},
        {"model": M2V, "c": 1.0, "class_weights": "balanced"},
        {"model": M2V, "c": 10.0},
    ]
    # One probe a network and depth: each pays for its own features.
    probes: list[dict[str, Any]] = [
        {"model": L3, "n_layers": 1},
        {"model": L3, "n_layers": 2, "pooling": "token"},
        {"model": L3, "c": 0.01},
        {"model": L6, "n_layers": 1},
        {"model": L6, "n_layers": 2},
        {"model": L6, "n_layers": 4},
        {"model": L6},
        {"model": BGE, "n_layers": 2},
        {"model": BGE, "n_layers": 6},
        {"model": E5, "n_layers": 1},
        {"model": E5, "n_layers": 3},
        {"model": SMOL, "n_layers": 2},
    ]
    return [
        *(of("tfidf-logreg", **p) for p in tfidf),
        *(of("static-logreg", **p) for p in static),
        *(of("linear-probe", **p) for p in probes),
    ]


def _tuned() -> list[Candidate]:
    cut, deep = {"model": L3, "n_layers": 1}, {"model": L6, "n_layers": 2}
    return [
        of("full-finetune", **cut, lr=1e-4, epochs=1),
        of("full-finetune", **cut, lr=5e-4, epochs=3),
        of("full-finetune", model=L3, n_layers=2, lr=2e-4, epochs=2),
        of("full-finetune", model=L3, lr=2e-4, epochs=2),
        of("full-finetune", model=L6, n_layers=1, lr=2e-4, epochs=2),
        of("full-finetune", **deep, lr=1e-4, epochs=1),
        of("full-finetune", model=E5, n_layers=1, lr=2e-4, epochs=1),
        of("full-finetune", **cut, lr=5e-4, head_lr=0.5, epochs=1),
        of("full-finetune", **cut, lr=5e-4, head_lr=1e38, epochs=1),
        of("lora", **cut, lr=2e-3, epochs=2),
        of("lora", **cut, lr=1e-2, targets="all", rank=32, scale=4.0, epochs=2),
        of("lora", model=L3, lr=2e-3, epochs=1),
        of("lora", **deep, lr=2e-3, targets="all", epochs=1),
        of("bitfit", **cut, lr=3e-3, epochs=2),
        of("bitfit", model=L3, n_layers=2, lr=3e-3, epochs=1),
        of("bitfit", **deep, lr=3e-3, epochs=1),
        of("ia3", **cut, lr=2e-2, epochs=1),
        of("ia3", model=L3, n_layers=2, lr=2e-2, epochs=1),
        of("dora", **cut, lr=2e-3, epochs=1),
        of("prompt-tuning", **cut, lr=1e-2, epochs=1),
        of("prompt-tuning", model=L3, n_layers=2, lr=1e-2, n_tokens=4, epochs=1),
    ]


def pool() -> list[Candidate]:
    """The whole list, cheap kinds first.

    Example:
        >>> len(pool()) == len({c.key for c in pool()}) >= 42
        True
    """
    return [*_linear(), *_tuned()]
