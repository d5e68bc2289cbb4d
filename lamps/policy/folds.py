"""Which tables a policy must not have seen: leave one table, one task or one family out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamps.errors import ConfigError
from lamps.tables import LandmarkTable

KINDS = ("table", "task", "family")


def group_of(table: LandmarkTable, kind: str) -> str:
    """The part that is left out together with a table.

    Args:
        table: The table.
        kind: ``table`` is the table alone; ``task`` all seeds and samples of its problem, which
            share the name before ``#``; ``family`` all tables that share its family up to the
            first hyphen, since ``pythia`` and ``pythia-mmlu`` are the same models.
    """
    if kind == "table":
        return table.name
    if kind == "task":
        return table.name.split("#")[0]
    if kind == "family":
        return (table.family or table.name).split("-")[0]
    raise ConfigError(f"--leave-out is {kind!r}, expected one of {', '.join(KINDS)}")


def folds(
    tables: Sequence[LandmarkTable], kind: str, *, most: int = 0
) -> Iterator[tuple[str, list[LandmarkTable], list[LandmarkTable]]]:
    """Name, training tables and test tables of every fold.

    Args:
        tables: All tables.
        kind: One of `KINDS`.
        most: Join groups of one family so that there are at most this many folds; 0 joins none.

    Raises:
        ConfigError: An unknown kind, or nothing to train on in some fold.
    """
    groups: dict[str, list[LandmarkTable]] = {}
    for table in tables:
        groups.setdefault(group_of(table, kind), []).append(table)
    if len(groups) < 2:
        raise ConfigError(
            f"--leave-out {kind} needs two groups of tables, there is one: {list(groups)}"
        )
    if most == 1:
        raise ConfigError("one fold leaves nothing to train on, expected 2 or more")
    names = list(groups)
    if most and len(names) > most:
        # Neighbours are often of one family; dealing them out keeps every family in training.
        joined = [names[i::most] for i in range(most)]
    else:
        joined = [[n] for n in names]
    for out in joined:
        test = [t for n in out for t in groups[n]]
        rest = [t for n in names if n not in out for t in groups[n]]
        yield out[0] if len(out) == 1 else f"{out[0]} and {len(out) - 1} more", rest, test
