"""From files to the parts of a problem: choose columns, drop the useless, split and order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps.types import Json

from ._card import described_data, read_sentence, remarks
from ._columns import find_text, require_column
from ._labels import Label, LabelReader, detect_separator, infer_labels, targets_of
from ._options import SPLIT_WORDS, DataOptions
from ._reader import Table, open_tables
from ._splits import SPLITS, Reservoir, Sample, assign, normalised, spread, text_key, units_of

__all__ = ["Parts", "load", "parts_of"]

_LEAST_ROWS = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a text problem is made of.

    Args:
        texts: Texts of each split, in their order.
        targets: Class indices ``[n] int64`` or indicators ``[n, n_labels] float32`` of each split.
        labels: Class values by index.
        multi_label: Whether a text has any number of labels.
        card: Provenance and counts.
        notes: Sentences that the user should see.
    """

    texts: Mapping[str, tuple[str, ...]]
    targets: Mapping[str, np.ndarray[Any, Any]]
    labels: tuple[Label, ...]
    multi_label: bool
    card: dict[str, Json]
    notes: tuple[str, ...]


def load(path: Path, options: DataOptions) -> Parts:
    """Read, clean, sample and split a file.

    Raises:
        ProblemError: The data cannot be used; one line says where and why.
    """
    tables = open_tables(path, options)
    reader = _RowReader(tables, options)
    capacity = _capacities(tables, options)
    pools = {name: Reservoir(capacity[name]) for name in SPLITS}
    for split, sample in reader.samples():
        pools[split or "train"].add(sample)
    card: dict[str, Json] = {"files": [table.facts for table in tables], **reader.facts()}
    repeated = sum(pool.repeated for pool in pools.values())
    if repeated:
        reader.dropped["repeated_in_sample"] = repeated
    return parts_of(
        {name: pool.rows() for name, pool in pools.items()},
        reader.labels,
        options,
        where=str(path),
        typed=tables[0].typed,
        n_usable={name: pool.seen - pool.repeated for name, pool in pools.items()},
        dropped=reader.dropped,
        card=card,
        notes=reader.notes,
    )


def _capacities(tables: Sequence[Table], options: DataOptions) -> dict[str, int | None]:
    """Rows that each pool must hold; the train pool also feeds the splits that no file gives."""
    caps = options.caps()
    if options.max_train is None:
        return dict.fromkeys(SPLITS, None)
    files = {table.split for table in tables}
    return dict(caps) | {
        "train": sum(caps[name] or 0 for name in SPLITS if name == "train" or name not in files)
    }


