"""What the doctor makes of the answers of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lamps import artifacts
from lamps.cluster.node_facts import ANSWER_S, facts, node_findings


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "lamps": "1", "python": "3.11.7", "ray": "2.60.0", "families": "a, b", "clock": 100.0,
        "artifacts": "",
    } | changes  # fmt: skip


def told(answers: dict[str, Any], root: str = "/data") -> dict[str, tuple[str, str]]:
    findings = node_findings(answers, now=101.0, artifact_root=root)
    return {f.check: (f.level, f.found) for f in findings}


def test_alike_nodes_are_well() -> None:
    found = told({"a": answer(), "b": answer()})
    assert {level for level, _ in found.values()} == {"ok"}
    assert found["artifacts"][1] == "all 2 nodes reach /data"
    assert "clocks" not in found


def test_a_node_of_another_release_is_named() -> None:
    found = told({"a": answer(), "b": answer(lamps="2"), "c": answer()})
    assert found["lamps"] == ("bad", "most nodes have 1; b has 2")
    assert found["python"][0] == "ok"


def test_a_node_that_is_silent_is_named() -> None:
    assert told({"a": answer(), "b": "NodeDiedError: gone"})["node"][0] == "bad"


def test_a_node_that_does_not_reach_the_artifacts_is_named() -> None:
    found = told({"a": answer(), "b": answer(artifacts="StoreError: no such folder")})
    assert found["artifacts"][0] == "bad"
    assert "1 of 2 nodes do not reach /data; b: StoreError" in found["artifacts"][1]
    assert "artifacts" not in told({"a": answer()}, root="")


def test_a_secret_of_the_artifact_root_is_not_shown() -> None:
    found = told({"a": answer()}, root="s3://key:hunter2@bucket/lamps")
    assert "hunter2" not in found["artifacts"][1]


def test_clocks_that_differ_are_told() -> None:
    assert "clocks" in told({"a": answer(clock=110.0)})
    assert "clocks" in told({"a": answer(clock=100.0 - ANSWER_S - 10)})
    assert "clocks" not in told({"a": answer(clock=99.0)})


def test_facts_read_and_write_the_artifact_root(tmp_path: Path) -> None:
    probe = artifacts.write_checkpoint(f"{tmp_path}/probe", {"from": "test"})
    seen = facts(probe.uri, probe.sha256)
    assert seen["artifacts"] == ""
    assert "replay" in seen["families"]
    assert [Path(p).name for p in artifacts.files(str(tmp_path))] == ["probe"]
    assert facts(probe.uri, "0" * 64)["artifacts"].startswith("StoreError")
    assert facts(f"{tmp_path}/elsewhere", "0")["artifacts"].startswith("StoreError")
    assert facts("", "")["artifacts"] == ""
