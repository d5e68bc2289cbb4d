"""A search over transfers by the command line, its front, and an export for transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.task_update_transfer._problem import FAMILY
from lamps_plugins.task_update_transfer._refused import copies, opened_with

METHODS = ("--method", "param-delta", "--method", "btransfer", "--method", "target-untouched")


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


def test_own_models_from_search_to_a_folder_that_answers(tmp_path: Path) -> None:
    at = copies(tmp_path)
    file, options = opened_with(at)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    store = f"sqlite:///{tmp_path}/lamps.db"
    found = lamps(
        "search", "--problem", f"task-update-transfer:{file}", *given, *METHODS, "--samples", "2",
        "--backend", "local", "--policy", "exhaustive", "--store", store, "--name", "move",
        "--json", "-q",
    )  # fmt: skip
    assert found["failed"] == 0
    assert found["finished"] == 6
    front = lamps("front", "move", "--store", store, "--json")
    member = front["members"][0]
    assert {"val_error", "retention", "train_s"} <= set(member["values"])
    exported = tmp_path / "member"
    lamps("export", "move", str(member["index"]), exported, "--store", store, "--json")
    meta = json.loads((exported / "lamps.json").read_text())
    assert meta["method"].startswith("transferred by ")
    # The measured score is what anybody gets from the folder with plain transformers.
    problem = FAMILY.open_problem(file, options)
    logits = plain_logits(exported, list(problem.texts.task.texts("test")))
    error = (logits.argmax(axis=1) != problem.targets("test")).mean()
    assert meta["scores"]["test_error"] == pytest.approx(float(error), abs=1e-6)
    answers = lamps("predict", exported, file, "--json")
    assert {answer["label"] for answer in answers} <= set(problem.labels)


def plain_logits(folder: Path, texts: list[str]) -> np.ndarray:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    net = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        batch = tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
        return np.asarray(net(**batch).logits.numpy())
