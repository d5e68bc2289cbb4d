"""A real cluster: nodes in network namespaces, PostgreSQL, jobs, a node and the head powered off.

The front of the same search in one process is the oracle.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _clusters import Cluster, Network, can_make_namespaces, wait_for
from _postgres import PASSWORD, PostgresServer, find_binaries
from _processes import at_rest, evaluations, front, write_curves

import lamps
from lamps.store import DecisionRecord
from lamps.store import Run as StoredRun

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.xdist_group("ray")]

N = 8  # curves; 32 landmarks in all


class Lab:
    """A cluster of three nodes, a server, and what a search in one process finds."""

    def __init__(self, cluster: Cluster, server: PostgresServer, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self.url, self.open_url = server.url(), server.open_url()
        self.table = write_curves(home / "curves.csv", N)
        oracle = f"sqlite:///{home}/oracle.db"
        lamps.search(
            problem=f"replay:{self.table}",
            policy="exhaustive",
            backend="local",
            seed=5,
            store=oracle,
            name="oracle",
        )
        self.front = [values for _, values in front(oracle, "oracle")]

    def record(self, name: str) -> StoredRun:
        """The run as stored."""
        with lamps.open_store(self.url) as opened:
            return opened.run(name).record

    def decisions(self, name: str) -> list[DecisionRecord]:
        """Its decisions."""
        with lamps.open_store(self.url) as opened:
            return list(opened.run(name).decisions())

    def words(self, name: str, sleep_s: float) -> list[str]:
        """The search on the cluster; its store has no password in it."""
        return [
            "search", "--problem", f"replay:{self.table}", "--policy", "exhaustive",
            "--seed", "5", "--name", name, "--param", f"curve-replay.sleep_s={sleep_s}",
            "--store", self.open_url, "--artifacts", str(self.home / "artifacts"),
        ]  # fmt: skip

    def submit(self, *words: str) -> list[str]:
        """The command that makes a job of it."""
        return ["cluster", "submit", "--dashboard", self.cluster.dashboard, *words]

    def is_whole(self, name: str) -> None:
        """Every landmark is there once, and the front is that of one process."""
        at_rest(self.url, name)
        record = self.record(name)
        assert record.counts == {"complete": N}
        assert record.n_evaluations == 4 * N
        assert [values for _, values in front(self.url, name)] == self.front


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Head and two workers."""
    if not can_make_namespaces():
        pytest.skip("nodes need network namespaces, which this machine refuses")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (looked for initdb and pg_ctl)")
    home = tmp_path_factory.mktemp("home")
    with (
        Network(3) as network,
        PostgresServer(binaries, network.host, f"{network.subnet}.0/24") as server,
    ):
        cluster = Cluster(network, home, {"PGPASSFILE": str(server.pass_file(home / "pgpass"))})
        for i in range(3):
            cluster.start(i)
        try:
            yield Lab(cluster, server, home)
        finally:
            for i in range(3):
                network.kill(i)
            cluster.close()


def _works(lines: list[str]) -> bool:
    """Whether a landmark runs: Ray names a worker after its task."""
    return any(line.startswith("ray::replay/curve-replay/") for line in lines)


