"""Benchmark scores of the Pythia suite at 27 checkpoints of pre-training, zero-shot.

Source: EleutherAI/pythia, ``evals/pythia-v1``, as long CSV with the columns model, params, shots,
task, metric, step, value.

One table a task; candidates are the 16 models, objectives ``error`` (1 - accuracy), ``params``
and, where it was measured, ``ppl``. A step is 2,097,152 tokens. Seconds are modelled.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from lamps.tables import Imported, Importer
from lamps_meta_dataset.importers._shared import (
    MODELLED,
    LongRows,
    csv_rows,
    evaluation_s,
    locate,
    number,
    training_s,
)

TOKENS_PER_STEP = 1024 * 2048
FILES = ("pythia_v1_curves.csv", "pythia_v1_curves.csv.gz")
MMLU_FILES = ("pythia_v1_mmlu_curves.csv.gz", "pythia_v1_mmlu_curves.csv")
_NEEDED = ("model", "params", "shots", "task", "metric", "step", "value")
_METRICS = ("acc", "ppl")


def _read(path: Path, files: tuple[str, ...], family: str) -> Imported:
    found: dict[tuple[str, str], dict[int, dict[str, str]]] = defaultdict(dict)
    params: dict[str, float] = {}
    first_line: dict[tuple[str, str, int], int] = {}
    file = locate(path, *files)
    notes = 0
    for line, row in csv_rows(file, _NEEDED):
        step, size = number(row["step"]), number(row["params"])
        if row["shots"] != "0" or row["metric"] not in _METRICS:
            continue
        if step is None or size is None:
            notes += 1
            continue
        params[row["model"]] = size
        key = (row["task"], row["model"])
        found[key].setdefault(int(step), {})[row["metric"]] = row["value"]
        first_line.setdefault((*key, int(step)), line)
    rows = LongRows()
    for (task, model), steps in found.items():
        for done, step in enumerate(sorted(steps), start=1):
            size, cells = params[model], steps[step]
            accuracy = number(cells.get("acc"))
            trained = training_s(size, step * TOKENS_PER_STEP)
            rows.add(
                first_line[task, model, step],
                problem=f"{family}/{task.removeprefix('hendrycksTest-')}",
                candidate=model,
                fidelity=step,
                elapsed_s=trained + done * evaluation_s(size),
                size=size,
                unit="steps",
                **{
                    "error:minimize:share": None if accuracy is None else 1.0 - accuracy,
                    "ppl:minimize:1": cells.get("ppl"),
                    "params:minimize:1": size,
                },
            )
    about = {
        "family": family,
        "source": f"EleutherAI/pythia evals/pythia-v1, zero-shot, params published; {MODELLED}",
        "licence": "Apache-2.0",
    }
    imported = rows.imported(family, about)
    if notes:
        imported.notes.append(f"{file.name}: {notes} rows without step or params left out")
    return imported


def read_pythia(path: Path) -> Imported:
    """Eight zero-shot tasks."""
    return _read(path, FILES, "pythia")


def read_pythia_mmlu(path: Path) -> Imported:
    """The 57 tasks of MMLU, zero-shot."""
    return _read(path, MMLU_FILES, "pythia-mmlu")


IMPORTERS = {
    "pythia": Importer(
        summary="Pythia checkpoints on eight zero-shot tasks: 16 models x 27 checkpoints",
        expects=FILES[0],
        read=read_pythia,
    ),
    "pythia-mmlu": Importer(
        summary="Pythia checkpoints on the 57 tasks of MMLU: 16 models x 27 checkpoints",
        expects=MMLU_FILES[0],
        read=read_pythia_mmlu,
    ),
}
