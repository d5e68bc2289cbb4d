"""What a file is before it is parsed: compression, encoding, delimiter, quoting, newline, hash.

One pass over the bytes (`scan`) finds a broken gzip stream, a wrong encoding and the hash, so that
reading later either works to the end or was refused before the first row was used.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from lamps.errors import MissingExtra, ProblemError

if TYPE_CHECKING:
    from _csv import Reader

__all__ = ["Dialect", "FileFacts", "open_bytes", "scan", "sniff_dialect"]

_HEAD = 1 << 18  # bytes that detection looks at
_BLOCK = 1 << 20
_BOMS = (  # UTF-32 LE starts with the UTF-16 LE mark, so it is asked first
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What one pass over a file found.

    Args:
        path: The file.
        sha256: Hash of the bytes as they lie on disk.
        size_bytes: Bytes on disk.
        gzipped: Whether the content is compressed.
        head: First bytes of the (decompressed) content.
        encoding: Codec that reads the content; empty for binary formats.
        bom: Whether a byte order mark stands in front.
        detected: Whether the encoding was found here rather than given.
    """

    path: Path
    sha256: str
    size_bytes: int
    gzipped: bool
    head: bytes
    encoding: str
    bom: bool
    detected: bool

    def head_text(self) -> str:
        """The head as text; a character cut at its end is left out."""
        decoder = codecs.getincrementaldecoder(self.encoding)(errors="replace")
        return decoder.decode(self.head, final=False)

    def newline(self) -> str:
        """The newline of the head: ``LF``, ``CRLF`` or ``CR``."""
        text = self.head_text()
        crlf = text.count("\r\n")
        counts = {"CRLF": crlf, "LF": text.count("\n") - crlf, "CR": text.count("\r") - crlf}
        return max(counts, key=lambda name: counts[name]) if any(counts.values()) else "LF"


def open_bytes(path: Path, *, gzipped: bool) -> IO[bytes]:
    """The content of a file, decompressed where needed."""
    return cast(IO[bytes], gzip.open(path, "rb")) if gzipped else path.open("rb")


def scan(path: Path, *, binary: bool, encoding: str | None = None) -> FileFacts:
    """Read a file once from end to end and say what it is.

    Args:
        path: An existing file.
        binary: Whether the format has no text encoding (Parquet).
        encoding: Codec given by the user; detected when None.

    Raises:
        ProblemError: Empty, truncated or corrupt gzip, or not in the encoding.
    """
    sha256, size = hashlib.sha256(), 0
    with path.open("rb") as raw:
        while block := raw.read(_BLOCK):
            sha256.update(block)
            size += len(block)
    if size == 0:
        raise ProblemError(f"{path} is empty (0 bytes); expected a header and rows")
    with path.open("rb") as raw:
        gzipped = raw.read(2) == b"\x1f\x8b"
    blocks = _blocks(path, gzipped)
    head = next(blocks, b"")
    if not head:
        raise ProblemError(f"{path} decompresses to nothing; expected a header and rows")
    facts = FileFacts(
        path=path, sha256=sha256.hexdigest(), size_bytes=size, gzipped=gzipped, head=head[:_HEAD],
        encoding="", bom=False, detected=encoding is None,
    )  # fmt: skip
    if binary:
        for _ in blocks if gzipped else ():
            pass  # a truncated stream shows only at its end
        return facts
    bom = next((name for mark, name in _BOMS if head.startswith(mark)), None)
    name = _known_codec(encoding, path) if encoding else bom or _utf16_without_bom(head) or "utf-8"
    if bom and name.startswith(bom.removesuffix("-sig")):
        name = bom  # a user who says utf-8 or utf-16-le does not mean the mark to become text
    trouble = _undecodable(head, blocks, name)
    if trouble is not None:
        offset, sample = trouble
        if encoding or bom or name != "utf-8":
            raise ProblemError(
                f"{path} is not {name}: byte {offset} cannot be decoded. "
                "Name the right one with --encoding, or convert the file to UTF-8"
            )
        name = _eight_bit_codec(path, sample, offset)
    return dataclasses.replace(facts, encoding=name, bom=bom is not None)


def _blocks(path: Path, gzipped: bool) -> Iterator[bytes]:
    try:
        with open_bytes(path, gzipped=gzipped) as content:
            while block := content.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProblemError(
            f"{path} is a truncated or corrupt gzip file ({error}). Copy or compress it again"
        ) from error


def _known_codec(encoding: str, path: Path) -> str:
    try:
        b"a".decode(
            encoding, "ignore"
        )  # refuses codecs that are no text encodings, such as base64
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise ProblemError(
            f"{path}: unknown encoding {encoding!r}; expected a name such as utf-8, utf-16, cp1252"
        ) from error


