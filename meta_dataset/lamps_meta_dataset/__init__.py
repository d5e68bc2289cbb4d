"""Landmark tables of past searches, from which allocation policies are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamps.tables import LandmarkTable

__all__ = ["other_tables", "tables"]


def tables(held_out: bool | None = None) -> list[LandmarkTable]:
    """The tables that we measured ourselves and ship.

    Args:
        held_out: Only tasks that are kept for the last evaluation (True) or all but those
            (False); None gives every table.

    Returns:
        One table a task, in the order in which they were measured.

    Raises:
        ProblemError: The file is damaged, or not there in a checkout where none was exported yet.
        MissingExtra: pyarrow is not installed.

    Example:
        >>> {t.family for t in tables(held_out=False)}
        {'text-classification'}
    """
    import json

    from lamps.tables import card_path, read_tables
    from lamps_meta_dataset.data import FILE

    found = read_tables(FILE)
    about = json.loads(card_path(FILE).read_text(encoding="utf-8"))["tasks"]
    return [
        table for table in found if held_out is None or about[table.name]["held_out"] is held_out
    ]


def other_tables(family: str | None = None) -> list[LandmarkTable]:
    """What whole searches over the methods of other families have measured.

    Kept apart from `tables`, by which the shipped policy was trained and judged.

    Args:
        family: Only the tables of this family; None gives all.

    Raises:
        ProblemError: A file is damaged.
        MissingExtra: pyarrow is not installed.

    Example:
        >>> [t.name for t in other_tables("model-merging")]
        ['mm-text8-4']
    """
    from lamps.tables import read_tables
    from lamps_meta_dataset.data import OTHERS

    found = [table for file in OTHERS for table in read_tables(file)]
    return [table for table in found if family in (None, table.family)]
