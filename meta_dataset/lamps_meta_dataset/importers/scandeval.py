"""ScandEval's Germanic leaderboard: scores, size and speed of 137 models, without curves.

Source: ScandEval/leaderboards, as long CSV with a row per model and data set. One table of a
single fidelity per data set with the objectives ``score`` (maximised), ``speed`` (maximised,
tokens a second) and ``params``. Seconds are modelled from the measured speed.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from lamps.tables import Imported, Importer
from lamps_meta_dataset.importers._scores import Score, one_fidelity
from lamps_meta_dataset.importers._shared import csv_rows, locate, number, snake

FILE = "germanic_nlu_long.csv"
TOKENS = 100_000
_ABOUT = {
    "family": "scandeval",
    "source": f"ScandEval/leaderboards germanic_nlu; cost modelled: {TOKENS} tokens at the "
    "measured speed",
    "licence": "MIT",
}


def read_scandeval(path: Path) -> Imported:
    """One table a data set."""
    file = locate(path, FILE)
    problems: dict[str, list[Score]] = defaultdict(list)
    for line, row in csv_rows(file, ("model", "parameters_M", "speed", "dataset", "primary")):
        millions, speed = number(row["parameters_M"]), number(row["speed"])
        problems[f"scandeval/{snake(row['dataset'])}"].append(
            Score(
                line=line,
                model=row["model"],
                params=None if millions is None else millions * 1e6,
                values={
                    "score:maximize:percent": number(row["primary"]),
                    "speed:maximize:tokens/s": speed or None,
                },
                seconds=TOKENS / speed if speed else None,
            )
        )
    return one_fidelity(problems, _ABOUT, file.name)


IMPORTERS = {
    "scandeval": Importer(
        summary="ScandEval: scores, speed and size of 137 models on 34 data sets, one fidelity",
        expects=FILE,
        read=read_scandeval,
    ),
}
