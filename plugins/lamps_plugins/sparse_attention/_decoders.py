"""Decoders as a source: what rules cost them in recall or in perplexity, and what layers receive.

Recall asks for values of keys that stood somewhere in the sequence; loss is the share of the right
answers under dense attention that is gone. Text is continued; loss is the rise of perplexity,

    error = 1 - exp(mean log-loss, dense - mean log-loss, sparse),

over the last `SCORED` tokens of a sequence, at most its second half, where there is something to
look back to. What a sequence gives under dense attention is kept in the cache.
"""

from __future__ import annotations

import functools
import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ProblemError
from lamps.method import cache_dir
from lamps.types import Json, digest
from lamps_plugins._small_lms import recall
from lamps_plugins.sparse_attention._interface import RECORDER, recorded, recording, register
from lamps_plugins.sparse_attention._items import Heads, Item, Numbers, Source
from lamps_plugins.text_classification._features import cached
from lamps_plugins.text_classification._nets import quiet

if TYPE_CHECKING:
    from lamps_plugins.sparse_attention._rule import Rule

__all__ = ["RecallSource", "TextSource", "context", "loaded"]

SCORED = 1024
"""Tokens of a text whose loss is measured, at most."""

_SPLITS = {"val": 0, "test": 1}
Ids = NDArray[np.int64]


@functools.lru_cache(maxsize=2)
def loaded(folder: str) -> Any:
    """A causal language model in float32, in evaluation mode; once a process.

    Raises:
        ProblemError: It cannot be loaded, or cannot take attentions from outside.
    """
    import torch

    with quiet():
        from transformers import AutoModelForCausalLM

        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        except (OSError, ValueError, KeyError) as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise ProblemError(f"{folder} is no causal language model: {line}") from error
    if not model._supports_attention_backend:
        raise ProblemError(
            f"{type(model).__name__} of {folder} takes no attention from outside; expected a "
            "decoder that supports transformers' AttentionInterface, such as Llama"
        )
    return model.requires_grad_(False)


def context(folder: str) -> int:
    """Longest sequence that a decoder may be asked about."""
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(folder).get_text_config().max_position_embeddings)


