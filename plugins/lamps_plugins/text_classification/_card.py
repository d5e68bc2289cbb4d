"""What is said about the data: notes for the user while a problem opens, facts for its card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lamps.types import Json

from ._labels import Label
from ._splits import SPLITS, Sample

__all__ = ["described_data", "read_sentence", "remarks"]

_NAMED = 8  # classes that a note lists by name


def remarks(
    labels: Sequence[Label],
    targets: Mapping[str, np.ndarray[Any, Any]],
    multi_label: bool,
    rows: Sequence[Sample],
) -> list[str]:
    """Sentences about a split problem that the user should see.

    Args:
        labels: Class values by index.
        targets: Targets of each split.
        multi_label: Whether a text has any number of labels.
        rows: Every row of every split.
    """
    notes = []
    counts = {name: _class_counts(t, len(labels)) for name, t in targets.items()}
    for name in SPLITS:
        absent = [repr(label) for label, n in zip(labels, counts[name], strict=True) if n == 0]
        if absent:
            shown = ", ".join(absent[:_NAMED]) + (", …" if len(absent) > _NAMED else "")
            what = "cannot be learned" if name == "train" else "too rare to be measured there"
            notes.append(f"no {name} rows of {len(absent)} class(es): {shown} ({what})")
    folded = Counter(str(label).strip().casefold() for label in labels)
    alike = [label for label in labels if folded[str(label).strip().casefold()] > 1]
    if alike:
        notes.append(
            f"labels {', '.join(map(repr, alike[:_NAMED]))} differ only in case or white space "
            "and stay different classes"
        )
    answers: dict[int, set[tuple[Any, ...]]] = {}
    for row in rows:
        answers.setdefault(row.key, set()).add(tuple(sorted(row.labels, key=repr)))
    torn = sum(len(found) > 1 for found in answers.values())
    if torn:
        notes.append(f"{torn} texts occur with different labels; each stays within one split")
    if not multi_label:
        top = counts["train"].max() / counts["train"].sum()
        if top > 0.9:
            notes.append(
                f"{top:.0%} of the training rows are of one class; look at val_macro_f1_error too"
            )
    return notes


def read_sentence(card: Mapping[str, Any]) -> list[str]:
    """What was read and detected, in one sentence; none for data that is from no file.

    Args:
        card: Facts of the files and of the data, as on the problem's card.
    """
    if not card.get("files"):
        return []
    first = card["files"][0]
    how = [first["format"], *(first[k] for k in ("encoding",) if first.get(k))]
    if "delimiter" in first:
        how.append(f"delimiter {first['delimiter']!r}, quote {first['quote']}")
    rows = " + ".join(f"{n} {name}" for name, n in card["rows_used"].items())
    out = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in card["dropped"].items())
    return [
        f"read {', '.join(how)}: text {card['text_column']!r}, label {card['target_column']!r} "
        f"({card['label_dtype']}, {len(card['labels'])} classes); rows: {rows}"
        + (f"; left out: {out}" if out else "")
    ]


def _class_counts(targets: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    if targets.ndim == 2:
        return np.asarray(targets.sum(axis=0), dtype=np.int64)
    return np.asarray(np.bincount(targets, minlength=n))


def described_data(
    labels: Sequence[Label],
    texts: Mapping[str, Sequence[str]],
    targets: Mapping[str, np.ndarray[Any, Any]],
    multi_label: bool,
    usable: Mapping[str, int],
    lost: Mapping[str, int],
) -> dict[str, Json]:
    """What the card says about the data itself.

    Args:
        labels: Class values by index.
        texts: Texts of each split.
        targets: Targets of each split.
        multi_label: Whether a text has any number of labels.
        usable: Usable rows of each pool before sampling.
        lost: Rows left out, by reason.
    """
    lengths = np.array([len(text) for part in texts.values() for text in part])
    counts = {name: _class_counts(t, len(labels)) for name, t in targets.items()}
    train = counts["train"]
    return {
        "rows_usable": sum(usable.values()),
        "rows_used": {name: len(part) for name, part in texts.items()},
        "dropped": dict(lost),
        "multi_label": multi_label,
        "label_dtype": type(labels[0]).__name__,
        "labels": list(labels),
        "class_counts": {name: c.tolist() for name, c in counts.items()},
        "imbalance": float(train.max() / max(train.min(), 1)),
        "labels_per_text": float(sum(train) / len(texts["train"])),
        "text_chars": {
            f"p{q}": float(np.percentile(lengths, q)) for q in (0, 5, 25, 50, 75, 95, 100)
        },
    }
