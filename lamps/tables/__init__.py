"""Landmark tables: what many candidates were worth at many fidelities, and what it cost to know.

On disk a table is *long form*, one row per candidate and fidelity, as CSV (also gzipped) or
Parquet. Columns:

- ``problem``: one table each; without it the file's name.
- ``candidate``, ``fidelity``: 0 is untouched. Any unit that grows will do (epochs, examples): if
  the largest of a problem exceeds 1, all of that problem are divided by it.
- ``elapsed_s``: seconds that this candidate took from its start up to and including this
  landmark, so it never decreases. Without the column each landmark counts as one second.
- optional: ``family``, ``seed`` (several seeds of a problem are several tables), ``size``
  (anything that orders candidates before a run), ``unit``, ``peak_bytes``, ``cost_s`` (the
  landmark's own seconds, where differences of ``elapsed_s`` would not be exact) and ``state``
  (``ok``, ``failed``).
- one column per objective. Its header may carry direction and unit: ``accuracy:maximize:1``.

A row whose objectives are all empty was never measured (a *censored* curve); one with ``nan``, or
with the state ``failed``, was run and failed. An objective that is empty in a whole problem does
not belong to it.
"""

from lamps.tables.assembling import tables_from_columns
from lamps.tables.bad_rows import BadRow
from lamps.tables.checking import Finding, check_table
from lamps.tables.importer import Imported, Importer
from lamps.tables.reading import read_table, read_tables
from lamps.tables.table import LandmarkTable
from lamps.tables.writing import card_path, write_tables

__all__ = [
    "BadRow",
    "Finding",
    "Imported",
    "Importer",
    "LandmarkTable",
    "card_path",
    "check_table",
    "read_table",
    "read_tables",
    "tables_from_columns",
    "write_tables",
]