@functools.lru_cache(maxsize=8)
def weights_hash(folder: str) -> str:
    """Hash of configuration and weights."""
    from lamps_plugins.text_classification._models import weight_files

    total = hashlib.sha256()
    for file in [Path(folder) / "config.json", *weight_files(Path(folder))]:
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecoderSource(Source):
    """What both kinds share: running a decoder with a rule, and its dense numbers.

    Args:
        folder: The decoder, in transformers' layout.
        name: What cards call it.
    """

    folder: str
    name: str

    @abstractmethod
    def tokens(self, item: Item) -> tuple[Ids, Ids]:
        """Tokens [length] and targets [length] of a sequence; -100 where nothing is asked."""

    @abstractmethod
    def numbers(self, logits: Any, targets: Any) -> Numbers:
        """What `error` sums up, from logits [n, vocabulary] and targets [n] at what was asked."""

    def run(self, rule: Rule[Any], item: Item) -> Numbers:  # type: ignore[override]
        """Numbers of a sequence under a rule, the dense ones by names with ``dense_``."""
        with recorded() as calls:
            found = self._numbers(item, register(rule))
        kept = float(sum(call.kept for call in calls))
        visible = float(sum(call.visible for call in calls))
        if not calls:  # shorter than a block: all was seen
            kept = visible = 1.0
        known = {f"dense_{k}": v for k, v in self.dense(item).items()}
        return {**found, **known, "kept": kept, "visible": visible}

    def dense(self, item: Item) -> Numbers:
        """Numbers of a sequence under dense attention; cached."""

        def make() -> dict[str, np.ndarray]:
            return {k: np.array(v) for k, v in self._numbers(item, "sdpa").items()}

        key = digest([self.fingerprint(), item.key], length=24)
        folder = cache_dir() / "sparse-attention" / f"dense-{key}"
        return {k: float(v) for k, v in cached(folder, make).items()}

    def _numbers(self, item: Item, attention: str) -> Numbers:
        import torch

        model = loaded(self.folder)
        tokens, targets = (torch.from_numpy(x) for x in self.tokens(item))
        at = torch.nonzero(targets != recall.IGNORED)[:, 0]
        with torch.inference_mode(), quiet():
            model.set_attn_implementation(attention)
            found = model(input_ids=tokens[None], use_cache=False, logits_to_keep=at)
            return self.numbers(found.logits[0].float(), targets[at])

    def heads(self, item: Item) -> tuple[Heads, ...]:
        """Two layers of a sequence, one in the middle and the last; cached."""
        import torch

        model = loaded(self.folder)
        n = int(model.config.get_text_config().num_hidden_layers)
        layers = sorted({(n - 1) // 2, n - 1})

        def make() -> dict[str, np.ndarray]:
            tokens = torch.from_numpy(self.tokens(item)[0])[None]
            last = torch.tensor([0])
            with torch.inference_mode(), quiet(), recording(*layers) as kept:
                model.set_attn_implementation(RECORDER)
                model(input_ids=tokens, use_cache=False, logits_to_keep=last)
            return {
                f"{layer}-{name}": x.numpy()
                for layer, heads in kept.items()
                for name, x in zip("qkv", heads[1:], strict=True)
            }

        key = digest([self.fingerprint(), item.key, layers], length=24)
        found = cached(cache_dir() / "sparse-attention" / f"heads-{key}", make)
        return tuple(
            Heads(layer, *(torch.from_numpy(np.array(found[f"{layer}-{x}"])) for x in "qkv"))
            for layer in layers
        )

    def card(self) -> dict[str, Json]:
        """Model and hash."""
        return {"model": self.name, "folder": self.folder, "weights": weights_hash(self.folder)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSource(_DecoderSource):
    """Multi-query associative recall; see `recall.batch`.

    Args:
        seed: Root of all randomness.
    """

    kind: ClassVar[str] = "recall"
    quality: ClassVar[str] = "1 - right answers over those of dense attention"
    seed: int = 0

    def tokens(self, item: Item) -> tuple[Ids, Ids]:
        """See `_DecoderSource.tokens`."""
        rng = np.random.default_rng([self.seed, _SPLITS[item.split], item.length, item.number])
        made = recall.batch(1, item.length, rng=rng)
        return made.tokens[0], made.targets[0]

    def numbers(self, logits: Any, targets: Any) -> Numbers:
        """Right answers, and questions."""
        right = float((logits.argmax(-1) == targets).sum())
        return {"right": right, "asked": float(len(targets))}

    def error(self, numbers: Sequence[Mapping[str, float]]) -> float:
        """Share of the dense answers that is gone; negative where there are more."""
        dense = sum(n["dense_right"] for n in numbers)
        return 1.0 - sum(n["right"] for n in numbers) / max(dense, 1.0)

    def fingerprint(self) -> str:
        """Hash of model and seed."""
        return digest(["recall", 1, weights_hash(self.folder), self.seed], length=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource(_DecoderSource):
    """Continuation of text.

    Args:
        ids: Tokens of the texts of each split.
    """

    kind: ClassVar[str] = "text"
    quality: ClassVar[str] = "1 - perplexity of dense attention over that of the rule"
    ids: Mapping[str, Ids] = field(repr=False)

    def tokens(self, item: Item) -> tuple[Ids, Ids]:
        """Windows that lie evenly over the texts of a split."""
        ids = self.ids[item.split]
        room = len(ids) - item.length - 1
        # Windows of a length start at the fractional parts of multiples of the golden ratio, so
        # that any first few of them lie far apart.
        start = int(math.modf(0.5 + item.number * 0.6180339887498949)[0] * room)
        window = ids[start : start + item.length + 1]
        targets = window[1:].copy()
        targets[: max(item.length // 2, item.length - SCORED)] = recall.IGNORED
        return window[:-1], targets

    def numbers(self, logits: Any, targets: Any) -> Numbers:
        """Sum of log-losses in nats, and tokens."""
        import torch

        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        return {"nats": float(loss), "tokens": float(len(targets))}

    def error(self, numbers: Sequence[Mapping[str, float]]) -> float:
        """Rise of perplexity; negative where it fell."""
        tokens = sum(n["tokens"] for n in numbers)
        gap = sum(n["dense_nats"] - n["nats"] for n in numbers) / tokens
        return 1.0 - math.exp(gap)

    def fingerprint(self) -> str:
        """Hash of model and tokens."""
        total = hashlib.sha256(weights_hash(self.folder).encode())
        for split in ("val", "test"):
            total.update(np.ascontiguousarray(self.ids[split]).tobytes())
        return digest(["text", 1, SCORED, total.hexdigest()], length=32)
