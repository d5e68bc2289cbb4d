"""Files of every format and dialect give the same rows, or one clear line says why not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lamps_plugins.text_classification._options import parse_options
from lamps_plugins.text_classification._reader import Table, open_tables

from lamps.errors import ProblemError

ROWS = [
    ("plain words", "pos"),
    ("with, a comma", "neg"),
    ('says "hello" twice', "pos"),
    ("two\nlines", "neg"),
    ("naïve café, très bon", "pos"),
    ("tab\there", "neg"),
]


def opened(path: Path, **options: Any) -> Table:
    (table,) = open_tables(path, parse_options({"target": "label", **options}))
    return table


def read(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    return [values for _, values in opened(path, **options).rows(["text", "label"])]


def as_csv(
    rows: list[tuple[str, str]],
    *,
    delimiter: str = ",",
    newline: str = "\n",
    quoting: int = csv.QUOTE_MINIMAL,
) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=newline, quoting=quoting)  # type: ignore[arg-type]
    writer.writerow(("text", "label"))
    writer.writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]
)
@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("zipped", [False, True])
def test_dialect_and_encoding_are_detected(
    tmp_path: Path, encoding: str, delimiter: str, zipped: bool
) -> None:
    data = as_csv(ROWS, delimiter=delimiter).encode(encoding)
    path = tmp_path / ("data.csv.gz" if zipped else "data.csv")
    path.write_bytes(gzip.compress(data, mtime=0) if zipped else data)
    assert read(path) == ROWS
    facts = opened(path).facts
    assert facts["delimiter"] == delimiter
    assert facts["gzipped"] is zipped
    assert facts["bom"] is (encoding in ("utf-8-sig", "utf-16"))


def test_utf16_big_endian_with_mark(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xfe\xff" + as_csv(ROWS).encode("utf-16-be"))
    assert read(path) == ROWS


@pytest.mark.parametrize(
    ("newline", "name", "quoting"),
    [
        ("\n", "LF", csv.QUOTE_MINIMAL),
        ("\r\n", "CRLF", csv.QUOTE_MINIMAL),
        ("\r\n", "CRLF", csv.QUOTE_ALL),
        ("\r", "CR", csv.QUOTE_ALL),
    ],
)
def test_newline_and_quoting(tmp_path: Path, newline: str, name: str, quoting: int) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(as_csv(ROWS, newline=newline, quoting=quoting).encode())
    assert read(path) == ROWS
    assert opened(path).facts["newline"] == name


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
            st.sampled_from(["a", "b", "c d", "NA"]),
        ),
        min_size=3,
    ),
    delimiter=st.sampled_from(",\t;|"),
)
def test_what_a_csv_writer_wrote_is_read_back(
    tmp_path: Path, rows: list[tuple[str, str]], delimiter: str
) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(as_csv(rows, delimiter=delimiter, quoting=csv.QUOTE_ALL).encode())
    assert read(path) == rows


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_mark_is_no_text_even_if_the_encoding_is_given(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(("\ufeff" + as_csv(ROWS)).encode(encoding))
    assert read(path, encoding=encoding) == ROWS
    with pytest.raises(ProblemError, match="unknown encoding 'base64'"):
        opened(path, encoding="base64")


def test_unquoted_tsv_keeps_stray_quotes(tmp_path: Path) -> None:
    rows = [('"Hello" he said', "pos"), ('a 5" screen', "neg"), ('"open at the start', "pos")] * 3
    path = tmp_path / "data.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in rows))
    assert read(path) == rows
    assert opened(path).facts["quote"] == "none"


def test_options_override_detection(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes("text;label\nein, zwei;größer\n".encode("cp850"))
    assert read(path, encoding="cp850", delimiter=";") == [("ein, zwei", "größer")]


def test_other_scripts_without_a_mark_are_detected(tmp_path: Path) -> None:
    rows = [("привет мир хорошо", "да"), ("очень плохой фильм", "нет")] * 10
    path = tmp_path / "data.csv"
    path.write_bytes(as_csv(rows).encode("cp1251"))
    assert read(path) == rows


def test_mostly_utf8_names_the_bad_byte(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(as_csv(ROWS * 20).encode() + b"caf\xe9,pos\n")
    with pytest.raises(ProblemError, match="except for byte"):
        opened(path)


@pytest.mark.parametrize("zipped", [False, True])
def test_jsonl_keeps_types(tmp_path: Path, zipped: bool) -> None:
    records = [
        {"text": "a\u2028b", "label": 1},
        {"label": True, "text": "c"},
        {"text": None, "label": [1, 2], "more": {}},
        {"text": "d"},
    ]
    data = "".join(json.dumps(r, ensure_ascii=False) + "\r\n" for r in records).encode()
    path = tmp_path / ("data.jsonl.gz" if zipped else "data.jsonl")
    path.write_bytes(gzip.compress(data, mtime=0) if zipped else data)
    assert read(path) == [("a\u2028b", 1), ("c", True), (None, [1, 2]), ("d", None)]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", ["data.parquet", "data"])
def test_parquet(tmp_path: Path, zipped: bool, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"text {i}" for i in range(10_000)]
    labels = [i % 3 for i in range(10_000)]
    pq.write_table(pa.table({"label": labels, "text": texts}), tmp_path / "plain")
    data = (tmp_path / "plain").read_bytes()
    path = tmp_path / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(data, 1, mtime=0) if zipped else data)
    options = {"data_format": "parquet"} if zipped and name == "data" else {}
    assert read(path, **options) == list(zip(texts, labels, strict=True))


def test_dictionary_column_of_parquet_gives_its_values(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array(["x", "y", "x"]).dictionary_encode()
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"], "label": column}), path)
    assert read(path) == [("a", "x"), ("b", "y"), ("c", "x")]


def test_datasets_folder_gives_class_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    part = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features)
    part.save_to_disk(tmp_path / "one")
    assert read(tmp_path / "one") == [("a", "yes"), ("b", "no"), ("c", None)]
    both = datasets.DatasetDict(train=part, validation=part, unsupervised=part)
    both.save_to_disk(tmp_path / "both")
    tables = open_tables(tmp_path / "both", parse_options({"target": "label"}))
    assert [t.split for t in tables] == ["train", "val"]
    assert tables[0].facts["ignored_splits"] == ["unsupervised"]


def test_rows_carry_the_line_on_which_they_start(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('text,label\n"a\nb",x\n\nc,y\n')
    assert [line for line, _ in opened(path).rows(["text"])] == [2, 5]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "data.csv", "empty"),
        (b"\n\n", "data.csv", "blank lines"),
        (b"text,label,text\na,b,c\n", "data.csv", "two columns named 'text'"),
        (b"text,label\na,b\nc,d,e\n", "data.csv", "line 3: 3 fields, expected 2"),
        (b'text,label\n"a, b",x\n"c, d",y\n"e,z\n', "data.csv", "line 4: malformed quoting"),
        (gzip.compress(b"text,label\na,b\n" * 9, mtime=0)[:-9], "data.csv.gz", "gzip"),
        (b"\x1f\x8b\x08garbage", "data.csv.gz", "gzip"),
        (b"\x1f\x8b", "data", "gzip"),
        (b'{"text": "a"}\n[1]\n', "data.jsonl", "line 2 holds a JSON list"),
        (b'{"text": "a"}\n{"text"\n', "data.jsonl", "line 2 is not JSON"),
        (b"[]", "data.json", "JSONL"),
        (b"\n", "data.jsonl", "no records"),
        (b"nothing like it", "data.parquet", "Parquet"),
    ],
)
def test_broken_files_are_refused_in_one_line(
    tmp_path: Path, content: bytes, name: str, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ProblemError, match=message) as caught:
        read(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_parquet_and_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="does not exist"):
        opened(tmp_path / "none.csv")
    with pytest.raises(ProblemError, match=r"dataset_dict\.json"):
        opened(tmp_path)
    path = tmp_path / "data.csv"
    path.write_text("text,label\na,b\n")
    with pytest.raises(ProblemError, match="expects a folder"):
        opened(path, data_format="datasets")
    with pytest.raises(ProblemError, match="unknown encoding"):
        opened(path, encoding="utf-99")


def test_a_wrong_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes("text,label\ncafé,pos\n".encode("latin-1"))
    with pytest.raises(ProblemError, match="is not utf-8: byte 14"):
        opened(path, encoding="utf-8")
    assert read(path) == [("café", "pos")]


def test_long_texts_and_no_leaked_files(tmp_path: Path) -> None:
    rows = [("wörd " * 40_000, "a"), ("short", "b")]
    path = tmp_path / "data.csv"
    path.write_bytes(as_csv(rows).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        assert read(path) == rows
