"""What the doctor says of token, ports and the Jobs API."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lamps.cluster.doors import (
    dashboard_finding,
    file_findings,
    port_findings,
    token_findings,
    version_finding,
)
from lamps.cluster.findings import Finding
from lamps.scheduler.ray_token import prepare_token, token_path, use_token


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a token, and no word of one in the environment."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")  # noted, so that it is as before in the end
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def levels(findings: list[Finding]) -> dict[str, str]:
    return {f.check: f.level for f in findings}


def test_the_token_is_made_before_ray_can_and_for_its_owner_alone(home: Path) -> None:
    mask = os.umask(0)
    try:
        use_token()
    finally:
        os.umask(mask)
    path = home / ".ray" / "auth_token"
    assert token_path() == path
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(path.read_text()) == 64
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert levels(token_findings()) == {
        "token mode": "ok", "token file": "ok", "token folder": "ok",
    }  # fmt: skip


def test_a_token_that_is_there_is_kept_and_its_modes_are_narrowed(home: Path) -> None:
    path = home / ".ray" / "auth_token"
    path.parent.mkdir(mode=0o755)
    path.write_text("known")
    path.chmod(0o644)
    found = {f.check: f for f in file_findings(path)}
    assert found["token file"].level == "bad"
    assert found["token file"].found.endswith("has mode 0644")
    assert found["token file"].advice == f"chmod 0600 '{path}'"
    assert found["token folder"].level == "bad"
    prepare_token()
    assert path.read_text() == "known"
    assert levels(file_findings(path)) == {"token file": "ok", "token folder": "ok"}


def test_no_token_and_no_mode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(token_findings()) == {"token mode": "warning", "token": "bad"}
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert levels(token_findings())["token mode"] == "bad"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    findings = token_findings()
    assert levels(findings)["token"] == "warning"
    assert "abc" not in " ".join(f.found + f.advice for f in findings)


def test_a_token_from_the_environment_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "elsewhere"))
    prepare_token()
    assert not (home / ".ray").exists()
    assert token_path() == home / "elsewhere"


def test_the_version_of_ray_is_one_we_know() -> None:
    assert version_finding().level == "ok"


@contextmanager
def answering(code: int, body: bytes = b"[]") -> Iterator[str]:
    """A server that answers everything alike."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("code", "level"), [(401, "ok"), (403, "ok"), (200, "bad"), (500, "warning")]
)
def test_the_jobs_api_must_turn_strangers_away(code: int, level: str) -> None:
    with answering(code) as address:
        finding = dashboard_finding(address)
    assert finding.level == level
    assert ("CVE-2023-48022" in finding.found) == (level == "bad")


def test_a_dashboard_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert dashboard_finding(address, 2.0).level == "warning"


LISTENER = """
import socket, sys, time
port = int(sys.argv[-1].split("=")[1])
servers = [socket.create_server((host, port)) for host in sys.argv[2:-1]]
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("hosts", "level"), [(["127.0.0.1"], "ok"), (["127.0.0.1", "127.0.0.2"], "warning")]
)
def test_who_listens_beyond_loopback_is_told(hosts: list[str], level: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Ray's own server has this word in its command line.
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, "ray.util.client.server", *hosts, f"--port={port}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = [f for f in port_findings() if f"process {process.pid}," in f.found]
        assert [f.level for f in found] == [level]
        if level == "warning":
            assert found[0].found.endswith("listens on 127.0.0.2")
    finally:
        process.kill()
        process.communicate()
