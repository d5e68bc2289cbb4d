"""Made-up queries, keys and values with the structure of long documents; no model is needed.

A sequence is a chain of segments, each about one of some topics that come back; every group of
heads has a direction for each topic. Keys of a token point to its topic, queries to their topic
and to the first token, which all heads attend to a little (a sink); values tell the topic. With
``a`` the sharpness, noise standard normal:

    k = a t_topic + noise     q = a t_topic + 5 t_sink + noise     v = u_topic + noise

so attention to the own topic outweighs the rest by about ``exp(a^2 / sqrt(D))``. What fixed
windows miss is wherever a topic was spoken of before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from lamps.types import Json, digest
from lamps_plugins.sparse_attention._attend import attention, dense
from lamps_plugins.sparse_attention._items import Heads, Item, Numbers, Source

if TYPE_CHECKING:
    from lamps_plugins.sparse_attention._attend import Selector

__all__ = ["Topics", "topic_heads"]

_SPLITS = {"val": 0, "test": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics(Source):
    """Sequences about topics.

    Args:
        heads_q: Heads of queries, H.
        heads_k: Heads of keys, Hkv.
        width: Elements of a head, D.
        topics: Topics there are.
        segment: Mean tokens of a segment.
        sharpness: Length of a topic's direction, a.
        seed: Root of all randomness.
    """

    kind: ClassVar[str] = "topics"
    quality: ClassVar[str] = "relative error of the outputs, Frobenius norm"
    heads_q: int = 4
    heads_k: int = 2
    width: int = 64
    topics: int = 32
    segment: int = 256
    sharpness: float = 10.0
    seed: int = 0

    def heads(self, item: Item) -> tuple[Heads, ...]:
        """The one layer of a sequence."""
        return (topic_heads(self, [_SPLITS[item.split], item.length, item.number], item.length),)

    def run(self, rule: Selector, item: Item) -> Numbers:
        """Squares of the error and of the dense output."""
        _, q, k, v = self.heads(item)[0]
        found, wanted = attention(rule, q, k, v), dense(q, k, v)
        return {
            "wrong": float((found.out - wanted).double().square().sum()),
            "all": float(wanted.double().square().sum()),
            "kept": float(found.kept),
            "visible": float(found.visible),
        }

    def error(self, numbers: Sequence[Mapping[str, float]]) -> float:
        """Root of the share of the squares."""
        return float(np.sqrt(sum(n["wrong"] for n in numbers) / sum(n["all"] for n in numbers)))

    def fingerprint(self) -> str:
        """Hash of the settings."""
        return digest(["topics", 1, asdict(self)], length=32)

    def card(self) -> dict[str, Json]:
        """The settings."""
        return {"source": "made up", **asdict(self)}


def topic_heads(topics: Topics, position: Sequence[int], length: int) -> Heads:
    """Queries, keys and values of one sequence.

    Args:
        topics: Settings.
        position: Which sequence, under the seed.
        length: Tokens.
    """
    import torch

    rng = np.random.default_rng([topics.seed, *position])
    about = np.empty(length, dtype=np.int64)
    start = 0
    while start < length:
        stop = start + 8 + int(rng.geometric(1 / topics.segment))
        about[start:stop] = rng.integers(topics.topics)
        start = stop
    shape = (topics.heads_k, topics.topics + 1, topics.width)
    directions = rng.normal(size=shape)
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    own, sink = topics.sharpness * directions[:, about], directions[:, -1:]
    k = own + rng.normal(size=own.shape)
    k[:, 0] = topics.sharpness * sink[:, 0]
    group = topics.heads_q // topics.heads_k
    q = np.repeat(own + 5.0 * sink, group, axis=0)
    q += rng.normal(size=q.shape)
    v = rng.normal(size=shape)[:, about] + rng.normal(size=own.shape)
    return Heads(0, *(torch.from_numpy(x.astype(np.float32))[None] for x in (q, k, v)))
