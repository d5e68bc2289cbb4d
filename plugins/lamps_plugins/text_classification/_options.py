"""Settings with which a user opens labelled texts, checked at the edge; imports nothing heavy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lamps.errors import ConfigError, did_you_mean
from lamps.method import ProblemOption
from lamps.types import Json

__all__ = ["FORMATS", "OPTIONS", "SPLIT_WORDS", "SUFFIXES", "DataOptions", "parse_options"]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "datasets")
"""What a data file may be; ``csv`` and ``tsv`` differ in the delimiter that is tried first."""

SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
"""Format by the suffix of a file name, ``.gz`` aside."""

SPLIT_WORDS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val", "development": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
"""What people call the three splits."""

OPTIONS: tuple[ProblemOption, ...] = (
    ProblemOption(name="target", doc="Column that holds the label."),
    ProblemOption(
        name="text",
        doc="Column that holds the text; without it the text column with the longest texts.",
    ),
    ProblemOption(
        name="split_column",
        doc="Column that says train, val (valid, validation, dev) or test for each row.",
    ),
    ProblemOption(name="val", kind="path", doc="File with the validation rows."),
    ProblemOption(name="test", kind="path", doc="File with the test rows."),
    ProblemOption(
        name="group", doc="Column whose equal values never lie in two splits (user, document)."
    ),
    ProblemOption(
        name="data_format", doc="Format of the files; detected without it.", choices=FORMATS
    ),
    ProblemOption(name="delimiter", doc="Delimiter of a CSV file; detected without it."),
    ProblemOption(name="encoding", doc="Encoding of a text file; detected without it."),
    ProblemOption(
        name="quote",
        doc="Quote character of a CSV file, or 'none' where quotes are text; detected without it.",
    ),
    ProblemOption(
        name="label_separator",
        doc="Character between several labels of one row; makes the problem multi-label.",
    ),
    ProblemOption(
        name="multi_label",
        kind="flag",
        default=False,
        doc="Rows have several labels; the separator (one of | ; ,) is detected if not given.",
    ),
    ProblemOption(
        name="max_train",
        kind="int",
        doc="Most training rows; a larger file is streamed, so memory stays bounded.",
    ),
    ProblemOption(
        name="max_val",
        kind="int",
        doc="Most validation rows; with max_train its share, at least 200 and at most max_train.",
    ),
    ProblemOption(
        name="max_test",
        kind="int",
        doc="Most test rows; as max_val, but at least 500: test is opened once.",
    ),
    ProblemOption(
        name="val_share", kind="float", default=0.15, doc="Share of rows held out as val, 0..0.5."
    ),
    ProblemOption(
        name="test_share",
        kind="float",
        default=0.15,
        doc="Share of rows held out as test, 0..0.5.",
    ),
    ProblemOption(
        name="landmarks",
        kind="int",
        doc="Number of doubling landmarks after the untouched one; by default up to 5.",
    ),
    ProblemOption(
        name="max_length", kind="int", default=128, doc="Tokens of a text that models read."
    ),
    ProblemOption(
        name="split_seed", kind="int", default=0, doc="Seed of splits, sampling and order."
    ),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The options above as typed values; None means "detect" or "without bound"."""

    target: str | None = None
    text: str | None = None
    split_column: str | None = None
    val: str | None = None
    test: str | None = None
    group: str | None = None
    data_format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    quote: str | None = None
    label_separator: str | None = None
    multi_label: bool = False
    max_train: int | None = None
    max_val: int | None = None
    max_test: int | None = None
    val_share: float = 0.15
    test_share: float = 0.15
    landmarks: int | None = None
    max_length: int = 128
    split_seed: int = 0

    def as_json(self) -> dict[str, Json]:
        """What differs from the defaults, as JSON that `parse_options` reads back."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        }

    def caps(self) -> dict[str, int | None]:
        """Most rows of each split; None is without bound."""
        if self.max_train is None:
            return {"train": None, "val": self.max_val, "test": self.max_test}
        rest = 1.0 - self.val_share - self.test_share
        # Validation is paid for at every landmark of every candidate, the test once a member.
        least = {"val": 200, "test": 500}
        held = {
            name: min(self.max_train, max(least[name], round(self.max_train * share / rest)))
            for name, share in (("val", self.val_share), ("test", self.test_share))
        }
        return {
            "train": self.max_train,
            "val": self.max_val or held["val"],
            "test": self.max_test or held["test"],
        }


_LEAST = {
    "max_train": 8,
    "max_val": 2,
    "max_test": 2,
    "landmarks": 1,
    "max_length": 4,
    "split_seed": 0,
}
_SPOKEN_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}


def parse_options(values: Mapping[str, Any]) -> DataOptions:
    """Typed options from what the command line or a notebook gave.

    Raises:
        ConfigError: A name is unknown, or a value has the wrong type or lies out of range.
    """
    known = {option.name: option for option in OPTIONS}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                f"text-classification has no option {name!r}. {did_you_mean(name, known)}"
            )
        if value is not None:
            given[name] = _typed(known[name], value)
    if given.get("delimiter") in _SPOKEN_DELIMITERS:
        given["delimiter"] = _SPOKEN_DELIMITERS[given["delimiter"]]
    options = DataOptions(**given)
    _check(options)
    return options


def _typed(option: ProblemOption, value: Any) -> Any:
    wrong = ConfigError(f"option {option.name}={value!r}: expected a value of kind {option.kind}")
    if option.kind == "flag":
        if not isinstance(value, bool):
            raise wrong
        return value
    if option.kind in ("int", "float"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong
        if option.kind == "int" and value != int(value):
            raise wrong
        return int(value) if option.kind == "int" else float(value)
    text = str(value)
    if not text:
        raise ConfigError(f"option {option.name} is empty; leave it out or give a value")
    if option.choices and text not in option.choices:
        raise ConfigError(
            f"option {option.name}={text!r}: {did_you_mean(text, map(str, option.choices))}"
        )
    return text


def _check(options: DataOptions) -> None:
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"option {name}={value}: expected at least {least}")
    for name in ("val_share", "test_share"):
        share = getattr(options, name)
        if not 0.0 < share <= 0.5:
            raise ConfigError(f"option {name}={share}: expected a share in (0, 0.5]")
    if options.val_share + options.test_share >= 0.9:
        raise ConfigError(
            f"val_share={options.val_share} and test_share={options.test_share} leave less than a "
            "tenth for training; give smaller ones"
        )
    for name in ("delimiter", "quote"):
        value = getattr(options, name)
        if value is not None and len(value) != 1 and not (name == "quote" and value == "none"):
            raise ConfigError(f"option {name}={value!r}: expected one character")
    if options.split_seed >= 2**63:
        raise ConfigError(f"option split_seed={options.split_seed}: expected less than 2**63")
    if options.split_column and (options.val or options.test):
        raise ConfigError(
            "options split_column and val or test exclude each other; the column already says "
            "which rows are held out"
        )
