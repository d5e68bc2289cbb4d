"""Overhead per landmark with a method that does nothing: lamps on Ray beside Ray Tune.

The same work on both sides: 125 candidates of 8 landmarks each, two at a time, a result and a
checkpoint after every landmark, state saved so that the search can be resumed. Ray Tune is
measured as it comes, with an actor for each trial, and with actors that are reused. Ray is started
once; its start is not counted.
"""

from __future__ import annotations

import json
import os
import statistics
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


def tune_seconds(folder: Path, repetition: int, reuse: bool) -> float:
    """The same number of reports and checkpoints through Ray Tune."""
    from ray import tune

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = tune.Tuner(
            tune.with_resources(_trainable, {"cpu": 1}),
            param_space={"c": tune.grid_search(list(range(CANDIDATES)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=2, reuse_actors=reuse),
            run_config=tune.RunConfig(
                name=f"tune{repetition}-{reuse}",
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
    """Runs in turn: ours, Ray Tune with reused actors; and once Ray Tune as it comes."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    backend = RayBackend(2)
    backend.connect()
    ours, reused = [], []
    try:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            _curves(folder / "curves.csv")
            for repetition in range(3):
                ours.append(lamps_seconds(folder, repetition))
                reused.append(tune_seconds(folder, repetition, True))
            plain = [tune_seconds(folder, 0, False)]
    finally:
        backend.close()
    n = CANDIDATES * LANDMARKS
    note = ", ".join(
        f"{name} {1e3 * statistics.median(seconds) / n:.1f} ms"
        for name, seconds in (("lamps", ours), ("Tune", plain), ("Tune reused", reused))
    )
    return [
        figure(
            "overhead per landmark, lamps / Ray Tune as it comes",
            [a / b for a in ours for b in plain],
            "x",
            0.2,
            note=note,
        ),
        figure(
            "overhead per landmark, lamps / Ray Tune with reused actors",
            [a / b for a, b in zip(ours, reused, strict=True)],
            "x",
            0.2,
        ),
    ]
