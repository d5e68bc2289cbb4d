"""A search over mergers by the command line, its front, and an export that transformers opens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.model_merging._problem import FAMILY
from lamps_plugins.model_merging._refused import copied, options_of

METHODS = ("--method", "average", "--method", "task-arithmetic")


def lamps(*arguments: str | Path) -> Any:
    """A command's JSON document."""
    done = subprocess.run(
        [sys.executable, "-m", "lamps", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def plain_logits(folder: Path, texts: list[str]) -> np.ndarray:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    net = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        batch = tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
        return np.asarray(net(**batch).logits.numpy())


def test_search_front_and_export(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/lamps.db"
    found = lamps(
        "search", "--problem", "model-merging:toy", *METHODS, "--samples", "3", "--backend",
        "local", "--policy", "exhaustive", "--store", store, "--name", "merge", "--json", "-q",
    )  # fmt: skip
    assert found["failed"] == 0
    assert found["finished"] == 4
    front = lamps("front", "merge", "--store", store, "--json")
    member = front["members"][0]
    assert {"val_error", "val_worst_error", "train_s"} <= set(member["values"])
    exported = tmp_path / "member"
    lamps("export", "merge", str(member["index"]), exported, "--store", store, "--json")
    problem = FAMILY.open_problem("toy", {})
    meta = json.loads((exported / "lamps.json").read_text())
    assert meta["family"] == "model-merging"
    assert meta["scores"]["test_error"] == pytest.approx(member["test"]["test_error"])
    right = []
    for task in problem.tasks:
        data = problem.task(task)
        logits = plain_logits(exported / task, list(data.texts("test")))
        expert = problem.logits(problem.expert_network(task), task, "test")
        hits = [(z.argmax(axis=1) == data.targets("test")).mean() for z in (logits, expert)]
        right.append(hits[0] / hits[1])
    # The measured score is what anybody gets from the folder.
    assert meta["scores"]["test_error"] == pytest.approx(1 - np.mean(right), abs=1e-6)


def test_users_own_adapters_and_texts(tmp_path: Path) -> None:
    from lamps_plugins._zoo._build import ZooSpec, build

    at = copied(build(ZooSpec(kind="lora", profile="toy"), lambda _: None), tmp_path)
    options = options_of(at)
    store = f"sqlite:///{tmp_path}/lamps.db"
    given: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            given += [flag, str(one)]
    found = lamps(
        "search", "--problem", "model-merging", *given, *METHODS, "--backend", "local",
        "--policy", "exhaustive", "--store", store, "--name", "own", "--json", "-q",
    )  # fmt: skip
    assert found["finished"] == 2
    trial = found["front"]["members"][0]["index"]
    lamps("export", "own", str(trial), tmp_path / "member", "--store", store, "--json")
    answers = lamps("predict", tmp_path / "member" / "game", at["game.data"], "--json")
    rows = [json.loads(line) for line in at["game.data"].read_text().splitlines()]
    hits = [a["label"] == row["label"] for a, row in zip(answers, rows, strict=True)]
    assert np.mean(hits) > 0.45
