"""Small models: material, resumable training, folders, the recall task, and the command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins import _small_lms
from lamps_plugins._small_lms import _build, _corpus, _quality, _tokens, _training, recall
from lamps_plugins._small_lms._cli import small_lms
from lamps_plugins._small_lms._specs import SPECS, Phase, spec_of

from lamps.errors import ProblemError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path))
    return tmp_path


def quiet(line: str) -> None:
    return


@given(
    st.integers(1, 3), st.integers(8, 40), st.integers(1, 6), st.integers(1, 9), st.integers(0, 9)
)
def test_every_query_is_answered_by_its_pair(
    n: int, half: int, pairs: int, queries: int, seed: int
) -> None:
    length = 2 * half
    if 2 * pairs + 2 * queries + 2 > length:
        return
    made = recall.batch(n, length, rng=np.random.default_rng(seed), pairs=pairs, queries=queries)
    assert made.tokens.shape == made.targets.shape == (n, length)
    for tokens, targets in zip(made.tokens, made.targets, strict=True):
        asked = np.flatnonzero(targets != recall.IGNORED)
        assert len(asked) == queries
        assert tokens[0] == recall.BOS
        for at in asked:
            first = int(np.flatnonzero(tokens == tokens[at])[0])
            assert first < length - 2 * queries
            assert tokens[first + 1] == targets[at] == tokens[at + 1]
            assert tokens[at] in recall.KEYS
            assert targets[at] in recall.VALUES


@pytest.mark.parametrize(
    ("n", "length", "more", "culprit"),
    [(0, 32, {}, "sequences"), (1, 33, {}, "even"), (1, 8, {}, "16"),
     (1, 32, {"pairs": 16}, "do not fit"), (1, 32, {"queries": 0}, "do not fit")],
)  # fmt: skip
def test_sequences_that_cannot_be_are_refused(
    n: int, length: int, more: dict[str, int], culprit: str
) -> None:
    with pytest.raises(ProblemError, match=culprit):
        recall.batch(n, length, rng=np.random.default_rng(0), **more)


def test_the_lookup_heads_recall_before_any_training() -> None:
    model = _training.new_model(SPECS["recall"]).eval()
    assert _quality.recall_accuracy(model, 256, n=2) > 0.95


def test_a_stopped_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    spec = dataclasses.replace(SPECS["toy"], phases=(Phase(length=24, batch=4, steps=6),))
    whole = _training.train(spec, tmp_path / "a", minutes=None, resume=True, say=quiet)
    work, calls = tmp_path / "b", 0
    stopped = None
    while stopped is None:
        stopped = _training.train(spec, work, minutes=1e-6, resume=True, say=quiet)
        calls += 1
    assert calls == 6
    for a, b in zip(whole.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"nothing")
    with pytest.raises(ProblemError, match="--no-resume"):
        _training.train(SPECS["toy"], tmp_path, minutes=None, resume=True, say=quiet)


def test_the_rate_rises_and_falls() -> None:
    rates = [_training.rate(SPECS["stdlib"], step) for step in range(SPECS["stdlib"].steps)]
    assert max(rates) == 1.0
    assert rates[0] < 0.1
    assert rates[-1] < 0.02


def test_a_toy_is_built_once_and_found_again(cache: Path) -> None:
    model, tokenizer = _small_lms.load("toy")
    place = _small_lms.folder("toy")
    stamp = (place / "model.safetensors").stat().st_mtime_ns
    assert _small_lms.build("toy", say=quiet) == place
    assert (place / "model.safetensors").stat().st_mtime_ns == stamp
    ids = tokenizer("red bird sings .")["input_ids"]
    assert tokenizer.decode(ids) == "red bird sings ."
    assert model(torch.tensor([ids])).logits.shape == (1, 4, 64)
    assert not list(place.parent.glob("*.part"))


def test_a_model_of_minutes_is_not_built_on_the_way(cache: Path) -> None:
    with pytest.raises(ProblemError, match="lamps small-lms build recall"):
        _small_lms.load("recall")
    with pytest.raises(ProblemError, match="Did you mean 'recall'"):
        _small_lms.load("recal")


def test_the_command_stops_goes_on_and_lists(cache: Path) -> None:
    run = CliRunner().invoke
    first = run(small_lms, ["build", "toy-recall", "--minutes", "0.00001"])
    assert "not ready" in first.output
    rows = json.loads(run(small_lms, ["list", "--json"]).output)["models"]
    assert {row["name"]: row["state"] for row in rows}["toy-recall"] == "begun"
    done = json.loads(run(small_lms, ["build", "toy-recall", "--json"]).output)
    assert Path(done["folder"]).is_dir()
    listed = run(small_lms, ["list"]).output
    assert "toy-recall    built" in listed
    facts = json.loads((Path(done["folder"]) / _build.FACTS).read_text())
    assert 0.0 <= facts["recall_64"] <= 1.0


def test_sources_are_split_by_file_and_tests_are_left_out() -> None:
    corpus = _corpus.stdlib()
    assert not set(corpus.train) & set(corpus.held_out)
    assert 0.05 < len(corpus.held_out) / len(corpus.train) < 0.2
    assert "json/decoder.py" in {*corpus.train, *corpus.held_out}
    assert not any("/test" in name or name.startswith("test") for name in corpus.train)


def test_code_survives_its_tokens() -> None:
    spec = spec_of("stdlib")
    text = "def f(x):\n    return x['ä']  # so\n"
    tokenizer = _tokens.tokenizer_for(spec)
    assert len(tokenizer) == 1024
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert list(_tokens.encode(spec, [text, text])) == 2 * [0, *ids]


def test_targets_are_the_tokens_moved_by_one() -> None:
    tokens, targets = _tokens.sequences(
        SPECS["toy"], Phase(length=20, batch=3, steps=1), np.random.default_rng(0)
    )
    assert tokens.shape == targets.shape == (3, 20)
    assert np.array_equal(tokens[:, 1:], targets[:, :-1])
