"""Sequences, landmarks, loss, memory, export."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lamps_kernels._blocks import visible_and_forced
from lamps_plugins import _small_lms, sparse_attention
from lamps_plugins.sparse_attention._attend import visible_pairs
from lamps_plugins.sparse_attention._decoders import SCORED, RecallSource, TextSource
from lamps_plugins.sparse_attention._items import Item, Source
from lamps_plugins.sparse_attention._measure import of_layers, timing
from lamps_plugins.sparse_attention._memory import extra_bytes
from lamps_plugins.sparse_attention._problem import FAMILY, FIDELITIES, AttentionProblem
from lamps_plugins.sparse_attention._topics import Topics
from lamps_plugins.sparse_attention.dense import Dense
from lamps_plugins.sparse_attention.unisparse import UniSparse
from lamps_plugins.sparse_attention.window_sink import WindowSink

from lamps.errors import ProblemError


def of(source: Source, length: int = 512) -> AttentionProblem:
    return AttentionProblem(
        name="x", source=source, length=length, sequences=2, reference={"builtin": None}
    )


def small(name: str) -> str:
    _small_lms.load(name)
    return str(_small_lms.folder(name))


def text(n: int = 4000) -> TextSource:
    rng = np.random.default_rng(0)
    ids = {split: rng.integers(0, 40, n) for split in ("val", "test")}
    return TextSource(folder=small("toy"), name="toy", ids=ids)


def recall() -> RecallSource:
    return RecallSource(folder=small("toy-recall"), name="toy-recall")


def fitted(rule: Any, problem: AttentionProblem, fidelity: float = 1.0) -> Any:
    return rule.partial_fit(problem, fidelity, rng=np.random.default_rng(0))


def test_landmarks_are_nested() -> None:
    problem = of(Topics())
    found = [problem.items("val", f) for f in FIDELITIES]
    assert [len(items) for items in found] == [1, 2, 4, 6]
    for few, many in itertools.pairwise(found):
        assert set(few) <= set(many)
    assert [problem.amount(f) for f in FIDELITIES] == [128, 256, 768, 1792]


def test_splits_and_sequences_differ_and_repeat_themselves() -> None:
    topics = Topics(seed=3)
    items = [Item("val", 128, 0), Item("val", 128, 1), Item("test", 128, 0)]
    drawn = [topics.heads(item)[0].q for item in items]
    assert torch.equal(drawn[0], topics.heads(items[0])[0].q)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("make", [Topics, text, recall])
def test_dense_attention_loses_nothing(make: Any) -> None:
    problem = of(make())
    found = fitted(Dense.from_params({}), problem).evaluate(problem)
    assert found.objectives["val_error"] == pytest.approx(0.0, abs=1e-9)
    assert found.objectives["density"] == 1.0
    assert found.objectives["extra_bytes"] == 0.0
    assert found.signals["kept_mass"] == 1.0


@pytest.mark.parametrize("make", [Topics, text, recall])
def test_a_narrow_window_is_measured(make: Any) -> None:
    problem = of(make())
    rule = fitted(WindowSink.from_params({"block": 64, "local": 1, "sink": 0}), problem)
    found = rule.evaluate(problem)
    assert found.objectives["density"] < 0.7
    assert 0 < found.signals["kept_mass"] < 1
    assert found.signals["output_error"] > 0
    assert found.objectives["extra_bytes"] > 0
    assert found.objectives["latency_ratio"] > 0
    assert problem.test_opened == 0
    test = rule.evaluate(problem, "test")
    assert problem.test_opened == 6
    assert test.signals["test_error_low"] <= test.objectives["test_error"]
    assert test.objectives["test_error"] <= test.signals["test_error_high"]


def test_losses_are_shares_of_what_dense_attention_reaches() -> None:
    right = [{"right": 3.0, "dense_right": 4.0, "asked": 8.0}] * 2
    assert recall().error(right) == pytest.approx(0.25)
    nats = [{"nats": 110.0, "dense_nats": 100.0, "tokens": 100.0}]
    assert text().error(nats) == pytest.approx(1 - np.exp(-0.1))
    squares = [{"wrong": 1.0, "all": 100.0}, {"wrong": 3.0, "all": 300.0}]
    assert Topics().error(squares) == pytest.approx(0.1)


def test_the_second_half_of_a_text_is_scored() -> None:
    source = text()
    tokens, targets = source.tokens(Item("val", 512, 0))
    assert (targets[:256] == -100).all()
    assert (targets[256:-1] == tokens[257:]).all()
    long = source.tokens(Item("val", 3000, 0))[1]
    assert (long != -100).sum() == SCORED


def test_kept_mass_is_the_true_share() -> None:
    layers = Topics().heads(Item("val", 256, 0))
    rule = WindowSink.from_params({"block": 64, "local": 1, "sink": 0})
    found = of_layers(rule, layers)["kept_mass"]
    _, q, k, _ = layers[0]
    hidden = torch.ones(256, 256, dtype=torch.bool).triu(1)
    p = (q @ k.repeat_interleave(2, 1).mT / 8).masked_fill(hidden, -torch.inf).softmax(-1)
    block = torch.arange(256) // 64
    kept = (block[:, None] - block).abs() <= 1
    assert found == pytest.approx(float((p * kept).sum(-1).mean()), abs=1e-4)


def test_memory_counts_what_is_held_and_not_what_is_returned() -> None:
    x = torch.zeros(1000)
    assert extra_bytes(lambda: x + 1) == 0
    assert extra_bytes(lambda: (x + 1).sum()) == 4000
    assert extra_bytes(lambda: ((x + 1) * (x + 2)).sum()) == 12000
    assert extra_bytes(lambda: ((x + 1).view(10, 100)[0]).clone()) == 4000
    assert extra_bytes(lambda: x.view(10, 100)) == 0


@pytest.mark.parametrize(("queries", "keys"), [(200, 200), (70, 150), (1, 65), (64, 64)])
def test_visible_pairs_are_counted(queries: int, keys: int) -> None:
    visible, _ = visible_and_forced(queries, keys, 32)
    assert visible_pairs(queries, keys, 32) == int(visible.sum())


def test_timing_holds_selection_and_attention() -> None:
    layers = Topics().heads(Item("val", 512, 0))
    found = timing(UniSparse.from_params({"block": 64}), layers)
    assert 0 < found.select_s < found.sparse_s
    assert found.ratio == pytest.approx(found.sparse_s / found.dense_s)


def test_export_gives_the_rule_back(tmp_path: Path) -> None:
    problem = FAMILY.toy_problem()
    rule = fitted(UniSparse.from_params({"tau": 0.9, "block": 64}), problem)
    rule.save(problem, tmp_path)
    FAMILY.describe_export(tmp_path, {"test_error": 0.125})
    card = json.loads((tmp_path / "lamps.json").read_text())
    assert card["scores"] == {"test_error": 0.125}
    assert "| test_error | 0.125 |" in (tmp_path / "README.md").read_text()
    name = sparse_attention.load(tmp_path)
    assert name.startswith("lamps-sparse-unisparse-")
    from transformers import AttentionInterface

    assert name in AttentionInterface()
    compile((tmp_path / "example.py").read_text(), "example.py", "exec")


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"class": "Missing"}, "Missing"),
        ({"params": {"tau": 7}}, "tau=7"),
        ({"family": "model-merging"}, "family model-merging"),
    ],
)
def test_damaged_exports_are_refused(tmp_path: Path, change: dict[str, Any], culprit: str) -> None:
    problem = FAMILY.toy_problem()
    fitted(UniSparse.from_params({}), problem, 0.0).save(problem, tmp_path)
    card = json.loads((tmp_path / "lamps.json").read_text()) | change
    (tmp_path / "lamps.json").write_text(json.dumps(card))
    with pytest.raises(ProblemError, match=culprit):
        sparse_attention.load(tmp_path)


def test_reopened_problems_are_equal_and_changes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("red bird sings . " * 600)
    options = {"decoder": small("toy"), "text_file": str(file), "length": 256}
    problem = FAMILY.open_problem(None, options)
    again = FAMILY.reopen(problem.reference())
    assert again.fingerprint() == problem.fingerprint()
    file.write_text("old stone falls . " * 600)
    with pytest.raises(ProblemError, match="changed"):
        FAMILY.reopen(problem.reference())


@pytest.mark.parametrize(
    ("options", "culprit"),
    [({"length": 2048}, "at most 1024 tokens"), ({"length": 1024}, "expected at least 1026")],
)
def test_lengths_beyond_model_or_text_are_refused(
    tmp_path: Path, options: dict[str, Any], culprit: str
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("red bird sings . " * (2000 if options["length"] > 1024 else 30))
    with pytest.raises(ProblemError, match=culprit):
        FAMILY.open_problem(None, {"decoder": small("toy"), "text_file": str(file), **options})