def _utf16_without_bom(head: bytes) -> str | None:
    """UTF-16 of mostly Latin text has a zero in every other byte."""
    sample = head[: 4096 & ~1]
    half = max(len(sample) // 2, 1)
    even, odd = sample[0::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.4 and even < 0.1:
        return "utf-16-le"
    if even > 0.4 and odd < 0.1:
        return "utf-16-be"
    return None


def _undecodable(head: bytes, rest: Iterator[bytes], encoding: str) -> tuple[int, bytes] | None:
    """Offset of the first byte that is not in the encoding, and the bytes around it."""
    decoder = codecs.getincrementaldecoder(encoding)()
    offset, block = 0, head
    try:
        while block:
            decoder.decode(block)
            offset += len(block)
            block = next(rest, b"")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        for _ in rest:
            pass  # a broken gzip stream must show as such even here
        start = max(error.start - 32_768, 0)
        return offset + error.start, (block or head)[start : error.start + 32_768]
    return None


def _eight_bit_codec(path: Path, sample: bytes, offset: int) -> str:
    """The likeliest codec of bytes that are not UTF-8.

    Western text has few letters outside ASCII, and statistics of so few bytes mislead detectors,
    so it is read as cp1252 (or latin-1 where a byte is undefined there). Other scripts are left to
    charset-normalizer.
    """
    shown = sample.decode("utf-8", errors="replace")
    bad = shown.count("\ufffd")
    good = sum(not c.isascii() for c in shown) - bad
    if good > 9 * bad:
        raise ProblemError(
            f"{path} is UTF-8 except for byte {offset} and {bad - 1} more near it. "
            "Repair these, or name another --encoding"
        )
    letters = sum(chr(b).isalpha() for b in sample if b < 0x80)
    high = sum(b >= 0x80 for b in sample)
    if high > 0.6 * (letters + high):
        try:
            from charset_normalizer import from_bytes
        except ImportError as error:
            raise MissingExtra("detecting an encoding", "charset-normalizer", "text") from error
        # Codecs of an alphabet differ in where capitals lie; people write mostly small letters.
        matches = sorted(from_bytes(sample), key=lambda match: _shouts(str(match)))
        if matches:
            return codecs.lookup(matches[0].encoding).name
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return "iso8859-1"
    return "cp1252"


def _shouts(text: str) -> bool:
    return sum(c.isupper() for c in text) > sum(c.islower() for c in text)


@dataclasses.dataclass(frozen=True, slots=True)
class Dialect:
    """How a file separates and quotes its fields; with ``quote`` None, quotes are text."""

    delimiter: str
    quote: str | None

    def reader(self, lines: Iterator[str]) -> Reader:
        """A strict CSV reader: malformed quoting raises instead of shifting fields."""
        if self.quote is None:
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)


def sniff_dialect(
    facts: FileFacts,
    *,
    delimiter: str | None,
    quote: str | None,
    prefer: str,
    wanted: tuple[str, ...],
) -> Dialect:
    """The delimiter and quoting under which the head reads most evenly.

    Args:
        facts: What `scan` found.
        delimiter: Given by the user, or None.
        quote: Given by the user (``"none"`` for no quoting), or None.
        prefer: Delimiter that wins ties.
        wanted: Columns the user named; a header that shows them decides.
    """
    text = facts.head_text()
    whole = len(facts.head) < _HEAD
    delimiters = [delimiter] if delimiter else [prefer, *(d for d in ",\t;|" if d != prefer)]
    if quote is None:
        quotes: list[str | None] = ['"', None]
        lines = text.splitlines()
        if '"' not in text and sum(s[:1] == "'" or s[-1:] == "'" for s in lines) * 2 > len(lines):
            quotes.insert(1, "'")
    else:
        quotes = [None if quote == "none" else quote]
    best, best_score = Dialect(delimiters[0], quotes[0]), (-1.0, -1.0, -1)
    for sep in delimiters:
        for mark in quotes:
            dialect = Dialect(sep, mark)
            score = _evenness(dialect, text, whole, wanted)
            if score > best_score:
                best, best_score = dialect, score
    return best


def _evenness(
    dialect: Dialect, text: str, whole: bool, wanted: tuple[str, ...]
) -> tuple[float, float, int]:
    """Score of a dialect: wanted columns found, rows as wide as the header, quotes used."""
    widths: list[int] = []
    header: list[str] = []
    opened = 0
    reader = dialect.reader(iter(io.StringIO(text, newline="")))
    start = 0
    try:
        for row in reader:
            start = reader.line_num
            if not row:
                continue
            header = header or row
            widths.append(len(row))
            # A field that still carries its quotes at both ends was read under the wrong quoting.
            opened -= sum(len(f) > 1 and f[0] == f[-1] and f[0] in "\"'" for f in row)
            if len(widths) > 2_000:
                break
    except csv.Error as error:
        # The head may be cut inside quotes; anything else loses all lines from there on.
        if whole or "end of data" not in str(error):
            widths += [0] * max(text.count("\n") - start, 1)
    if not whole and len(widths) > 1:
        widths.pop()
    if not header:
        return (-1.0, -1.0, 0)
    found = sum(name in header for name in wanted) / max(len(wanted), 1)
    even = widths.count(len(header)) / len(widths) if len(header) > 1 else 0.0
    return (found, even, opened)
