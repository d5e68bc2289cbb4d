"""The files of ``cluster/`` held true offline: Ray's schema, Prometheus, our own names."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lamps.scheduler.ray_metrics import COUNTERS, GAUGES, TAGS

ROOT = Path(__file__).parents[3] / "cluster"
RAY = importlib.metadata.version("ray")
LAUNCHER = sorted(ROOT.glob("launcher/*.yaml"))
KUBERAY = sorted(ROOT.glob("kuberay/*.yaml"))


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def test_every_file_says_what_it_is() -> None:
    files = [p for p in ROOT.rglob("*") if p.is_file() and p.suffix not in (".json", ".md")]
    assert len(files) >= 6
    for path in files:
        first = [line for line in path.read_text().splitlines() if not line.startswith("#!")][:5]
        assert all(line.startswith("#") for line in first), path


@pytest.mark.parametrize("path", LAUNCHER, ids=lambda p: p.stem)
def test_launcher_files_pass_the_schema_of_ray(path: Path) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = load(path)
    validate_config(prepare_config(config))
    config["no_such_key"] = 1
    with pytest.raises(Exception, match="no_such_key"):
        validate_config(prepare_config(config))


@pytest.mark.parametrize("path", LAUNCHER, ids=lambda p: p.stem)
def test_launcher_files_keep_the_doors_closed(path: Path) -> None:
    config = load(path)
    assert "~/.ray/auth_token" in config["file_mounts"]
    assert any("chmod 600 ~/.ray/auth_token" in c for c in config["setup_commands"])
    starts = [
        c
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for c in config[key]
        if "ray start" in c
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in c for c in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0]


@pytest.mark.parametrize("path", KUBERAY, ids=lambda p: p.stem)
def test_kuberay_files_are_of_one_version_and_closed(path: Path) -> None:
    document = load(path)
    assert document["apiVersion"] == "ray.io/v1"
    kind, spec = document["kind"], document["spec"]
    assert kind in ("RayCluster", "RayJob")
    if kind == "RayJob":
        assert "--or-resume" in spec["entrypoint"]  # it may be run more than once
        spec = spec["rayClusterSpec"]
    assert spec["rayVersion"] == RAY
    assert spec["authOptions"] == {"mode": "token", "secretName": "lamps-ray"}
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        assert set(group) <= {
            "groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template",
        }  # fmt: skip
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"].endswith(f":{RAY}")
        assert container["resources"]["requests"] == container["resources"]["limits"]
    for word in ("password:", "token:", "value: postgres"):
        assert word not in path.read_text().replace("mode: token:", "")


def test_the_slurm_script_is_bash_and_safe_to_requeue() -> None:
    path = ROOT / "slurm" / "search.sbatch"
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    assert "#SBATCH --requeue" in text
    assert "--or-resume" in text
    assert "RAY_AUTH_MODE=token" in text


def test_prometheus_scrapes_what_ray_announces() -> None:
    path = ROOT / "prometheus" / "prometheus.yml"
    (job,) = load(path)["scrape_configs"]
    assert job["file_sd_configs"][0]["files"] == ["/tmp/ray/prom_metrics_service_discovery.json"]
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "config", str(path)], check=True, capture_output=True)


def board() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "grafana" / "lamps.json").read_text())
    return document


def test_the_board_shows_every_metric_and_no_other() -> None:
    asked = " ".join(t["expr"] for p in board()["panels"] for t in p["targets"])
    names = set(re.findall(r"ray_(lamps_\w+)", asked))
    assert names == {*GAUGES, *COUNTERS}
    for name in names:
        by = re.findall(rf"by \(([^)]*)\) \([^()]*(?:\([^()]*)?ray_{name}", asked)
        known = {"run", TAGS.get(name, "run")}
        assert all(set(tags.split(", ")) <= known for tags in by), name


def test_the_board_lays_its_panels_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [p["id"] for p in board()["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board()["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
