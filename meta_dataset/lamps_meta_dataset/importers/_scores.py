"""One-fidelity tables from a leaderboard: per benchmark, the models that have size and score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamps.tables import Imported
from lamps_meta_dataset.importers._shared import LongRows, evaluation_s, merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One cell of a leaderboard.

    Args:
        line: Where it stands.
        model: Name of the model.
        params: Number of weights; None if unknown.
        values: Value by objective header; None if empty.
        seconds: What measuring it took; modelled from ``params`` if None.
    """

    line: int
    model: str
    params: float | None
    values: Mapping[str, float | None]
    seconds: float | None = None


def one_fidelity(
    problems: Mapping[str, Sequence[Score]], about: Mapping[str, str], file: str
) -> Imported:
    """A table per problem; a model without size or with an empty value is left out and counted.

    Args:
        problems: Scores by name of the table. One with fewer than two usable models is dropped.
        about: Family, source and licence of all tables.
        file: Name of the file, for bad rows.
    """
    parts: list[Imported] = []
    notes: list[str] = []
    for problem, scores in problems.items():
        usable = [s for s in scores if s.params and None not in s.values.values()]
        left_out = len(scores) - len(usable)
        if len({s.model for s in usable}) < 2:
            notes.append(f"{problem}: no table, {len(usable)} of {len(scores)} models are usable")
            continue
        rows = LongRows()
        for score in usable:
            cells: dict[str, Any] = {"params:minimize:1": score.params, **score.values}
            seconds = evaluation_s(score.params or 0.0) if score.seconds is None else score.seconds
            rows.add(
                score.line,
                problem=problem,
                candidate=score.model,
                fidelity=1.0,
                elapsed_s=seconds,
                size=score.params,
                **cells,
            )
        source = about["source"]
        if left_out:
            source += f"; {left_out} of {len(scores)} models without size or score left out"
            notes.append(f"{problem}: {left_out} of {len(scores)} models without size or score")
        parts.append(rows.imported(problem, {**about, "source": source}))
    found = merged(parts, file)
    found.notes.extend(notes)
    return found
