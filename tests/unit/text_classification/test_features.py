"""Tokens and frozen features: the same numbers as without a cache, computed once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.text_classification import _features, _nets
from lamps_plugins.text_classification._models import CATALOGUE
from lamps_plugins.text_classification._problem import FAMILY, TextProblem

from lamps.config import cache_dir


def test_tokens_equal_the_tokenizer(toy: TextProblem, encoder: str) -> None:
    info = CATALOGUE.resolve(encoder)
    tokenizer = _nets.load_tokenizer(info)
    expected = [tokenizer(t, truncation=True, max_length=32).input_ids for t in toy.texts("val")]
    for _ in range(2):  # computed, then read
        assert [r.tolist() for r in _features.tokens(toy, info, "val")] == expected


def test_tokens_of_a_prefix_are_a_prefix_of_the_tokens(toy: TextProblem, encoder: str) -> None:
    info = CATALOGUE.resolve(encoder)
    n = toy.prefix(0.5)
    few, all_ = _features.tokens(toy, info, "train", n), _features.tokens(toy, info, "train")
    assert len(few) == n
    assert len(all_) == toy.n_train
    assert all(np.array_equal(a, b) for a, b in zip(few, all_, strict=False))


def test_cached_tokens_are_read_only(toy: TextProblem, encoder: str) -> None:
    row = _features.tokens(toy, CATALOGUE.resolve(encoder), "val")[0]
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1


def test_long_texts_are_cut_to_what_the_model_has_positions_for(encoder: str) -> None:
    info = CATALOGUE.resolve(encoder)
    assert _features.token_limit(info, 32) == 32
    assert _features.token_limit(info, 512) == 48
    rows = _features.encode(_nets.load_tokenizer(info), ["pan " * 100_000, ""], 48)
    assert [len(r) for r in rows] == [48, 2]


@pytest.mark.parametrize("n_layers", [0, 2])
def test_features_do_not_depend_on_blocks_batches_or_padding(
    toy: TextProblem, encoder: str, n_layers: int
) -> None:
    info = CATALOGUE.resolve(encoder)
    found = _features.features(toy, info, "train", n_layers=n_layers)
    net = _nets.load_encoder(info, n_layers)
    for pooling in ("mean", "token"):
        embed = _features.embedder(
            net, _nets.load_tokenizer(info), limit=32, last=False, pooling=pooling
        )
        one_by_one = np.concatenate([embed([t]) for t in toy.texts("train")[:10]])
        np.testing.assert_allclose(found[pooling][:10], one_by_one, atol=2e-5)


def test_the_token_of_a_decoder_is_its_last(toy: TextProblem, decoder: str) -> None:
    info = CATALOGUE.resolve(decoder)
    found = _features.features(toy, info, "val")
    tokenizer, net = _nets.load_tokenizer(info), _nets.load_encoder(info)
    import torch

    ids = torch.tensor([tokenizer(toy.texts("val")[3]).input_ids])
    with torch.inference_mode():
        hidden = net(input_ids=ids)[0][0].numpy()
    np.testing.assert_allclose(found["token"][3], hidden[-1], atol=2e-5)
    np.testing.assert_allclose(found["head"][3], hidden[-1], atol=2e-5)
    np.testing.assert_allclose(found["mean"][3], hidden.mean(axis=0), atol=2e-5)


def test_features_are_computed_once_for_all_that_ask(
    toy: TextProblem, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = CATALOGUE.resolve(encoder)
    first = _features.features(toy, info, "train")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was loaded again")

    monkeypatch.setattr(_nets, "load_classifier", refuse)
    again = _features.features(toy, info, "train", n=toy.prefix(0.5))
    np.testing.assert_array_equal(first["mean"][: toy.prefix(0.5)], again["mean"])
    with pytest.raises(AssertionError, match="loaded again"):
        _features.features(toy, info, "train", n_layers=1)


def test_an_early_landmark_pays_for_its_own_texts_only(
    toy: TextProblem, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    frozen = _features.frozen

    def counting(net: Any, rows: Any, *args: Any, **options: Any) -> Any:
        seen.append(len(rows))
        return frozen(net, rows, *args, **options)

    monkeypatch.setattr(_features, "frozen", counting)
    info, half = CATALOGUE.resolve(encoder), toy.prefix(0.5)
    for n in (half, half, toy.n_train, toy.n_train):
        _features.features(toy, info, "train", n=n)
    assert seen == [half, toy.n_train - half]


def _compute(path: str) -> float:
    found = _features.features(FAMILY.toy_problem(seed=0), CATALOGUE.resolve(path), "val")
    return float(found["mean"].sum())


def test_processes_that_ask_at_once_share_one_entry(encoder: str) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(_compute, [encoder] * 4)
    assert len(set(found)) == 1
    assert len([p for p in (cache_dir() / "features").iterdir() if p.is_dir()]) == 1


def test_a_computation_that_breaks_leaves_no_entry(tmp_path: Path) -> None:
    def broken() -> dict[str, np.ndarray]:
        raise MemoryError("too much")

    with pytest.raises(MemoryError):
        _features.cached(tmp_path / "entry", broken)
    assert not [p for p in tmp_path.iterdir() if p.is_dir() and p.name != "cache"]
    made = _features.cached(tmp_path / "entry", lambda: {"x": np.arange(3)})
    assert made["x"].tolist() == [0, 1, 2]


def test_a_cut_encoder_still_tells_texts_apart_by_its_first_token(
    toy: TextProblem, encoder: str
) -> None:
    """Its top layer attends to all tokens alike; see `_nets._spread_attention`."""
    net = _nets.load_encoder(CATALOGUE.resolve(encoder), 2)
    queries = [m for n, m in net.named_modules() if n.endswith("query")]
    assert len(queries) == 2
    weights = [m.get_parameter("weight") for m in queries]
    assert weights[1].any(), "rows without length cannot be decomposed (DoRA)"
    assert weights[1].abs().max() < 0.01 * weights[0].abs().max()
