"""``python -m lamps_meta_dataset TASK FILE.csv``: a real task from an installed package as CSV."""

from __future__ import annotations

import sys
from pathlib import Path

from lamps.errors import LampsError
from lamps_meta_dataset.tasks import TASKS, write_task


def main(arguments: list[str]) -> int:
    """List the tasks, or write one."""
    if len(arguments) != 2:
        print("usage: python -m lamps_meta_dataset TASK FILE.csv", file=sys.stderr)
        for task in TASKS.values():
            print(f"  {task.name:16} {task.package:32} licence: {task.licence}", file=sys.stderr)
        return 2
    name, file = arguments
    try:
        count = write_task(name, Path(file))
    except LampsError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"{file}: {count} rows (licence: {TASKS[name].licence})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
