"""From a CSV to an exported classifier in another process, through the public API and command."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lamps_plugins.text_classification._problem import FAMILY

import lamps
from lamps.types import Budget

NAMES = {0: "Küche", 1: "球技", 2: "a trip"}
STABLE = ("val_error", "val_logloss", "val_macro_f1_error", "size_bytes", "params")


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """The toy sentences as a CSV with labels beyond ASCII."""
    toy = FAMILY.toy_problem(seed=1)
    path = tmp_path / "reviews.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("number", "sentence", "topic"))
        number = 0
        for split in ("train", "val", "test"):
            for text, target in zip(toy.texts(split), toy.targets(split), strict=True):  # type: ignore[arg-type]
                writer.writerow((number, text, NAMES[int(target)]))
                number += 1
    return path


def search(reviews: Path, store: str, encoder: str, **more: Any) -> lamps.Run:
    options: dict[str, Any] = {
        "target": "topic",
        "methods": ["tfidf-logreg", "lora", "full-finetune"],
        "models": [encoder],
        "params": {"lora": {"epochs": 2}, "full-finetune": {"epochs": 2}},
        "max_length": 24,
        "backend": "local",
        "store": store,
        "name": "r",
    }
    return lamps.search(reviews, **(options | more))


def test_front_has_test_scores_and_the_floor(reviews: Path, store_url: str, encoder: str) -> None:
    run = search(reviews, store_url, encoder)
    front = run.front()
    assert {m.candidate.method for m in run.members()} >= {"tfidf-logreg"}
    for member in front:
        assert member.test["test_error_low"] <= member.test["test_error"]
        assert member.test["test_error"] <= member.test["test_error_high"]
        assert member.test["floor_test_error"] > 0.5
    best = front.pick("val_error")
    assert best.values["val_error"] < 0.34


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_cluster")
def test_ray_gives_the_numbers_of_local(reviews: Path, tmp_path: Path, encoder: str) -> None:
    found = []
    for backend in ("local", "ray"):
        store = f"sqlite:///{tmp_path}/{backend}.db"
        run = search(reviews, store, encoder, backend=backend, policy="exhaustive")
        found.append([[e.values[n] for n in STABLE] for t in run.trials() for e in t.evaluations])
    assert found[0] == found[1]


def test_stop_and_resume_gives_the_same_numbers(
    reviews: Path, tmp_path: Path, encoder: str
) -> None:
    whole = search(reviews, f"sqlite:///{tmp_path}/whole.db", encoder, policy="round-robin")
    store = f"sqlite:///{tmp_path}/parts.db"
    parts = search(reviews, store, encoder, policy="round-robin", budget=Budget(landmarks=5))
    while parts.record.state == "exhausted":
        bound = parts.record.n_decisions + 3
        parts = lamps.resume("r", store=store, budget=Budget(landmarks=bound))
    for one, other in zip(whole.trials(), parts.trials(), strict=True):
        assert one.state == other.state == "complete"
        for a, b in zip(one.evaluations, other.evaluations, strict=True):
            assert [a.values[n] for n in STABLE] == [b.values[n] for n in STABLE]


def test_exported_member_works_without_lamps(
    reviews: Path, store_url: str, encoder: str, tmp_path: Path
) -> None:
    run = search(reviews, store_url, encoder, methods=["lora"], params={"lora": {"epochs": 3}})
    folder = run.export(0, tmp_path / "member")
    card = json.loads((folder / "lamps.json").read_text(encoding="utf-8"))
    assert card["labels"] == sorted(NAMES.values())
    assert card["provenance"]["problem_sha256"] == run.record.problem_fingerprint
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert f"test_error {run.front()[0].test['test_error']:.4g}" in readme
    texts = ["the oven and the dough", "the referee and the match", "a hotel on the island"]
    script = (
        "import json, sys; from transformers import pipeline\n"
        "p = pipeline('text-classification', sys.argv[1], truncation=True)\n"
        "print(json.dumps([[r['label'], r['score']] for r in p(json.loads(sys.argv[2]))]))"
    )
    plain = subprocess.run(
        [sys.executable, "-c", script, str(folder), json.dumps(texts)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    rows = tmp_path / "rows.csv"
    with rows.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("topic", "sentence"), *(("?", t) for t in texts)])
    ours = subprocess.run(
        [sys.executable, "-m", "lamps", "predict", str(folder), str(rows), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [(r["label"], r["score"]) for r in json.loads(ours.stdout)]
    assert [a[0] for a in answers] == [p[0] for p in json.loads(plain.stdout)]
    assert [a[1] for a in answers] == pytest.approx(
        [p[1] for p in json.loads(plain.stdout)], abs=1e-5
    )
