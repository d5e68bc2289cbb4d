"""Twelve recurrent text classifiers of Google's TaskSet, each with 1,000 optimiser settings.

Source: releaunifreiburg/DyHPO, ``data/taskset``, one CSV a task: config, eight hyperparameters,
``valid_0`` ... ``valid_50``, final losses.

A run that diverged has ``nan``; from there on every landmark is a failed one. Only validation
losses are read; the final test loss stays closed. Every landmark takes equally many steps, so
seconds are modelled: one a landmark, and 0.02 for each evaluation.
"""

from __future__ import annotations

from pathlib import Path

from lamps.errors import ProblemError
from lamps.tables import Imported, Importer
from lamps_meta_dataset.importers._shared import LongRows, csv_rows, merged

PATTERN = "imdb_*.csv.gz"
LANDMARKS = 51
EVALUATION_S = 0.02
_ABOUT = {
    "family": "taskset",
    "licence": "Apache-2.0",
    "source": (
        "releaunifreiburg/DyHPO data/taskset (Google TaskSet); cost modelled: 1 s a landmark, "
        "0.02 s an evaluation"
    ),
}


def read_taskset(path: Path) -> Imported:
    """One table a task.

    Raises:
        ProblemError: No file of a task is there.
    """
    files = [path] if path.is_file() else sorted([*path.glob(PATTERN), *path.glob("imdb_*.csv")])
    if not files:
        raise ProblemError(f"{str(path)!r} has no {PATTERN}; name a file, or the folder of them")
    return merged([_task(file) for file in files])


def _task(file: Path) -> Imported:
    columns = [f"valid_{k}" for k in range(LANDMARKS)]
    rows = LongRows()
    name = file.name.split(".")[0]
    for line, row in csv_rows(file, ("config", *columns)):
        diverged = False
        for k, column in enumerate(columns):
            diverged = diverged or row[column].strip().lower() in ("nan", "inf", "-inf")
            rows.add(
                line,
                problem=f"taskset/{name}",
                candidate=f"config-{row['config']}",
                fidelity=k,
                elapsed_s=k + (k + 1) * EVALUATION_S,
                unit="landmarks",
                state="failed" if diverged else "ok",
                **{"valid_loss:minimize:nats": "nan" if diverged else row[column]},
            )
    return merged([rows.imported(name, _ABOUT)], file.name)


IMPORTERS = {
    "taskset": Importer(
        summary="TaskSet text classifiers: 12 tasks x 1,000 optimiser settings x 51 landmarks",
        expects=PATTERN,
        read=read_taskset,
    ),
}
