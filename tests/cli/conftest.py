"""One finished search for all tests that only read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from _lamps_cli import Searched, run

CURVES = """candidate,fidelity,elapsed_s,size,error,mb
a,0,0.1,1,0.9,1
a,0.5,1,1,0.5,1
a,1,2,1,0.30,1
b,0,0.1,2,0.8,2
b,0.5,1,2,0.4,2
b,1,2,2,0.20,2
ß 日本,0,0.1,0.5,0.95,0.5
ß 日本,0.5,1,0.5,0.85,0.5
ß 日本,1,2,0.5,0.8,0.5
broken,0,0.1,3,0.7,3
broken,0.5,1,3,nan,3
"""


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Two searches, made once; read only."""
    folder = tmp_path_factory.mktemp("searched")
    curves = folder / "curves.csv"
    curves.write_text(CURVES, encoding="utf-8")
    store = f"sqlite:///{folder}/lamps.db"
    for name in ("über", "rest"):
        answer = run(
            "search", "--problem", f"replay:{curves}", "--backend", "local",
            "--policy", "exhaustive", "--store", store, "--name", name, "--quiet",
        )  # fmt: skip
        assert answer.code == 3, answer.err
    return Searched(store, curves)
