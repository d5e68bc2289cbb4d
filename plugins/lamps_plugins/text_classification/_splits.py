"""Who goes where: sampling, stratified and grouped splits, and the order of the training rows.

Everything is decided by a keyed hash of the text, never by the position in the file, so the same
rows in another order give the same problem. Equal texts (after NFC and white-space folding) have
equal hashes and form one *unit* that is never cut.
"""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Reservoir", "Sample", "assign", "normalised", "spread", "text_key", "units_of"]

SPLITS = ("train", "val", "test")
_PER_CLASS = (
    4  # kept of every class, however rare: enough for one row in val and test and two in train
)


def normalised(text: str) -> str:
    """The text as duplicates are compared: NFC, runs of white space folded to one space."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def text_key(text: str, seed: int) -> int:
    """128-bit hash of a normalised text, keyed by the seed; it is the random order used here."""
    key = seed.to_bytes(8, "little", signed=False)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16, key=key).digest(), "big")


@dataclass(frozen=True, slots=True)
class Sample:
    """One usable row: its text, raw labels, group and the hash of the text."""

    text: str
    labels: tuple[Any, ...]
    group: str | None
    key: int

    def order(self) -> tuple[int, str, str]:
        """Sorts rows independently of their place in the file."""
        return (self.key, self.text, repr(self.labels))


class Reservoir:
    """Keeps a uniform sample of bounded size from a stream, and a few rows of every class.

    Without a capacity it keeps everything. With one it keeps the rows with the smallest hashes (a
    bottom-k sample: uniform over different texts, independent of the order of the stream) and
    counts exact repeats only once.

    Args:
        capacity: Most rows of the sample; None keeps all.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.seen = 0
        self.repeated = 0
        self._all: list[Sample] = []
        self._global = _BottomK(capacity or 0)
        self._per_class: dict[Any, _BottomK] = {}

    def add(self, sample: Sample) -> None:
        """Take one row of the stream."""
        self.seen += 1
        if self.capacity is None:
            self._all.append(sample)
            return
        if (sample.key, sample.labels) in self._global.rows:
            self.repeated += 1
            return
        self._global.add(sample)
        for label in sample.labels:
            self._per_class.setdefault(label, _BottomK(_PER_CLASS)).add(sample)

    def rows(self) -> list[Sample]:
        """What was kept, in hash order."""
        if self.capacity is None:
            return sorted(self._all, key=Sample.order)
        kept = dict(self._global.rows)
        for few in self._per_class.values():
            kept |= few.rows
        return sorted(kept.values(), key=Sample.order)


class _BottomK:
    """The k rows with the smallest hashes, one for each (text, labels)."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.rows: dict[tuple[int, tuple[Any, ...]], Sample] = {}
        self._heap: list[tuple[int, tuple[Any, ...]]] = []  # largest hash on top
        self._largest = 0

    def add(self, sample: Sample) -> None:
        name = (sample.key, sample.labels)
        if len(self._heap) >= self.k and sample.key > self._largest:
            return
        if name in self.rows:
            return
        self.rows[name] = sample
        heapq.heappush(self._heap, (-sample.key, sample.labels))
        if len(self._heap) > self.k:
            key, labels = heapq.heappop(self._heap)
            del self.rows[(-key, labels)]
        self._largest = -self._heap[0][0]


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows that stay together: indices, class counts and the smallest hash."""

    rows: tuple[int, ...]
    strata: Mapping[Any, int]
    key: int


