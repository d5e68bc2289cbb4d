"""Data files as streams of rows: CSV, TSV, JSONL, Parquet, gzipped or not, `datasets` folders.

A `Table` knows its columns and how it was read; `Table.rows` streams the columns asked for, so a
file larger than memory costs what is kept of it and no more. Nothing is guessed silently: what was
detected stands in ``Table.facts``.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import io
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from lamps.errors import MissingExtra, ProblemError
from lamps.types import Json

from ._options import SPLIT_WORDS, SUFFIXES, DataOptions
from ._sniff import Dialect, FileFacts, open_bytes, scan, sniff_dialect

__all__ = ["Row", "Table", "open_tables"]

Row = tuple[int, tuple[Any, ...]]
"""Line (or row) number counted from 1, as an editor shows it, and the values asked for."""

_PREVIEW = 1_000  # rows that column detection looks at
_NAMES_SHOWN = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """One readable file (or part of a `datasets` folder).

    Args:
        path: Where it lies.
        split: The split it holds, if that is known beforehand.
        columns: Names in file order.
        typed: Whether values have their own types (JSONL, Parquet); else all are text (CSV).
        facts: What was read and detected, for the card.
        stream: Opens the rows of some columns; use `rows`.
    """

    path: Path
    split: str | None
    columns: tuple[str, ...]
    typed: bool
    facts: dict[str, Json]
    stream: Callable[[Sequence[str]], Iterator[Row]]

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """Rows from the first to the last, each with the values of ``names`` in that order.

        Raises:
            ProblemError: A row cannot be read; the message has its line.
        """
        return self.stream(names)

    def preview(self) -> list[tuple[Any, ...]]:
        """The first thousand rows with all columns."""
        return [values for _, values in itertools.islice(self.rows(self.columns), _PREVIEW)]

    def listing(self) -> str:
        """The columns for a message, cut where there are many."""
        shown = ", ".join(self.columns[:_NAMES_SHOWN])
        more = len(self.columns) - _NAMES_SHOWN
        return shown + (f" and {more} more" if more > 0 else "")


def open_tables(path: Path, options: DataOptions) -> list[Table]:
    """The tables of a problem: the file itself, then those given as ``val`` and ``test``.

    Raises:
        ProblemError: A file is missing, empty, truncated, of an unknown format or malformed in its
            head.
    """
    tables = _open(path, None, options)
    if (options.val or options.test) and any(t.split for t in tables):
        raise ProblemError(
            f"{path} has its own splits ({', '.join(str(t.split) for t in tables)}), so --val and "
            "--test cannot be used with it"
        )
    for split, file in (("val", options.val), ("test", options.test)):
        if file:
            tables += _open(Path(file), split, options)
    return tables


def _open(path: Path, split: str | None, options: DataOptions) -> list[Table]:
    if not path.exists():
        raise ProblemError(f"{path} does not exist; expected a data file or a datasets folder")
    if path.is_dir():
        return _open_folder(path, split)
    kind = options.data_format or _format_of(path)
    if kind == "datasets":
        raise ProblemError(f"{path} is a file; data_format 'datasets' expects a folder on disk")
    facts = scan(path, binary=kind == "parquet", encoding=options.encoding)
    if kind == "parquet":
        return [_open_parquet(path, split, facts)]
    if kind == "jsonl":
        return [_open_jsonl(path, split, facts)]
    return [_open_delimited(path, split, facts, options, kind)]


def _format_of(path: Path) -> str:
    """Format by file name, by the first bytes where the name says nothing."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".gzip")]
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    with path.open("rb") as raw:
        gzipped = raw.read(2) == b"\x1f\x8b"
    with open_bytes(path, gzipped=gzipped) as content:
        try:
            head = content.read(64)
        except (EOFError, OSError) as error:
            raise ProblemError(f"{path} is a corrupt gzip file ({error})") from error
    if head.startswith(b"PAR1"):
        return "parquet"
    return "jsonl" if head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") else "csv"


def _text(facts: FileFacts) -> IO[str]:
    content = open_bytes(facts.path, gzipped=facts.gzipped)
    return io.TextIOWrapper(content, encoding=facts.encoding, newline="")


