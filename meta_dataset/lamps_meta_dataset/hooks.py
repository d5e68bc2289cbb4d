"""What this package adds to lamps through hooks; the importers load when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from lamps.hookspecs import hookimpl

if TYPE_CHECKING:
    from lamps.tables import Importer, LandmarkTable

_MODULES = ("pythia", "gemstones", "taskset", "matrix", "observational", "open_llm", "scandeval")


@hookimpl
def lamps_register_table_importers() -> dict[str, Importer]:
    """Importers of public tables by the name of their format."""
    found: dict[str, Importer] = {}
    for name in _MODULES:
        found |= import_module(f"lamps_meta_dataset.importers.{name}").IMPORTERS
    return found


@hookimpl
def lamps_provide_tables(held_out: bool | None) -> list[LandmarkTable]:
    """Our own measured tables; none in a checkout where they were not exported yet."""
    from lamps_meta_dataset import tables
    from lamps_meta_dataset.data import FILE

    return tables(held_out) if FILE.is_file() else []
