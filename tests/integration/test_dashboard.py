"""What is seen of a search on Ray's pages: metrics by Prometheus, task names by a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from _processes import Call, until, write_curves

from lamps.scheduler.ray_metrics import COUNTERS, GAUGES

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]

CLUSTER = Path(__file__).parents[2] / "cluster"


@dataclass
class Watched:
    """A search that runs for a while with its dashboard."""

    call: Call
    token: str
    folder: Path  # of Ray's files
    dashboard: str

    def targets(self) -> list[str]:
        """Addresses of the metrics, as Ray announces them to Prometheus."""
        path = self.folder / "ray" / "prom_metrics_service_discovery.json"
        if not path.exists():
            return []
        return [t for entry in json.loads(path.read_text()) for t in entry["targets"]]

    def exposed(self) -> dict[str, list[Any]]:
        """Samples of lamps by metric, through the official parser."""
        from prometheus_client.parser import text_string_to_metric_families

        found: dict[str, list[Any]] = {}
        for target in self.targets():
            try:
                with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name.startswith("ray_lamps_"):
                        found.setdefault(sample.name.removeprefix("ray_"), []).append(sample)
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One search for all tests of this module; a task of it fails now and then."""
    home = tmp_path_factory.mktemp("home")
    folder = Path(tempfile.mkdtemp(prefix="lr", dir="/tmp"))  # sockets need short paths
    table = write_curves(home / "curves.csv", 30)
    environment = os.environ | {"HOME": str(home), "RAY_TMPDIR": str(folder)}
    words = [
        "search", "--problem", f"replay:{table}", "--backend", "ray", "--dashboard", "--workers",
        "2", "--policy", "round-robin", "--name", "r <b>", "--budget", "20m",
        "--param", "curve-replay.sleep_s=2", "--store", f"sqlite:///{home}/lamps.db",
    ]  # fmt: skip
    with Call(*words, log=home / "log", env=environment) as call:
        until(lambda: "ok #" in call.stderr, 120, 0.5)
        (url,) = re.findall(r"Ray's dashboard: (http://127\.0\.0\.1:\d+) ", call.stderr)
        token = (home / ".ray" / "auth_token").read_text()
        yield Watched(call, token, folder, url)
        call.interrupt()
        call.wait(60)
    shutil.rmtree(folder, ignore_errors=True)


def test_the_metrics_of_a_search_are_exposed(watched: Watched) -> None:
    seen = until(lambda: _all_there(watched), 90, 2.0)
    assert {s.labels["run"] for samples in seen.values() for s in samples} == {"r <b>"}
    states = {s.labels["state"]: s.value for s in seen["lamps_trials"]}
    assert set(states) == {"complete", "running", "paused", "waiting", "failed"}
    assert sum(states.values()) == 30
    assert states["running"] <= 2
    (landmarks,) = seen["lamps_landmarks_total"]
    (seconds,) = seen["lamps_landmark_seconds_total"]
    assert landmarks.labels["outcome"] == "ok"
    assert seconds.value >= 2.0 * landmarks.value
    (used,) = seen["lamps_budget_used_ratio"]
    assert 0 < used.value < 1
    (decision,) = seen["lamps_decision_ms"]
    assert 0 < decision.value < 1000


def _all_there(watched: Watched) -> dict[str, list[Any]] | None:
    """All metrics of a search without failures, once Ray has exported them."""
    seen = watched.exposed()
    wanted = {*GAUGES, *COUNTERS} - {"lamps_failures_total"}
    return seen if wanted <= set(seen) else None


def test_prometheus_answers_what_the_board_asks(watched: Watched, tmp_path: Path) -> None:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no prometheus is installed; the exposition is tested above")
    config = yaml.safe_load((CLUSTER / "prometheus" / "prometheus.yml").read_text())
    found = config["scrape_configs"][0]["file_sd_configs"][0]
    found["files"] = [str(watched.folder / "ray" / Path(found["files"][0]).name)]
    found["refresh_interval"] = "1s"
    config["global"]["scrape_interval"] = "2s"
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [binary, f"--config.file={path}", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        asked = "count(ray_lamps_trials)"
        until(lambda: _query(port, asked), 90, 1.0)
        until(lambda: _query(port, "rate(ray_lamps_landmarks_total[1m]) > 0"), 90, 2.0)
        board = json.loads((CLUSTER / "grafana" / "lamps.json").read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "10m")
                answer = _query(port, text.replace("$run", ".+"))
                quiet = "failures" in text  # none has failed
                assert bool(answer) != quiet, (panel["title"], answer)
    finally:
        server.terminate()
        server.wait(20)


def _query(port: int, expression: str) -> list[Any]:
    address = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode(
        {"query": expression}
    )
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expression}: {error.read().decode()}") from error
    except OSError:
        return []
    result: list[Any] = document["data"]["result"]
    return result


def test_the_dashboard_asks_for_the_token(watched: Watched) -> None:
    url = f"{watched.dashboard}/api/jobs/"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=10)
    assert caught.value.code == 401
    caught.value.close()
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {watched.token}"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert answer.status == 200
    words = [p.cmdline() for p in psutil.process_iter() if _alive(p)]
    assert not any(watched.token in w for line in words for w in line)  # others can read these


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.cmdline())
    except psutil.Error:
        return False


def test_tasks_are_readable_in_a_browser(watched: Watched, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1500, "height": 1400})
        page.goto(watched.dashboard)
        asks = page.get_by_role("dialog")
        asks.locator("input").fill(watched.token, timeout=60_000)
        asks.get_by_role("button", name="Submit").click()
        asks.wait_for(state="hidden", timeout=60_000)
        page.goto(f"{watched.dashboard}/#/jobs")
        page.locator("a[href*='jobs/']").first.click()
        page.get_by_text("Task Table", exact=True).click()
        name = page.get_by_text(re.compile(r"^replay/curve-replay/\d+@[\d.]+$")).first
        name.wait_for(timeout=120_000)
        page.screenshot(path=str(tmp_path / "dashboard.png"))
        assert re.fullmatch(r"replay/curve-replay/\d+@[\d.]+", name.inner_text())
        browser.close()
