"""The family ``sparse-attention``: decoders read long sequences, and not all of them.

A problem is a source of sequences (`_items`) of three lengths, a quarter, a half and the whole of
the longest. Landmarks add lengths; what one reads, the next one does too:

    0       one sequence of a quarter of the length
    0.25    all of that length
    0.5     those of half the length besides
    1       all
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from lamps.errors import ProblemError
from lamps.method import Family, Problem
from lamps.types import Evaluation, Json, Objective, Split, canonical_json
from lamps_plugins._views.epochs import one_thread
from lamps_plugins.sparse_attention import _measure
from lamps_plugins.sparse_attention._items import Item, Numbers, Source
from lamps_plugins.sparse_attention._options import OPTIONS

if TYPE_CHECKING:
    from lamps_plugins.sparse_attention._rule import Rule

__all__ = ["FAMILY", "FIDELITIES", "AttentionFamily", "AttentionProblem"]

FIDELITIES = (0.0, 0.25, 0.5, 1.0)

N_RESAMPLES = 500
"""Resamples of a bootstrap interval over sequences."""


class AttentionProblem(Problem):
    """Sequences, and what attention by a rule costs and saves on them.

    Args:
        name: What lists call it.
        source: Where sequences come from.
        length: Tokens of the longest; a multiple of 8.
        sequences: How many there are of each length and split.
        reference: JSON from which the family makes it again.
    """

    family: ClassVar[str] = "sparse-attention"

    def __init__(
        self,
        *,
        name: str,
        source: Source,
        length: int,
        sequences: int,
        reference: Mapping[str, Json],
    ) -> None:
        self.name, self.source = name, source
        self.length, self.sequences = length, sequences
        self.test_opened = 0
        self._reference = dict(reference)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of sequences, the shortest first."""
        return (self.length // 4, self.length // 2, self.length)

    def items(self, split: Split, fidelity: float) -> tuple[Item, ...]:
        """Sequences of a landmark, the shortest first."""
        if fidelity <= 0.0:
            return (Item(split, self.lengths[0], 0),)
        used = [n for n in self.lengths if n <= fidelity * self.length]
        return tuple(Item(split, n, i) for n in used for i in range(self.sequences))

    def run(self, rule: Rule[Any], item: Item) -> Numbers:
        """What a sequence gives under a rule; see `Source.run`. One thread."""
        import torch

        if item.split == "test":
            self.test_opened += 1
        with one_thread(), torch.inference_mode():
            return self.source.run(rule, item)

    def measure(self, rule: Rule[Any], split: Split, *, fidelity: float) -> Evaluation:
        """Every objective but those of the worker.

        Time, memory and kept mass are those of the longest sequence of the landmark, attention
        alone; see `_measure`. On test the signals hold the 95 % interval of a bootstrap over
        sequences.
        """
        items = self.items(split, fidelity)
        if split == "val":
            numbers = [rule.results_[item.key] for item in items]
        else:
            numbers = [self.run(rule, item) for item in items]
        layers = self.source.heads(items[-1])
        timed = _measure.timing(rule, layers)
        found = _measure.of_layers(rule, layers)
        objectives = {
            f"{split}_error": self.source.error(numbers),
            "latency_ratio": timed.ratio,
            "extra_bytes": found["extra_bytes"],
            "density": sum(n["kept"] for n in numbers) / sum(n["visible"] for n in numbers),
        }
        signals = {
            "output_error": found["output_error"],
            "kept_mass": found["kept_mass"],
            "dense_s": timed.dense_s,
            "attend_s": timed.sparse_s - timed.select_s,
            "select_share": timed.select_s / timed.dense_s,
            "length": float(items[-1].length),
        }
        if split == "test":
            signals |= self._interval(numbers)
        else:
            signals |= self._by_length(items, numbers)
        return Evaluation(objectives, signals)

    def _by_length(self, items: tuple[Item, ...], numbers: list[Numbers]) -> dict[str, float]:
        found = {}
        for length in sorted({item.length for item in items}):
            some = [n for item, n in zip(items, numbers, strict=True) if item.length == length]
            found[f"error_{length}"] = self.source.error(some)
        return found

    def _interval(self, numbers: list[Numbers]) -> dict[str, float]:
        rng = np.random.default_rng(0)
        draws = [
            self.source.error([numbers[i] for i in rng.integers(0, len(numbers), len(numbers))])
            for _ in range(N_RESAMPLES)
        ]
        low, high = np.percentile(draws, [2.5, 97.5])
        return {"test_error_low": float(low), "test_error_high": float(high)}

    # --- the contract --------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return _measure.OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return FIDELITIES

    @property
    def unit(self) -> str:
        return "tokens"

    def amount(self, fidelity: float) -> float:
        """Tokens of the validation sequences of a landmark."""
        return float(sum(item.length for item in self.items("val", fidelity)))

    def check_fidelity(self, fidelity: float) -> None:
        """Refuse a fidelity at which there is no landmark."""
        if fidelity not in FIDELITIES:
            known = ", ".join(f"{f:g}" for f in FIDELITIES)
            raise ProblemError(f"fidelity {fidelity!r} is no landmark, expected one of {known}")

    def reference(self) -> dict[str, Json]:
        return {**self._reference, "name": self.name, "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        """Hash of source, lengths and number of sequences."""
        settings = [self.source.fingerprint(), self.length, self.sequences]
        return hashlib.sha256(canonical_json(settings).encode()).hexdigest()

    def card(self) -> dict[str, Json]:
        """Source and sizes."""
        return {
            "name": self.name,
            "kind": self.source.kind,
            "val_error": self.source.quality,
            "lengths": list(self.lengths),
            "sequences": self.sequences,
            **self.source.card(),
            "fingerprint": self.fingerprint(),
        }

    def __repr__(self) -> str:
        return f"AttentionProblem({self.name!r}, {self.sequences} of each of {self.lengths})"


class AttentionFamily(Family):
    """Rules for sparse prefill."""

    name: ClassVar[str] = "sparse-attention"
    summary: ClassVar[str] = "Keep the blocks of attention that matter in prefill; no training."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_error", "latency_ratio")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> AttentionProblem:
        """A built-in problem, or the user's own decoder and text.

        Raises:
            ProblemError: Model or text cannot be used.
            ConfigError: An option cannot be used.
        """
        from lamps_plugins.sparse_attention import _opening

        self.check_options(options)
        return _opening.open_any(reference, {k: v for k, v in options.items() if v is not None})

    def reopen(self, reference: Mapping[str, Json]) -> AttentionProblem:
        """The problem of a reference; refused if model or text changed since."""
        options = cast("dict[str, Any]", reference.get("options") or {})
        builtin = reference.get("builtin")
        problem = self.open_problem(None if builtin is None else str(builtin), options)
        self.require_unchanged(problem, reference["fingerprint"], "model and text")
        return problem

    def toy_problem(self, *, seed: int = 0) -> AttentionProblem:
        """Short made-up sequences about a few topics."""
        return self.open_problem("toy", {"data_seed": seed})

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Put the scores into the member's card."""
        from lamps_plugins.sparse_attention import _export

        _export.with_scores(directory, scores)

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """What must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.sparse_attention import _refused

        yield from _refused.bad_inputs(self.open_problem)


FAMILY = AttentionFamily()