def units_of(rows: Sequence[Sample], strata: Sequence[Sequence[int]]) -> list[Unit]:
    """Units of rows that share a text or a group, transitively.

    Args:
        rows: Usable rows.
        strata: Classes of each row (one, or several for multi-label).
    """
    parent = list(range(len(rows)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[Any, int] = {}
    for i, row in enumerate(rows):
        for name in (row.key, row.group):
            if name is None:
                continue
            j = first.setdefault(name, i)
            a, b = root(i), root(j)
            parent[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(rows)):
        members[root(i)].append(i)
    units = [
        Unit(
            tuple(indices),
            Counter(s for i in indices for s in strata[i]),
            min(rows[i].key for i in indices),
        )
        for indices in members.values()
    ]
    return sorted(units, key=lambda unit: unit.key)


def assign(
    units: Sequence[Unit], shares: Mapping[str, float], *, greedy: bool = False
) -> dict[str, list[int]]:
    """Row indices of each split, stratified by class; units stay whole.

    A class with one unit goes to train, with two to train and val, with three or more into every
    split; where rows have several labels or come in groups, this holds as far as the units allow.

    Args:
        units: In hash order, as `units_of` returns them.
        shares: Share of rows of each held-out split (``val``, ``test``, or one of them); the rest
            is train.
        greedy: Units hold several classes as a rule (groups, multi-label).

    Returns:
        Row indices of ``train`` and of each split in ``shares``.
    """
    taken: dict[str, list[int]] = {name: [] for name in ("train", *shares)}
    simple: dict[Any, list[Unit]] = defaultdict(list)
    mixed: list[Unit] = []
    for unit in units:
        if len(unit.strata) == 1:
            simple[next(iter(unit.strata))].append(unit)
        else:
            mixed.append(unit)
    if greedy or sum(len(u.rows) for u in mixed) * 20 > sum(len(u.rows) for u in units):
        _assign_greedily(units, shares, taken)
        return taken
    for members in simple.values():
        _assign_stratum(members, shares, taken)
    # A handful of texts with contradicting labels: training rows, because val should not ask what
    # has no answer.
    for unit in mixed:
        taken["train"].extend(unit.rows)
    return taken


def _assign_stratum(
    members: Sequence[Unit], shares: Mapping[str, float], taken: dict[str, list[int]]
) -> None:
    total = sum(len(unit.rows) for unit in members)
    left = len(members)
    held = [name for name in ("val", "test") if name in shares]
    room: dict[str, int] = {}
    for i, name in enumerate(held):
        # One unit of the class is for train, and those before this split come first.
        room[name] = max(round(total * shares[name]), 1) if left >= 2 + i else 0
    filled = dict.fromkeys(held, 0)
    for unit in members:
        left -= 1
        size = len(unit.rows)
        name = "train"
        for option in sorted(held, key=lambda h: filled[h] / max(room[h], 1)):
            fits = filled[option] + size <= room[option]
            # A split that must have something takes a large unit too, unless it is the last one
            # and train has none.
            if fits or (room[option] and not filled[option] and left >= 1 and size * 2 <= total):
                name = option
                break
        if name != "train":
            filled[name] += size
        taken[name].extend(unit.rows)


def _assign_greedily(
    units: Sequence[Unit], shares: Mapping[str, float], taken: dict[str, list[int]]
) -> None:
    """Iterative stratification (Sechidis et al., ECML 2011), rarity of classes fixed beforehand.

    Each unit goes where its rarest class is missed most, so a rare class is placed before common
    ones fill the splits.
    """
    totals: Counter[Any] = Counter()
    for unit in units:
        totals.update(unit.strata)
    parts = {"train": 1.0 - sum(shares.values())} | dict(shares)
    wanted = {name: {s: n * part for s, n in totals.items()} for name, part in parts.items()}
    n_rows = sum(len(unit.rows) for unit in units)
    open_rows = {name: n_rows * part for name, part in parts.items()}

    def rarest(unit: Unit) -> Any:
        return min(unit.strata, key=lambda s: (totals[s], s)) if unit.strata else None

    def turn(unit: Unit) -> tuple[float, int, int]:
        rare = rarest(unit)
        return (totals[rare] if rare is not None else float("inf"), -len(unit.rows), unit.key)

    for unit in sorted(units, key=turn):
        rare = rarest(unit)
        name = max(
            parts, key=lambda p: (wanted[p][rare] if rare is not None else 0.0, open_rows[p])
        )
        for stratum, count in unit.strata.items():
            wanted[name][stratum] -= count
        open_rows[name] -= len(unit.rows)
        taken[name].extend(unit.rows)


def spread(keys: Sequence[int], strata: Sequence[int]) -> list[int]:
    """An order whose prefixes are nearly stratified, each class appearing as early as it can.

    The first row of every class comes first (common classes before rare ones); then the i-th row
    of a class with n rows stands at about i/n of the whole, so a prefix of length k holds k*n/N of
    them, give or take one or two.

    Args:
        keys: Hash of each row, which fixes the order within a class.
        strata: Class of each row.

    Returns:
        Indices of the rows in that order.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for i in sorted(range(len(keys)), key=lambda i: keys[i]):
        members[strata[i]].append(i)
    common_first = sorted(members, key=lambda s: (-len(members[s]), s))
    place: list[tuple[float, int, int]] = []
    for rank, stratum in enumerate(common_first):
        n = len(members[stratum])
        for position, i in enumerate(members[stratum]):
            # Low bits of the hash spread rows inside their n-th of the whole; the high bits
            # ordered them.
            jitter = (keys[i] & 0xFFFFFFFF) / 2**32
            at = (position + jitter) / n if position else -1.0 + rank * 1e-9
            place.append((at, rank, i))
    return [i for _, _, i in sorted(place)]