class _RowReader:
    """Chooses the columns and streams usable rows."""

    def __init__(self, tables: Sequence[Table], options: DataOptions) -> None:
        self.tables, self.options = tables, options
        self.notes: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.n_read = 0
        first = tables[0]
        if options.target is None:
            raise ProblemError(
                f"{first.path}: which column holds the label? Name it with --target. "
                f"Columns: {first.listing()}"
            )
        for table in tables:
            require_column(table, options.target, "target")
            require_column(table, options.group, "group")
            require_column(table, options.text, "text")
        require_column(first, options.split_column, "split-column")
        preview = first.preview()
        if not preview:
            raise ProblemError(f"{first.path} has a header but no rows")
        self.text = options.text or ""
        if not self.text:
            taken = (options.target, options.group, options.split_column)
            self.text, note = find_text(first, preview, taken)
            self.notes += note
        for table in tables[1:]:
            require_column(table, self.text, "text")
        separator = options.label_separator
        if separator is None and options.multi_label:
            place = first.columns.index(options.target)
            separator = detect_separator(v for row in preview if isinstance(v := row[place], str))
            if separator:
                self.notes.append(f"labels of one row are separated by {separator!r} (detected)")
        self.labels = LabelReader(options.target, separator)

    def samples(self) -> Iterator[tuple[str | None, Sample]]:
        options, seed = self.options, self.options.split_seed
        repaired = 0
        for table in self.tables:
            names = [self.text, str(options.target)]
            names += [c for c in (options.group, options.split_column) if c]
            for line, (text, cell, *more) in table.rows(names):
                self.n_read += 1
                where = f"{table.path} {'row' if 'rows' in table.facts else 'line'} {line}"
                if text is None or text == "":
                    self.dropped["empty_text"] += 1
                    continue
                if not isinstance(text, str):
                    raise ProblemError(
                        f"{where}: column {self.text!r} holds {text!r:.40} "
                        f"({type(text).__name__}); expected text"
                    )
                folded = normalised(text)
                if not folded:
                    self.dropped["empty_text"] += 1
                    continue
                split = table.split
                if options.split_column:
                    word = _split_word(more[-1])
                    if not word:
                        self.dropped["missing_split"] += 1
                        continue
                    if word not in SPLIT_WORDS:
                        raise ProblemError(
                            f"{where}: column {options.split_column!r} says {more[-1]!r}; "
                            "expected train, val (valid, validation, dev) or test"
                        )
                    split = SPLIT_WORDS[word]
                labels = self.labels.read(cell, where)
                if labels is None:
                    self.dropped["missing_label"] += 1
                    continue
                group = None if not options.group or more[0] in (None, "") else str(more[0])
                try:
                    key = text_key(folded, seed)
                except UnicodeEncodeError:  # half of a surrogate pair, which no tokenizer takes
                    text, repaired = _without_surrogates(text), repaired + 1
                    key = text_key(normalised(text), seed)
                yield split, Sample(text, labels, group, key)
        if repaired:
            self.notes.append(
                f"{repaired} texts held halves of surrogate pairs, replaced by U+FFFD"
            )

    def facts(self) -> dict[str, Json]:
        return {
            "rows_read": self.n_read,
            "text_column": self.text,
            "target_column": self.options.target,
            "label_separator": self.labels.separator,
        }


def _split_word(value: Any) -> str:
    return "" if value is None else str(value).strip().lower()


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parts_of(
    pools: Mapping[str, Sequence[Sample]],
    reader: LabelReader,
    options: DataOptions,
    *,
    where: str,
    typed: bool,
    n_usable: Mapping[str, int] | None = None,
    dropped: Mapping[str, int] | None = None,
    card: Mapping[str, Json] | None = None,
    notes: Iterable[str] = (),
) -> Parts:
    """Labels, splits and order of rows that were read.

    Args:
        pools: Rows in hash order: ``train``, and those splits that were given.
        reader: The label reader that saw all rows.
        options: What the user chose.
        where: Name of the data, for messages.
        typed: Whether raw labels have their own types.
        n_usable: Usable rows of each pool before sampling.
        dropped: Rows left out so far, by reason.
        card: Facts to start the card with.
        notes: Sentences so far.

    Raises:
        ProblemError: Too few rows or classes for a problem.
    """
    told, lost = list(notes), Counter(dropped or {})
    usable = dict(n_usable or {name: len(rows) for name, rows in pools.items()})
    _refuse_hopeless(where, sum(usable.values()), reader, lost)
    multi_label = reader.saw_list or options.multi_label or reader.separator is not None
    final = infer_labels(reader.counts, typed=typed)
    labels = tuple(dict.fromkeys(final.values()))
    order = {raw: labels.index(value) for raw, value in final.items()}

    clean = _without_overlap(pools, lost, told)
    sampled = usable["train"] > len(pools["train"])
    parts = _split(clean, order, options, multi_label, where, sampled=sampled)
    caps = options.caps()
    texts: dict[str, tuple[str, ...]] = {}
    targets: dict[str, np.ndarray[Any, Any]] = {}
    for name in SPLITS:
        rows = parts[name]
        strata = [min((order[v] for v in row.labels), default=-1) for row in rows]
        rows = [rows[i] for i in spread([row.key for row in rows], strata)[: caps[name]]]
        if not rows:
            raise ProblemError(
                f"{where}: no rows are left for {name}; "
                "give more rows, more groups or other splits"
            )
        texts[name] = tuple(row.text for row in rows)
        targets[name] = targets_of([r.labels for r in rows], order, multi_label=multi_label)
    told += remarks(labels, targets, multi_label, [r for p in parts.values() for r in p])
    described = dict(card or {}) | described_data(
        labels, texts, targets, multi_label, usable, lost
    )
    told += read_sentence(described)
    described["notes"] = list(told)
    return Parts(
        texts=texts, targets=targets, labels=labels, multi_label=multi_label,
        card=described, notes=tuple(told),
    )  # fmt: skip