def _described(facts: FileFacts, kind: str, **more: Json) -> dict[str, Json]:
    found: dict[str, Json] = {
        "path": str(facts.path), "format": kind, "sha256": facts.sha256,
        "size_bytes": facts.size_bytes, "gzipped": facts.gzipped,
    }  # fmt: skip
    if facts.encoding:
        found |= {"encoding": facts.encoding, "bom": facts.bom, "newline": facts.newline()}
        found["encoding_detected"] = facts.detected
    return found | more


def _unique(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The names, refused where two share one; nameless columns of spreadsheets are left alone."""
    seen: set[str] = set()
    for name in names:
        if name in seen and name:
            raise ProblemError(
                f"{path} has two columns named {name!r}; "
                "rename one, so that it is clear which is meant"
            )
        seen.add(name)
    return tuple(names)


# --- CSV and TSV


def _open_delimited(
    path: Path, split: str | None, facts: FileFacts, options: DataOptions, kind: str
) -> Table:
    wanted = [options.target, options.text, options.split_column, options.group]
    if split is not None:
        wanted[2] = None
    dialect = sniff_dialect(
        facts,
        delimiter=options.delimiter,
        quote=options.quote,
        prefer="\t" if kind == "tsv" else ",",
        wanted=tuple(name for name in wanted if name),
    )
    with _text(facts) as lines:
        header = next((row for _, row in _delimited(path, dialect, lines)), None)
    if header is None:
        raise ProblemError(f"{path} holds blank lines only; expected a header and rows")
    columns = _unique(path, header)

    def stream(names: Sequence[str]) -> Iterator[Row]:
        places = [columns.index(name) for name in names]
        with _text(facts) as lines:
            rows = _delimited(path, dialect, lines)
            next(rows)
            for line, row in rows:
                if len(row) != len(columns):
                    raise ProblemError(
                        f"{path} line {line}: {len(row)} fields, expected {len(columns)} "
                        f"({_cut(', '.join(columns))}). "
                        f"Quote texts that hold {dialect.delimiter!r}, or set --delimiter or "
                        "--quote"
                    )
                yield line, tuple(row[i] for i in places)

    detected = _described(
        facts, kind, delimiter=dialect.delimiter, quote=dialect.quote or "none",
        delimiter_detected=options.delimiter is None, quote_detected=options.quote is None,
    )  # fmt: skip
    return Table(path, split, columns, False, detected, stream)


def _delimited(path: Path, dialect: Dialect, lines: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Non-blank rows with the line on which each starts."""
    # A process-wide limit of the csv module; texts are longer than its 131,072 characters.
    csv.field_size_limit(max(csv.field_size_limit(), 1 << 30))
    reader = dialect.reader(lines)
    start = 1
    try:
        for row in reader:
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise ProblemError(
            f"{path} line {start}: malformed quoting ({error}). Close or double the quotes there, "
            "or set --quote none if quotes are part of the text"
        ) from error


def _cut(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"


# --- JSON lines


def _open_jsonl(path: Path, split: str | None, facts: FileFacts) -> Table:
    if facts.head_text().lstrip().startswith("["):
        raise ProblemError(
            f"{path} is one JSON document; expected one object a line (JSONL). "
            "Convert it with: jq -c '.[]'"
        )
    columns: dict[str, None] = {}
    for _, record in itertools.islice(_records(path, facts), _PREVIEW):
        columns |= dict.fromkeys(record)
    if not columns:
        raise ProblemError(f"{path} holds no records; expected one JSON object a line")

    def stream(names: Sequence[str]) -> Iterator[Row]:
        for line, record in _records(path, facts):
            yield line, tuple(record.get(name) for name in names)

    return Table(path, split, tuple(columns), True, _described(facts, "jsonl"), stream)


def _records(path: Path, facts: FileFacts) -> Iterator[tuple[int, dict[str, Any]]]:
    with _text(facts) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ProblemError(
                    f"{path} line {number} is not JSON ({error.msg} at column {error.colno}); "
                    "expected one object a line"
                ) from error
            if not isinstance(record, dict):
                raise ProblemError(
                    f"{path} line {number} holds a JSON {type(record).__name__}; "
                    'expected an object such as {"text": "...", "label": "..."}'
                )
            yield number, record


# --- Parquet and datasets folders


def _open_parquet(path: Path, split: str | None, facts: FileFacts) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("reading Parquet", "pyarrow", "text") from error

    @contextlib.contextmanager
    def file() -> Iterator[Any]:
        if not facts.gzipped:
            with pq.ParquetFile(path) as opened:
                yield opened
            return
        # Parquet is read from its end, so it needs a file in which one can seek.
        with tempfile.TemporaryFile() as plain:
            with open_bytes(path, gzipped=True) as content:
                shutil.copyfileobj(content, plain)
            with pq.ParquetFile(pa.PythonFile(plain, mode="r")) as opened:
                yield opened

    try:
        with file() as opened:
            columns = _unique(path, opened.schema_arrow.names)
            details: dict[str, Json] = {"rows": opened.metadata.num_rows}
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ProblemError(f"{path} cannot be read as Parquet ({reason})") from error

    def stream(names: Sequence[str]) -> Iterator[Row]:
        number = 0
        try:
            with file() as opened:
                for batch in opened.iter_batches(
                    batch_size=4096, columns=list(dict.fromkeys(names))
                ):
                    values = [batch.column(name).to_pylist() for name in names]
                    for row in zip(*values, strict=True):
                        number += 1
                        yield number, row
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise ProblemError(f"{path} is damaged after row {number} ({reason})") from error

    return Table(path, split, columns, True, _described(facts, "parquet", **details), stream)


def _open_folder(path: Path, split: str | None) -> list[Table]:
    if not ((path / "dataset_dict.json").is_file() or (path / "state.json").is_file()):
        raise ProblemError(
            f"{path} is a folder without dataset_dict.json or state.json; expected what "
            "datasets.save_to_disk writes, or a data file"
        )
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("reading a datasets folder", "datasets", "text") from error
    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ProblemError(f"{path} cannot be loaded as a datasets folder ({reason})") from error
    if not isinstance(loaded, datasets.DatasetDict):
        return [_folder_table(path, split, loaded)]
    parts = {SPLIT_WORDS.get(name.lower(), ""): part for name, part in loaded.items()}
    ignored = [name for name in loaded if name.lower() not in SPLIT_WORDS]
    if "train" not in parts or split is not None:
        raise ProblemError(
            f"{path} has the splits {', '.join(loaded)}; expected "
            + ("a single dataset for --" + split if split else "one named train")
        )
    tables = [_folder_table(path, s, parts[s]) for s in ("train", "val", "test") if s in parts]
    if ignored:
        tables[0].facts["ignored_splits"] = sorted(ignored)
    return tables


def _folder_table(path: Path, split: str | None, part: Any) -> Table:
    columns = _unique(path, part.column_names)
    names_of = {c: _class_names(part.features[c]) for c in columns}

    def stream(names: Sequence[str]) -> Iterator[Row]:
        number = 0
        # The copy keeps the format of the caller's object untouched; arrow batches are decoded by
        # us.
        for batch in part.with_format("arrow").iter(batch_size=4096):
            values = [_named(batch.column(n).to_pylist(), names_of[n]) for n in names]
            for row in zip(*values, strict=True):
                number += 1
                yield number, row

    facts: dict[str, Json] = {
        "path": str(path), "format": "datasets", "rows": part.num_rows,
        "sha256": _folder_hash(path),
    }  # fmt: skip
    return Table(path, split, columns, True, facts, stream)


def _class_names(feature: Any) -> list[str] | None:
    """Names of a `ClassLabel`, or of a list of them; None for other columns."""
    inner = getattr(feature, "feature", feature)
    names = getattr(inner, "names", None)
    return list(names) if names else None


def _named(values: list[Any], names: list[str] | None) -> list[Any]:
    if names is None:
        return values

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(v) for v in value]
        return names[value] if value is not None and value >= 0 else None  # -1 means unlabelled

    return [one(value) for value in values]


def _folder_hash(path: Path) -> str:
    """SHA-256 over names and bytes of the data files; caches of `datasets` are no data."""
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.suffix in (".arrow", ".json") and not file.name.startswith("cache-"):
            total.update(str(file.relative_to(path)).encode() + b"\0")
            with file.open("rb") as raw:
                total.update(hashlib.file_digest(raw, "sha256").digest())
    return total.hexdigest()
