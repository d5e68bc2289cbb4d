"""Shared fixtures: offline switches, one Ray cluster for the whole run, small recorded curves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure. On CI the examples are always the same ones; elsewhere hypothesis
# explores, and what it finds becomes a test of its own.
settings.register_profile("lamps", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lamps")

os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray Tune leaves its SIGINT handler behind, which would swallow those of later tests.
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        "NO_COLOR": "1",
    }
)
os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in ("LAMPS_STORE", "LAMPS_ARTIFACTS", "LAMPS_WORKERS", "LAMPS_PLUGIN_PATH"):
    os.environ.pop(name, None)

CURVES = """candidate,fidelity,elapsed_s,size,error,mb
a,0,0.1,1,0.9,1
a,0.25,0.6,1,0.6,1
a,0.5,1,1,0.5,1
a,1,2,1,0.30,1
b,0,0.1,2,0.8,2
b,0.25,0.6,2,0.5,2
b,0.5,1,2,0.4,2
b,1,2,2,0.20,2
c,0,0.1,3,0.8,3
c,0.25,0.6,3,0.7,3
c,0.5,1,3,0.6,3
c,1,2,3,0.5,3
d,0,0.1,0.5,0.95,0.5
d,0.25,0.6,0.5,0.9,0.5
d,0.5,1,0.5,0.85,0.5
d,1,2,0.5,0.8,0.5
"""


@pytest.fixture(autouse=True)
def _interrupts_work() -> Iterator[None]:
    """A handler that a test leaves behind would swallow the Ctrl-C of later ones."""
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before, "the test left its SIGINT handler behind"


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    """Four curves, two objectives; the front is a, b, d."""
    path = tmp_path / "curves.csv"
    path.write_text(CURVES, encoding="utf-8")
    return path


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A new SQLite store."""
    return f"sqlite:///{tmp_path}/lamps.db"


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One local cluster for all tests that use Ray in this process; backends find and keep it."""
    from lamps.scheduler.ray import RayBackend

    backend = RayBackend(2)
    backend.connect()
    yield
    backend.close()
