"""A search over plans by the command line, its front, and an export that runs again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lamps_plugins.distributed_tensor_kernels import load

pytestmark = pytest.mark.timeout(300)


def lamps(*arguments: str | Path) -> Any:
    """A command's JSON document."""
    done = subprocess.run(
        [sys.executable, "-m", "lamps", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def ranks_of(folder: Path) -> list[int]:
    """Processes of ranks whose environment names a folder of this test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it ended meanwhile, or belongs to somebody else
            if b"distributed_tensor_kernels._rank" in line and str(folder).encode() in environment:
                found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_search_front_and_export(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/lamps.db"
    found = lamps(
        "search", "--problem", "distributed-tensor-kernels:gemm_rs", "--transport", "simlink",
        "--shape", "m=256,n=128,k=128", "--link-beta", "20", "--backend", "local",
        "--policy", "exhaustive", "--method", "sequential", "--method", "split", "--param",
        "split.block_m=32", "--store", store, "--name", "plans", "--json", "-q",
    )  # fmt: skip
    assert found["failed"] == 0
    assert found["finished"] == 2
    front = lamps("front", "plans", "--store", store, "--json")
    by_method = {member["method"]: member for member in front["members"]}
    member = by_method.get("split") or next(iter(by_method.values()))
    assert {"latency_ms", "exposed_ms", "buffer_bytes"} <= set(member["values"])
    exported = tmp_path / "member"
    lamps("export", "plans", str(member["index"]), exported, "--store", store, "--json")
    meta = json.loads((exported / "plan.json").read_text())
    assert meta["simulated_link"] is True
    assert meta["problem"]["shape"] == {"m": 256, "n": 128, "k": 128}
    assert meta["scores"]["test_latency_ms"] > 0
    assert not ranks_of(tmp_path)
    ran = load(exported).run(repetitions=2)
    assert ran["digest"] == meta["digest"]
    assert ran["buffer_bytes"] == member["values"]["buffer_bytes"]
    table = tmp_path / "plans.parquet"
    lamps("table", "export", "plans", table, "--store", store, "--json")
    replayed = lamps(
        "search", "--problem", f"replay:{table}", "--backend", "replay", "--policy",
        "exhaustive", "--store", store, "--name", "again", "--json", "-q",
    )  # fmt: skip
    assert replayed["finished"] == 2


@pytest.mark.ray
def test_ranks_are_children_of_rays_workers_and_end_with_them(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/lamps.db"
    found = lamps(
        "search", "--problem", "distributed-tensor-kernels:ag_gemm", "--shape",
        "m=128,n=64,k=64", "--backend", "ray", "--policy", "exhaustive", "--method", "push",
        "--store", store, "--name", "plans", "--json", "-q",
    )  # fmt: skip
    assert found["failed"] == 0
    assert found["finished"] == 1
    assert not ranks_of(tmp_path)
