"""Scores of base and instruction-tuned language models of many families, without curves.

Source: ryoungj/ObsScaling, ``eval_results``. One table of a single fidelity per benchmark with the
objectives ``score`` (maximised) and ``params``. Sizes come from the base table where a file has
none. Seconds are modelled.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from lamps.errors import ProblemError
from lamps.tables import Imported, Importer
from lamps_meta_dataset.importers._scores import Score, one_fidelity
from lamps_meta_dataset.importers._shared import (
    ONE_EVALUATION,
    csv_rows,
    locate,
    merged,
    number,
    snake,
)

BASE = "base_llm_benchmark_eval.csv"
FILES = {
    "base": BASE,
    "emergent": "base_llm_emergent_capability_eval.csv",
    "leaderboard_v2": "base_llm_leaderboard_v2_eval.csv",
    "instruct": "instruct_llm_benchmark_eval.csv",
}
_SIZE = "Model Size (B)"
_OTHER = ("Model", "Model Family", _SIZE, "Pretraining Data Size (T)", "FLOPs (1E21)")


def read_observational(path: Path) -> Imported:
    """All benchmarks of the four files that are there.

    Raises:
        ProblemError: None of the files is there.
    """
    folder = path if path.is_dir() else path.parent
    files = {n: folder / f for n, f in FILES.items() if (folder / f).is_file()}
    if path.is_file():
        files = {n: f for n, f in files.items() if f == path}
    if not files:
        raise ProblemError(f"{str(path)!r} has none of {', '.join(FILES.values())}")
    sizes = {r["Model"]: number(r[_SIZE]) for _, r in csv_rows(locate(folder, BASE), _OTHER[:3])}
    return merged([_file(name, file, sizes) for name, file in files.items()])


def _file(name: str, file: Path, sizes: dict[str, float | None]) -> Imported:
    problems: dict[str, list[Score]] = defaultdict(list)
    for line, row in csv_rows(file, ("Model",)):
        billions = number(row[_SIZE]) if _SIZE in row else sizes.get(row["Model"])
        params = None if billions is None else billions * 1e9
        for benchmark, cell in row.items():
            if benchmark not in _OTHER:
                values = {"score:maximize:1": number(cell)}
                score = Score(line=line, model=row["Model"], params=params, values=values)
                problems[f"observational-{name}/{snake(benchmark)}"].append(score)
    about = {
        "family": f"observational-{name}",
        "source": f"ryoungj/ObsScaling eval_results/{file.name}; {ONE_EVALUATION}",
        "licence": "Apache-2.0",
    }
    return one_fidelity(problems, about, file.name)


IMPORTERS = {
    "observational": Importer(
        summary="scores and sizes of base and instruction-tuned language models, one fidelity",
        expects=", ".join(FILES.values()),
        read=read_observational,
    ),
}
