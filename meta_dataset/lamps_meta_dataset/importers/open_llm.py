"""The Open LLM Leaderboard, versions 1 and 2, without curves.

Source: felipemaiapolo/sloth, ``data``. One table of a single fidelity per benchmark with the
objectives ``score`` (maximised) and ``params``. Seconds are modelled.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from lamps.errors import ProblemError
from lamps.tables import Imported, Importer
from lamps_meta_dataset.importers._scores import Score, one_fidelity
from lamps_meta_dataset.importers._shared import ONE_EVALUATION, csv_rows, merged, number, snake

FILES = {"sloth": "data_v2.csv", "submitted": "open-llm-leaderboard_new.csv"}
_SIZE = "#Params (B)"
_BENCHMARKS = (
    "IFEval", "BBH", "MATH Lvl 5", "GPQA", "MUSR", "MMLU-PRO",
    "ARC", "HellaSwag", "MMLU", "TruthfulQA", "Winogrande", "GSM8K", "XWinograd", "HumanEval",
)  # fmt: skip


def read_open_llm(path: Path) -> Imported:
    """All benchmarks of the two files that are there.

    Raises:
        ProblemError: None of the files is there.
    """
    files = {n: path / f for n, f in FILES.items() if (path / f).is_file()}
    if path.is_file():
        files = {n: path for n, f in FILES.items() if f == path.name}
    if not files:
        raise ProblemError(f"{str(path)!r} has none of {', '.join(FILES.values())}")
    return merged([_file(name, file) for name, file in files.items()])


def _file(name: str, file: Path) -> Imported:
    problems: dict[str, list[Score]] = defaultdict(list)
    for line, row in csv_rows(file, ("Model", _SIZE)):
        billions = number(row[_SIZE])
        params = billions * 1e9 if billions and billions > 0 else None
        for benchmark in _BENCHMARKS:
            if benchmark in row:
                values = {"score:maximize:1": number(row[benchmark])}
                score = Score(line=line, model=row["Model"], params=params, values=values)
                problems[f"open-llm-{name}/{snake(benchmark)}"].append(score)
    about = {
        "family": f"open-llm-{name}",
        "source": f"felipemaiapolo/sloth data/{file.name}; {ONE_EVALUATION}",
        "licence": "MIT",
    }
    return one_fidelity(problems, about, file.name)


IMPORTERS = {
    "open-llm": Importer(
        summary="Open LLM Leaderboard: scores and sizes, one fidelity",
        expects=", ".join(FILES.values()),
        read=read_open_llm,
    ),
}
