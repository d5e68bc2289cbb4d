"""The Gemstones: 22 language models of different width and depth along their pre-training.

Source: mcleish7/gemstone-scaling-laws. ``light_eval.csv`` has nine benchmarks at 35 checkpoints,
the ``*.jsonl`` files have losses and the real seconds of a step on the nodes that were used.

Seconds are node-seconds: recorded seconds per step x nodes x steps. Losses at 175 points are
thinned to points that are spaced evenly on a log scale; the cost of what is between stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps.tables import Imported, Importer
from lamps_meta_dataset.importers._shared import LongRows, csv_rows, locate, merged, number, snake

BENCHMARKS = "light_eval.csv"
HOT = "wandb_df_for_fitting_hot_100b+_477.jsonl"
LOSSES = {
    "pretraining": HOT,
    "pretraining_low_lr": "wandb_df_for_fitting_lr_ablation_hot_477.jsonl",
    "cooled_down": "wandb_df_for_fitting_cool_end.jsonl",
    "fineweb_edu": "fineweb_edu_losses_combined.jsonl",
    "fineweb_dclm": "fineweb_dclm_losses_combined.jsonl",
}
LAST_STEP = 83_475
THINNED = 28
_NAME = re.compile(r"Gemstone-(\d+x\d+)-(?:step_(\d+)|main)$")
_SHAPE = re.compile(r"(\d+)x(\d+)")
_ABOUT = {
    "family": "gemstones",
    "licence": "MIT",
}
_SECONDS = "cost: recorded seconds per step x nodes x steps (node-seconds)"


def _jsonl(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with file.open(encoding="utf-8") as handle:
            for line, text in enumerate(handle, start=1):
                if text.strip():
                    yield line, json.loads(text)
    except (OSError, ValueError) as error:
        raise ProblemError(f"{file} cannot be read as JSON lines: {error}") from error


def _shape(run_name: str) -> str:
    match = _SHAPE.search(run_name)
    return match.group() if match else run_name


def _models(path: Path) -> dict[str, tuple[float, float]]:
    """Params, and node-seconds of a step, by ``WIDTHxDEPTH``."""
    folder = path if path.is_dir() else path.parent
    return {
        _shape(row["run_name"]): (
            float(row["params_active_precise"]),
            float(row["seconds_per_step"]) * float(row["num_nodes"]),
        )
        for _, row in _jsonl(locate(folder, HOT))
        if row.get("seconds_per_step") and row.get("num_nodes")
    }


def read_gemstones(path: Path) -> Imported:
    """Nine benchmarks at 35 checkpoints."""
    file = locate(path, BENCHMARKS)
    models = _models(path)
    rows, notes = LongRows(), 0
    for line, row in csv_rows(file, ("checkpoint",)):
        match = _NAME.match(row["checkpoint"])
        if match is None or match[1] not in models:
            notes += 1
            continue
        size, step_s = models[match[1]]
        step = int(match[2]) if match[2] else LAST_STEP
        for name, cell in row.items():
            accuracy = number(cell)
            if name == "checkpoint" or accuracy is None:
                continue
            rows.add(
                line,
                problem=f"gemstones/{snake(name)}",
                candidate=f"Gemstone-{match[1]}",
                fidelity=step,
                elapsed_s=step * step_s,
                size=size,
                unit="steps",
                **{"error:minimize:share": 1.0 - accuracy, "params:minimize:1": size},
            )
    source = f"mcleish7/gemstone-scaling-laws, {BENCHMARKS}; {_SECONDS}"
    imported = rows.imported("gemstones", {**_ABOUT, "source": source})
    if notes:
        imported.notes.append(f"{file.name}: {notes} checkpoints of unknown models left out")
    return imported


def read_gemstone_losses(path: Path) -> Imported:
    """Losses along pre-training, at a lower learning rate, cooled down, and on other texts."""
    models = _models(path)
    parts = [
        _losses(path / name if path.is_dir() else path, table, models)
        for table, name in LOSSES.items()
        if (path / name).is_file() or path.name == name
    ]
    return merged(parts)


def _losses(file: Path, table: str, models: dict[str, tuple[float, float]]) -> Imported:
    found = [(line, row) for line, row in _jsonl(file) if _shape(row["run_name"]) in models]
    # Cooled-down runs end at slightly different steps for the same share of the tokens.
    fidelity = "tokens" if table == "cooled_down" else "step"
    kept = _thin(sorted({_position(row, fidelity) for _, row in found}))
    rows = LongRows()
    for line, row in found:
        if _position(row, fidelity) not in kept:
            continue
        size, step_s = models[_shape(row["run_name"])]
        rows.add(
            line,
            problem=f"gemstones-loss/{table}",
            candidate=f"Gemstone-{_shape(row['run_name'])}",
            fidelity=_position(row, fidelity),
            elapsed_s=row["step"] * step_s,
            size=size,
            unit="billion tokens" if fidelity == "tokens" else "steps",
            **{"loss:minimize:nats": row["final_loss"], "params:minimize:1": size},
        )
    thinned = f", thinned to {len(kept)} points" if len(kept) == THINNED else ""
    source = f"mcleish7/gemstone-scaling-laws, {file.name}{thinned}; {_SECONDS}"
    imported = rows.imported(table, {**_ABOUT, "family": "gemstones-loss", "source": source})
    return merged([imported], file.name)


def _position(row: dict[str, Any], fidelity: str) -> float:
    return float(round(row["tokens"] / 1e9) if fidelity == "tokens" else row["step"])


def _thin(levels: list[float]) -> set[float]:
    if len(levels) <= 2 * THINNED:
        return set(levels)
    # Evenly on a log scale; where that would name a point twice, the next one.
    chosen: list[int] = []
    for place in np.geomspace(1, len(levels), THINNED):
        at = round(float(place)) - 1
        chosen.append(max(at, chosen[-1] + 1) if chosen else at)
    return {levels[min(at, len(levels) - 1)] for at in chosen}


IMPORTERS = {
    "gemstones": Importer(
        summary="Gemstones on nine benchmarks: 22 models x 35 checkpoints, real node-seconds",
        expects=f"{BENCHMARKS} and {HOT}",
        read=read_gemstones,
    ),
    "gemstones-loss": Importer(
        summary="losses of the Gemstones along pre-training: 22 models, real node-seconds",
        expects=", ".join(LOSSES.values()),
        read=read_gemstone_losses,
    ),
}
