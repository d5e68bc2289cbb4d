"""Final scores of many fine-tuned models on many data sets, without curves.

Source: plasware/two-phase-selection. ``matrix.txt`` has model names in its first line and a line
of scores per data set, ``datasets.txt`` beside it names these.

One table of a single fidelity per data set, with the objective ``score`` (maximised). Nothing is
known about size or time, so each candidate counts as one second.
"""

from __future__ import annotations

from pathlib import Path

from lamps.errors import ProblemError
from lamps.tables import BadRow, Imported, Importer
from lamps_meta_dataset.importers._shared import LongRows, merged, number

_SOURCE = "plasware/two-phase-selection; no time recorded, each candidate counts as one second"


def read_matrix(path: Path) -> Imported:
    """All matrices below a folder.

    Raises:
        ProblemError: There is none, or its data sets are not named.
    """
    files = [path] if path.is_file() else sorted(path.rglob("matrix.txt"))
    if not files:
        raise ProblemError(f"{str(path)!r} has no matrix.txt; name the folder that holds it")
    return merged([_matrix(file) for file in files])


def _matrix(file: Path) -> Imported:
    try:
        header, *lines = file.read_text(encoding="utf-8").splitlines()
        names = (file.parent / "datasets.txt").read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        raise ProblemError(f"{file} cannot be read with its datasets.txt: {error}") from error
    models = [name.replace("--", "/") for name in header.split("\t")]
    lines = [line for line in lines if line.strip()]
    if len(lines) != len(names):
        raise ProblemError(
            f"{file} has {len(lines)} lines of scores, its datasets.txt names {len(names)} data "
            "sets; they must agree"
        )
    domain = file.parent.name.lower()
    rows, bad = LongRows(), []
    for at, (name, line) in enumerate(zip(names, lines, strict=True), start=2):
        cells = line.split("\t")
        problem = f"matrix-{domain}/{name.replace('/', '_')}"
        if len(cells) != len(models):
            reason = f"{len(cells)} scores, the header has {len(models)} models"
            bad.append(BadRow(at, problem, "", reason, file.name))
            continue
        for model, cell in zip(models, cells, strict=True):
            score = number(cell)
            if score is None:
                reason = f"score is {cell!r}, expected a number"
                bad.append(BadRow(at, problem, model, reason, file.name))
                continue
            rows.add(
                at,
                problem=problem,
                candidate=model,
                fidelity=1.0,
                elapsed_s=1.0,
                **{"score:maximize:1": score},
            )
    about = {"family": f"matrix-{domain}", "source": _SOURCE, "licence": "MIT"}
    imported = rows.imported(domain, about)
    imported.bad.extend(bad)
    return merged([imported], file.name)


IMPORTERS = {
    "matrix": Importer(
        summary="final scores of fine-tuned models: 39 x 21 text sets, 30 x 6 image sets",
        expects="matrix.txt and datasets.txt",
        read=read_matrix,
    ),
}
