"""A search over ways of decoding by the command line, its front, an export and its predictions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lamps_plugins import lossless_decoding
from lamps_plugins.lossless_decoding._refused import own_options

METHODS = ("plain", "esp", "prompt-lookup", "draft-lm")


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


def test_search_front_export_and_predict(tmp_path: Path) -> None:
    options = own_options(tmp_path)
    Path(options["prompts"]).write_text(
        "".join(f"{a} {b} sings . {a} {b}\n" for a in ("red", "old") for b in ("bird", "hill")),
        encoding="utf-8",
    )
    store = f"sqlite:///{tmp_path}/lamps.db"
    methods = [word for name in METHODS for word in ("--method", name)]
    found = lamps(
        "search", "--problem", "lossless-decoding", "--decoder", options["decoder"], "--draft",
        options["draft"], "--prompts", options["prompts"], "--max-new", "12", *methods,
        "--samples", "1", "--backend", "local", "--policy", "exhaustive", "--store", store,
        "--name", "decode", "--json", "-q",
    )  # fmt: skip
    assert found["failed"] == 0
    assert found["finished"] == len(METHODS)
    front = lamps("front", "decode", "--store", store, "--json")
    best = min(front["members"], key=lambda m: m["values"]["val_rows_per_token"])
    assert best["values"]["val_rows_per_token"] == 1.0  # plain decoding is always on the front
    member = next(m for m in front["members"] if m != best) if len(front["members"]) > 1 else best
    exported = tmp_path / "member"
    lamps("export", "decode", str(member["index"]), exported, "--store", store, "--json")
    meta = json.loads((exported / "lamps.json").read_text())
    assert meta["family"] == "lossless-decoding"
    assert "test_rows_per_token" in meta["scores"]
    rows = lamps("predict", exported, options["prompts"], "--json")
    opened = lossless_decoding.load(exported)
    assert [row["prompt"] for row in rows] == Path(options["prompts"]).read_text().splitlines()
    for row in rows:
        assert row["continuation"] == opened.generate(row["prompt"]).text
