"""Overhead per landmark with a method that does nothing: lamps on Ray beside Ray Tune.

The same work on both sides: 125 candidates of 8 landmarks each, two at a time, a result and a
checkpoint after every landmark, state saved so that the search can be resumed. Ray is started
once; its start is not counted.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from bench_table import Figure, figure

import lamps
from lamps.scheduler.ray import RayBackend

CANDIDATES, LANDMARKS = 125, 8


def _curves(path: Path) -> None:
    rows = ["candidate,fidelity,elapsed_s,size,error,mb"]
    for c in range(CANDIDATES):
        rows += [
            f"c{c},{k / (LANDMARKS - 1)},0,{c},{1 / (1 + c + k)},{c}" for k in range(LANDMARKS)
        ]
    path.write_text("\n".join(rows) + "\n")


def lamps_seconds(folder: Path, repetition: int) -> float:
    """All landmarks of all candidates through the Ray backend and SQLite."""
    start = time.perf_counter()
    run = lamps.search(
        problem=f"replay:{folder / 'curves.csv'}",
        policy="exhaustive",
        workers=2,
        store=f"sqlite:///{folder}/lamps.db",
        name=f"r{repetition}",
    )
    seconds = time.perf_counter() - start
    assert run.record.n_evaluations == CANDIDATES * LANDMARKS
    return seconds


def _trainable(config: dict[str, Any]) -> None:
    from ray import tune

    for k in range(LANDMARKS):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"level": k}))
            tune.report(
                {"error": 1 / (1 + config["c"] + k), "mb": config["c"]},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


def tune_seconds(folder: Path, repetition: int) -> float:
    """The same number of reports and checkpoints through Ray Tune."""
    from ray import tune

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = tune.Tuner(
            tune.with_resources(_trainable, {"cpu": 1}),
            param_space={"c": tune.grid_search(list(range(CANDIDATES)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=2, reuse_actors=False),
            run_config=tune.RunConfig(
                name=f"tune{repetition}",
                storage_path=str(folder / "tune"),
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            ),
        )
        start = time.perf_counter()
        results = tuner.fit()
        seconds = time.perf_counter() - start
    assert len(results) == CANDIDATES
    assert not results.num_errors
    return seconds


def measure() -> list[Figure]:
    """Three pairs of runs in turn."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    backend = RayBackend(2)
    backend.connect()
    ours, theirs = [], []
    try:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            _curves(folder / "curves.csv")
            for repetition in range(3):
                ours.append(lamps_seconds(folder, repetition))
                theirs.append(tune_seconds(folder, repetition))
    finally:
        backend.close()
    n = CANDIDATES * LANDMARKS
    return [
        figure(
            "overhead per landmark, 2 workers",
            [1e3 * s / n for s in ours],
            "ms",
            1e9,
            note="for the ratio below",
        ),
        figure(
            "the same in Ray Tune",
            [1e3 * s / n for s in theirs],
            "ms",
            1e9,
            note="for the ratio below",
        ),
        figure(
            "ratio lamps / Ray Tune", [a / b for a, b in zip(ours, theirs, strict=True)], "x", 0.2
        ),
    ]
