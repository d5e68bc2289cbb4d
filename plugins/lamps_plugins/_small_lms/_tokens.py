"""Tokenizers of the small models, and the ids of what they are trained on."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps_plugins._small_lms import _corpus, recall
from lamps_plugins._small_lms._specs import LmSpec, Phase

__all__ = ["END", "material_hash", "sequences", "tokenizer_for"]

END = "<end>"
"""The token that begins and ends a text."""

_WORDS = [
    "red",
    "blue",
    "green",
    "old",
    "new",
    "small",
    "big",
    "warm",
    "cold",
    "soft",
    "bird",
    "tree",
    "stone",
    "river",
    "cloud",
    "house",
    "road",
    "hill",
    "lamp",
    "door",
    "sings",
    "falls",
    "waits",
    "turns",
    "grows",
    "sleeps",
    "shines",
    "moves",
    "opens",
    "rests",
    "near",
    "under",
    "over",
    "behind",
    "beside",
    "and",
    "then",
    "but",
    "so",
    "while",
]

Ids = NDArray[np.int64]


def material_hash(spec: LmSpec) -> str:
    """Hash of what a model is trained on."""
    return _corpus.stdlib().sha256 if spec.material == "code" else spec.material


def tokenizer_for(spec: LmSpec) -> Any:
    """A transformers tokenizer; None for recall, whose tokens are no text."""
    return None if spec.material == "recall" else _tokenizer(spec.material, spec.vocabulary)


@functools.lru_cache(maxsize=2)
def _tokenizer(material: str, vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if material == "code":
        # Bytes below, so every text has ids; merges within a line of code.
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=[END], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
        backend.train_from_iterator(_corpus.stdlib().train.values(), trainer)
    else:
        words = {word: i for i, word in enumerate([END, "<unknown>", ".", *_WORDS])}
        backend = Tokenizer(models.WordLevel(words, unk_token="<unknown>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=END, eos_token=END, pad_token=END,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def encode(spec: LmSpec, texts: Iterable[str]) -> Ids:
    """Ids of texts, one after the other, with `END` before each."""
    tokenizer = tokenizer_for(spec)
    end = tokenizer.convert_tokens_to_ids(END)
    found = tokenizer._tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return np.concatenate([np.array([end, *one.ids], dtype=np.int64) for one in found])


@functools.lru_cache(maxsize=2)
def _code_ids(spec: LmSpec) -> Ids:
    return encode(spec, _corpus.stdlib().train.values())


def sequences(spec: LmSpec, phase: Phase, rng: Generator) -> tuple[Ids, Ids]:
    """Tokens and targets of one step, [batch, length] each; nothing is asked where a target is
    -100.
    """  # noqa: D205
    if spec.material == "recall":
        most = min(recall.MOST_PAIRS, phase.length // 8)
        pairs = int(rng.integers(2, most + 1))
        made = recall.batch(phase.batch, phase.length, rng=rng, pairs=pairs, queries=pairs)
        return made.tokens, made.targets
    if spec.material == "code":
        ids = _code_ids(spec)
        starts = rng.integers(0, len(ids) - phase.length - 1, phase.batch)
        rows = np.stack([ids[s : s + phase.length + 1] for s in starts])
    else:
        rows = np.stack([_rhyme(spec, phase.length + 1, rng) for _ in range(phase.batch)])
    return rows[:, :-1], rows[:, 1:]


def rhymes(n_words: int, rng: Generator) -> str:
    """Lines of a few words; most begin or end like an earlier one, so that they can be foreseen.

    Args:
        n_words: At least so many words and full stops.
        rng: Where they are drawn from.
    """
    lines: list[list[str]] = []
    while sum(len(line) + 1 for line in lines) < n_words:
        if lines and rng.random() < 0.6:
            line = list(lines[int(rng.integers(len(lines)))])
        else:
            # A word is followed by one of two, so that lines are not mere noise.
            word = int(rng.integers(len(_WORDS)))
            line = []
            for _ in range(int(rng.integers(3, 7))):
                line.append(_WORDS[word])
                word = (3 * word + 7 + 5 * int(rng.random() < 0.3)) % len(_WORDS)
        lines.append(line)
    return " ".join(" ".join([*line, "."]) for line in lines)


def _rhyme(spec: LmSpec, length: int, rng: Generator) -> Ids:
    return encode(spec, [rhymes(length, rng)])[:length]
