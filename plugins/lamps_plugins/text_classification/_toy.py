"""A small problem that needs no download, and the inputs that the family must refuse."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ._labels import LabelReader
from ._loading import Parts, parts_of
from ._options import DataOptions
from ._splits import Sample, normalised, text_key

__all__ = ["bad_inputs", "toy_parts"]

_SUBJECTS = "the crew|our neighbour|a visitor|my sister|the team|one guest|the manager|a friend"
_VERBS = "talked about|waited for|wrote down|asked about|looked at|remembered|described"
_OBJECTS = "the long evening|a new plan|the old house|that morning|the next step|a small detail"
_TAILS = "on monday|after lunch|in the hall|without hurry|at the station|before the rain|again"
_TOPICS = {
    "cooking": "oven|recipe|pepper|dough|kitchen|soup|roast|flavour",
    "sport": "match|goal|coach|stadium|league|sprint|referee|medal",
    "travel": "airport|luggage|ticket|hotel|island|passport|ferry|journey",
}
_PER_CLASS = 40
_MISLEADING = 0.2  # share of sentences with one word of another topic
_SILENT = 0.08  # share of sentences without any word of their topic


def toy_parts(seed: int) -> Parts:
    """Sentences about three topics.

    Most carry two words of their topic. Some carry a word of another one as well, and a few say
    nothing about their topic at all, so that no classifier gets everything right.
    """
    rng = np.random.default_rng([seed, 7])
    options = DataOptions(target="topic", split_seed=seed, val_share=0.2, test_share=0.2)
    reader = LabelReader("topic", None)
    rows: dict[int, Sample] = {}
    for topic in _TOPICS:
        made = 0
        while made < _PER_CLASS:
            text = _sentence(topic, rng)
            key = text_key(normalised(text), seed)
            if key not in rows:
                labels = reader.read(topic, "toy")
                assert labels is not None
                rows[key] = Sample(text, labels, None, key)
                made += 1
    ordered = sorted(rows.values(), key=Sample.order)
    return parts_of({"train": ordered}, reader, options, where="toy", typed=True)


def _sentence(topic: str, rng: np.random.Generator) -> str:
    def pick(words: str) -> str:
        return str(rng.choice(words.split("|")))

    luck = rng.random()
    marks = [] if luck < _SILENT else [pick(_TOPICS[topic]), pick(_TOPICS[topic])]
    if luck > 1.0 - _MISLEADING:
        marks[1] = pick(_TOPICS[str(rng.choice([t for t in _TOPICS if t != topic]))])
    parts = [pick(_SUBJECTS), pick(_VERBS), pick(_OBJECTS), *marks, pick(_TAILS)]
    return " ".join(parts)


_GOOD = "".join(f"a fine sentence number {i},{'pos' if i % 2 else 'neg'}\n" for i in range(24))
_TABLE = "text,label\n" + _GOOD

_REFUSED: tuple[tuple[str, bytes, str, Mapping[str, Any], str], ...] = (
    # what is wrong, content, file name, options, what the message must name
    ("empty-file", b"", "data.csv", {}, "data.csv"),
    ("header-only", b"text,label\n", "data.csv", {}, "no rows"),
    ("missing-target", _TABLE.encode(), "data.csv", {"target": "lable"}, "lable"),
    ("missing-text", _TABLE.encode(), "data.csv", {"text": "txt"}, "txt"),
    ("ragged-row", (_TABLE + "one,two,three\n").encode(), "data.csv", {}, "line 26"),
    ("open-quote", f'{_TABLE}"never closed,pos\n'.encode(), "data.csv", {"quote": '"'}, "line 26"),
    ("duplicate-column", _TABLE.replace("text", "label", 1).encode(), "data.csv", {}, "label"),
    ("one-class", _TABLE.replace(",neg", ",pos").encode(), "data.csv", {}, "pos"),
    ("too-few-rows", "".join(_TABLE.splitlines(True)[:6]).encode(), "data.csv", {}, "5 usable"),
    ("truncated-gzip", gzip.compress(_TABLE.encode())[:-12], "data.csv.gz", {}, "gzip"),
    ("not-utf8", _TABLE.encode() + b"caf\xe9,pos\n", "data.csv", {"encoding": "utf-8"}, "utf-8"),
    ("broken-json", b'{"text": "a", "label": 1}\n{"text": \n', "data.jsonl", {}, "line 2"),
    ("json-array", b'[{"text": "a", "label": 1}]', "data.json", {}, "JSONL"),
    ("not-parquet", b"PAR1 but nothing else", "data.parquet", {}, "data.parquet"),
)  # fmt: skip


def bad_inputs(
    open_problem: Callable[[str | None, Mapping[str, Any]], Any],
) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Calls that must raise `ProblemError` with a message that names the culprit."""

    def refused(content: bytes, file: str, options: Mapping[str, Any]) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / file
            path.write_bytes(content)
            return open_problem(str(path), {"target": "label", **options})

    for name, content, file, options, culprit in _REFUSED:
        yield name, partial(refused, content, file, options), culprit
    missing = partial(open_problem, "no-such-file.csv", {"target": "label"})
    yield "no-such-file", missing, "no-such-file"
    yield "nothing-named", partial(open_problem, None, {}), "needs data"
