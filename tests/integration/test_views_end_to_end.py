"""From a user's files to labels of new rows, and a search that cannot see the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from lamps_plugins._views.metrics import accuracy
from lamps_plugins._views.toy import toy_views
from lamps_plugins.multi_view_clustering._refused import written

import lamps
from lamps.cli.main import cli

METHODS = ("concat-kmeans", "lmvsc", "can-anchors", "pca-gmm")


def holes(good: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for row in range(0, 60, 2):
        good["mask"][row, rng.integers(3)] = False
    for v in range(3):
        good[f"view{v}"][~good["mask"][:, v]] = np.nan


def files(folder: Path, seed: int | None = None) -> dict[str, Any]:
    """A user's files of the toy; with the labels in another order where there is a seed."""

    def edit(good: dict[str, Any]) -> None:
        holes(good)
        if seed is not None:
            good["labels"] = np.random.default_rng(seed).permutation(good["labels"])

    folder.mkdir()
    return written(folder, edit)


def search(folder: Path, options: dict[str, Any]) -> lamps.Run:
    return lamps.search(
        None,
        problem="multi-view-clustering",
        methods=METHODS,
        samples=2,
        backend="local",
        policy="mo-successive-halving",
        objectives=["val_loss"],
        store=f"sqlite:///{folder}/s.db",
        artifacts=str(folder / "artifacts"),
        seed=4,
        name="r",
        **options,
    )


def told(run: lamps.Run) -> dict[str, Any]:
    """All that a search decided and measured, its times and test scores aside."""
    return {
        "decisions": [(d.trial_index, d.landmark) for d in run.decisions()],
        "front": [(m.index, m.label) for m in run.front()],
        "losses": [[e.values.get("val_loss") for e in t.evaluations] for t in run.trials()],
        "signals": [[sorted(e.signals.items()) for e in t.evaluations] for t in run.trials()],
    }


def test_a_search_is_blind_to_truth(tmp_path: Path) -> None:
    """Decisions, landmarks and front are the same whatever the labels say; test scores are not."""
    stories, errors = [], []
    for name, seed in (("real", None), ("permuted", 3)):
        with search(tmp_path / name, files(tmp_path / name, seed)) as run:
            stories.append(told(run))
            errors.append([m.test["test_error"] for m in run.front()])
    assert stories[0]["front"]
    assert stories[0] == stories[1]
    assert max(errors[0]) < 0.2 < min(errors[1])


def test_a_search_that_is_shown_labels_is_not(tmp_path: Path) -> None:
    stories = []
    for name, seed in (("real", None), ("permuted", 3)):
        options = files(tmp_path / name, seed) | {"track": "labelled"}
        with search(tmp_path / name, options) as run:
            stories.append(told(run))
    assert stories[0]["losses"] != stories[1]["losses"]


def test_the_command_line_from_files_to_new_rows(tmp_path: Path) -> None:
    options = files(tmp_path / "data")
    store = f"sqlite:///{tmp_path}/s.db"
    given = [f"--view={path}" for path in options["view"]]
    runner = CliRunner()
    searched = runner.invoke(
        cli,
        [
            "search", "--problem", "multi-view-clustering", *given, "--mask", options["mask"],
            "--clusters", "3", "--labels", options["labels"], "--method", "pca-gmm",
            "--backend", "local", "--store", store, "--artifacts", str(tmp_path / "a"),
            "--name", "mine", "--json", "-q",
        ],
        catch_exceptions=False,
    )  # fmt: skip
    assert searched.exit_code == 0, searched.output
    member = json.loads(searched.stdout)["front"]["members"][0]
    assert member["test"]["test_error"] < 0.2
    out = tmp_path / "member"
    exported = runner.invoke(
        cli, ["export", "mine", str(member["index"]), str(out), "--store", store]
    )
    assert exported.exit_code == 0, exported.output
    with np.load(out / "clusters.npz") as kept:
        assert kept["labels"].shape == (60,)
        assert kept["soft"].shape == (60, 3)
        assert len(kept["embedding"]) == 60
        labels = np.empty(60, dtype=np.int64)
        labels[kept["rows"]] = kept["labels"]
    data, truth = toy_views(0, n=60)
    new = {name: array.copy() for name, array in zip(data.names, data.arrays, strict=True)}
    new["view0"][:5] = np.nan
    del new["view2"]
    np.savez(tmp_path / "new.npz", **new)
    answered = runner.invoke(cli, ["predict", str(out), str(tmp_path / "new.npz"), "--nl"])
    assert answered.exit_code == 0, answered.output
    rows = [json.loads(line) for line in answered.stdout.splitlines()]
    found = np.array([row["cluster"] for row in rows])
    assert accuracy(truth, labels) > 0.8
    assert accuracy(labels, found) > 0.8
    assert rows[0]["shares"].keys() == {"0", "1", "2"}
    assert sum(rows[0]["shares"].values()) == pytest.approx(1.0, abs=1e-5)


def test_new_rows_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    options = files(tmp_path / "data")
    with search(tmp_path / "data", options) as run:
        member = run.front()[0]
        out = run.export(member.index, tmp_path / "member")
    data, _ = toy_views(0, n=6)
    good = dict(zip(data.names, data.arrays, strict=True))
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "unknown": (good | {"view9": data.arrays[0]}, "view9"),
        "narrow": (good | {"view0": data.arrays[0][:, :2]}, "[6, 2]"),
        "short": (good | {"view1": data.arrays[1][:4]}, "[4, 9]"),
        "empty": (good | {"mask": np.zeros((6, 3), bool)}, "row 0"),
        "mask": (good | {"mask": np.ones((6, 2), bool)}, "[6, 2]"),
        "nan": (good | {"view0": np.where(np.eye(6, 6) > 0, np.nan, data.arrays[0])}, "row 0"),
    }
    for name, (arrays, culprit) in bad.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        answered = CliRunner().invoke(cli, ["predict", str(out), str(tmp_path / f"{name}.npz")])
        assert answered.exit_code != 0
        assert culprit in str(answered.exception), (name, answered.exception)
        assert "\n" not in str(answered.exception)