@pytest.mark.timeout(400)
def test_a_node_is_powered_off_in_the_middle(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = lab.submit(*lab.words("node", 1.5))
    call = lab.cluster.begin(0, *words, log=log)
    wait_for(lambda: evaluations(lab.url, "node") >= 8, 120)
    lab.cluster.network.kill_while(2, _works)
    assert call.wait(240) == 0, log.read_text()
    lab.is_whole("node")
    attempts = Counter(d.attempt for d in lab.decisions("node"))
    assert attempts[2] >= 1  # what ran on the lost node was run again elsewhere
    assert "test #" in log.read_text()  # the job's log came through
    # The same command again joins the job that has succeeded.
    again = lab.cluster.lamps(0, *words)
    assert "job lamps-node there already (succeeded)" in again.stderr
    assert evaluations(lab.url, "node") == 4 * N
    # A run whose name looks like a second attempt is a run of its own.
    other = lab.submit(*lab.words("node-2", 0.0))
    assert "job lamps-node-2 submitted" in lab.cluster.lamps(0, *other).stderr
    lab.is_whole("node-2")
    jobs = json.loads(
        lab.cluster.lamps(
            0, "cluster", "jobs", "--dashboard", lab.cluster.dashboard, "--json"
        ).stdout
    )
    lab.cluster.start(2)  # the tests below find three nodes
    assert {(j["id"], j["status"], j["exit_code"]) for j in jobs} == {
        ("lamps-node", "SUCCEEDED", 0),
        ("lamps-node-2", "SUCCEEDED", 0),
    }


@pytest.mark.timeout(300)
def test_a_search_from_another_node_without_a_job(lab: Lab) -> None:
    words = lab.words("direct", 0.0)
    lab.cluster.lamps(1, *words, "--address", lab.cluster.address, "--quiet")
    lab.is_whole("direct")
    record = lab.record("direct")
    assert record.settings["address"] == lab.cluster.address
    assert record.workers == 3  # one per CPU of the cluster


@pytest.mark.timeout(300)
def test_the_doctor_finds_three_nodes_and_nothing_bad(lab: Lab) -> None:
    words = [
        "cluster", "doctor", "--address", lab.cluster.address, "--dashboard",
        lab.cluster.dashboard, "--artifacts", str(lab.home / "artifacts"), "--json",
    ]  # fmt: skip
    done = lab.cluster.lamps(0, *words, "--store", lab.open_url)
    found = {f["check"]: f for f in json.loads(done.stdout)}
    assert {f["level"] for f in found.values()} == {"ok"}, found
    assert found["cluster"]["found"].startswith("3 nodes")
    assert "answers 401 without a token" in found["jobs api"]["found"]
    # A folder that only the head's user can see the name of, and a database behind a password.
    blind = [w if w != str(lab.home / "artifacts") else "/proc/nowhere" for w in words]
    done = lab.cluster.lamps(0, *blind, "--store", f"sqlite:///{lab.home}/d.db", code=1)
    levels = {f["check"]: f["level"] for f in json.loads(done.stdout)}
    assert (levels["store"], levels["artifacts"], levels["cluster"]) == ("warning", "bad", "ok")


def test_a_password_does_not_reach_the_dashboard(lab: Lab) -> None:
    words = [w if w != lab.open_url else lab.url for w in lab.words("secret", 0.0)]
    done = lab.cluster.lamps(1, *words, "--address", lab.cluster.address, code=1)
    assert "holds a password" in done.stderr
    assert PASSWORD not in done.stderr
    done = lab.cluster.lamps(0, *lab.submit(*words), code=1)
    assert PASSWORD not in done.stderr


def test_without_the_token_nobody_gets_in(lab: Lab, tmp_path: Path) -> None:
    stranger = lab.cluster.environment | {"HOME": str(tmp_path)}
    words = [
        *lab.words("stranger", 0.0), "--address", lab.cluster.address, "--quiet",
    ]  # fmt: skip
    done = subprocess.run(
        lab.cluster.words(1, *words), env=stranger, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, done
    assert "token" in done.stderr
    assert "Traceback" not in done.stderr
    done = subprocess.run(
        lab.cluster.words(0, "cluster", "jobs", "--dashboard", lab.cluster.dashboard),
        env=stranger, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("ConfigError: the dashboard at")
    assert done.stderr.count("\n") == 1


@pytest.mark.timeout(500)
def test_the_head_is_powered_off_and_comes_back(lab: Lab, tmp_path: Path) -> None:
    words = lab.submit(*lab.words("head", 1.5))
    call = lab.cluster.begin(0, *words, log=tmp_path / "log")
    wait_for(lambda: evaluations(lab.url, "head") >= 8, 120)
    lab.cluster.network.kill(0)
    call.wait(60)  # it was on that machine
    before = evaluations(lab.url, "head")
    assert before < 4 * N
    # Anyone who reaches the store sees how far it is.
    seen = subprocess.run(
        lab.cluster.words(1, "status", "head", "--store", lab.open_url, "--json"),
        env=lab.cluster.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(seen.stdout)["run"] == "head"
    for i in (1, 2):
        lab.cluster.network.kill(i)
    for i in range(3):
        lab.cluster.start(i)
    done = lab.cluster.lamps(0, *words)
    assert "job lamps-head submitted" in done.stderr
    lab.is_whole("head")
    assert len(lab.decisions("head")) == 4 * N  # what was in flight kept its decision
