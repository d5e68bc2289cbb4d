"""A search over rules by the command line, its front, and an export that a decoder runs with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins import _small_lms
from lamps_plugins._small_lms._tokens import rhymes

METHODS = ("--method", "unisparse", "--method", "window-sink", "--method", "dense")


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


def test_rules_for_ones_own_decoder_and_text(tmp_path: Path) -> None:
    _small_lms.load("toy")
    folder = _small_lms.folder("toy")
    text = tmp_path / "rhymes.txt"
    text.write_text(rhymes(4000, np.random.default_rng(0)), encoding="utf-8")
    store = f"sqlite:///{tmp_path}/lamps.db"
    found = lamps(
        "search", "--problem", "sparse-attention", "--decoder", folder, "--text-file", text,
        "--length", "512", "--sequences", "1", *METHODS, "--samples", "2", "--backend", "local",
        "--policy", "exhaustive", "--store", store, "--name", "own", "--json", "-q",
    )  # fmt: skip
    assert found["failed"] == 0
    assert found["finished"] == 5
    front = lamps("front", "own", "--store", store, "--json")
    member = front["members"][0]
    assert {"val_error", "latency_ratio"} <= set(member["values"])
    exported = tmp_path / "member"
    lamps("export", "own", str(member["index"]), exported, "--store", store, "--json")
    card = json.loads((exported / "lamps.json").read_text())
    assert card["family"] == "sparse-attention"
    assert card["scores"]["test_error"] == pytest.approx(member["test"]["test_error"])
    done = subprocess.run(
        [sys.executable, exported / "example.py", folder, text],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"lamps-sparse-{card['method']}" in done.stdout
    assert "perplexity" in done.stdout