def _refuse_hopeless(where: str, n: int, reader: LabelReader, lost: Mapping[str, int]) -> None:
    why = "".join(
        f", {count} dropped: {reason.replace('_', ' ')}" for reason, count in lost.items()
    )
    if n < _LEAST_ROWS:
        raise ProblemError(
            f"{where} has {n} usable rows{why}; "
            f"expected at least {_LEAST_ROWS} with a text and a label"
        )
    if len(reader.counts) < 2:
        only = next(iter(reader.counts), None)
        raise ProblemError(
            f"{where}: column {reader.column!r} has one class only ({only!r}, {n} rows); "
            "a classifier needs at least two"
        )
    if len(reader.counts) > 2 and len(reader.counts) * 2 > sum(reader.counts.values()):
        raise ProblemError(
            f"{where}: column {reader.column!r} has {len(reader.counts)} different labels in {n} "
            "rows; it looks like an id, a free text or a number to regress on. Name the label "
            "column with --target"
        )


def _without_overlap(
    pools: Mapping[str, Sequence[Sample]], lost: Counter[str], notes: list[str]
) -> dict[str, list[Sample]]:
    """Given splits without texts that a later one of train, val, test also has."""
    clean: dict[str, list[Sample]] = {}
    held: set[int] = set()
    for name in ("test", "val", "train"):
        rows = list(pools.get(name, ()))
        clean[name] = [row for row in rows if row.key not in held]
        gone = len(rows) - len(clean[name])
        if gone:
            lost[f"{name}_text_also_held_out"] += gone
            notes.append(
                f"{gone} {name} rows dropped: the same text lies in a split held out after it"
            )
        held.update(row.key for row in rows)
    return clean


def _split(
    pools: Mapping[str, list[Sample]],
    order: Mapping[Label, int],
    options: DataOptions,
    multi_label: bool,
    where: str,
    *,
    sampled: bool,
) -> dict[str, list[Sample]]:
    missing = [name for name in ("val", "test") if not pools[name]]
    rows = pools["train"]
    if options.group and len(missing) < 2:
        _refuse_shared_groups(pools, where)
    if not missing:
        return dict(pools)
    units = units_of(rows, [[order[v] for v in row.labels] for row in rows])
    if len(units) < 1 + len(missing):
        what = f"groups of column {options.group!r}" if options.group else "different texts"
        raise ProblemError(
            f"{where} has {len(units)} {what}; expected at least {1 + len(missing)}, so that "
            f"train and {' and '.join(missing)} share none"
        )
    share = {"val": options.val_share, "test": options.test_share}
    caps = options.caps()
    # Held-out rows are a share of the whole file but never more than their cap; where the rows are
    # a sample already, the caps say what it was drawn for.
    if sampled:
        drawn = sum(caps[name] or 0 for name in ("train", *missing))
        wanted = {name: round((caps[name] or 0) / drawn * len(rows)) for name in missing}
    else:
        wanted = {n: min(caps[n] or len(rows), round(len(rows) * share[n])) for n in missing}
    shares = {name: max(n, 1) / max(len(rows), 1) for name, n in wanted.items()}
    taken = assign(units, shares, greedy=multi_label or options.group is not None)
    return dict(pools) | {name: [rows[i] for i in sorted(ids)] for name, ids in taken.items()}


def _refuse_shared_groups(pools: Mapping[str, Sequence[Sample]], where: str) -> None:
    owner: dict[str, str] = {}
    for name, rows in pools.items():
        for row in rows:
            if row.group is not None and owner.setdefault(row.group, name) != name:
                raise ProblemError(
                    f"{where}: group {row.group!r} lies in {owner[row.group]} and in {name} of "
                    "the given splits; give splits that keep groups apart, or drop --group"
                )
