"""Searches of the fair and the image family from a user's files to new rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from lamps_plugins._views.metrics import accuracy
from lamps_plugins.fair_multi_view_clustering._refused import written as fair_files
from lamps_plugins.image_clustering._refused import written as image_files

import lamps
from lamps.cli.main import cli


def search(folder: Path, family: str, options: dict[str, Any], *methods: str) -> lamps.Run:
    return lamps.search(
        None,
        problem=family,
        methods=methods,
        backend="local",
        store=f"sqlite:///{folder}/s.db",
        artifacts=str(folder / "artifacts"),
        name="mine",
        **options,
    )


def predicted(member: Path, **arrays: np.ndarray) -> list[dict[str, Any]]:
    """Answers of ``lamps predict`` for new rows."""
    file = member.parent / "new.npz"
    np.savez(file, **arrays)
    done = CliRunner().invoke(cli, ["predict", str(member), str(file), "--nl"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def values(path: Path) -> np.ndarray:
    with np.load(path) as loaded:
        return np.asarray(loaded["values"])


def test_a_users_groups_give_a_front_of_utility_and_fairness(tmp_path: Path) -> None:
    options = fair_files(tmp_path)
    methods = ("blind-kmeans", "group-standardised-kmeans", "cdal")
    with search(tmp_path, "fair-multi-view-clustering", options, *methods) as run:
        front = run.front("val_loss", "val_unfairness")
        assert front
        for member in front:
            assert 0.0 <= member.values["val_unfairness"] <= 1.0
            assert {"test_error", "test_unfairness", "test_imbalance"} <= set(member.test)
        fairest = min(front, key=lambda m: m.values["val_unfairness"])
        assert "blind" not in fairest.label
        out = run.export(fairest.index, tmp_path / "member")
    with np.load(out / "clusters.npz") as kept:
        labels = np.empty(60, dtype=np.int64)
        labels[kept["rows"]] = kept["labels"]
    assert accuracy(values(tmp_path / "labels.npz"), labels) > 0.8
    rows = predicted(out, left=values(tmp_path / "left.npz"), right=values(tmp_path / "right.npz"))
    assert len(rows) == 60
    assert {row["cluster"] for row in rows} <= {0, 1, 2}


def test_images_learn_from_texts_and_answer_without(tmp_path: Path) -> None:
    options = image_files(tmp_path)
    with search(tmp_path, "image-clustering", options, "joint-kmeans", "magic") as run:
        assert run.front("val_loss", "train_s")
        for member in run.front("val_loss", "train_s"):
            out = run.export(member.index, tmp_path / f"member-{member.index}")
            with np.load(out / "clusters.npz") as kept:
                labels = np.empty(90, dtype=np.int64)
                labels[kept["rows"]] = kept["labels"]
            image = values(tmp_path / "image.npz")
            # Their length must not matter: angles do.
            rows = predicted(out, image=image * np.arange(1, 91)[:, None])
            found = np.array([row["cluster"] for row in rows])
            assert accuracy(labels, found) > 0.6
