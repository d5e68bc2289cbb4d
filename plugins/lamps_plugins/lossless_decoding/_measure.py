"""The common measurement: each prompt is continued plainly and by the method, one after the other.

Which of the two goes first alternates from prompt to prompt, so that a machine that slows down
harms both alike. Everything is timed from the prompt to the last token, the building of trees
included. The texts must be equal; see `_equality`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.types import Evaluation, Objective, Split

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._decoder import Decoder
    from lamps_plugins.lossless_decoding._problem import DecodingProblem

__all__ = ["OBJECTIVES", "Record", "measure_prompt", "summary"]

OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        "val_latency_ratio",
        noisy=True,
        doc="Elapsed time over that of plain decoding beside it; median over prompts.",
    ),
    Objective(
        "val_rows_per_token",
        "rows",
        doc="Rows processed per emitted token, 1 for plain decoding; a draft model's by its size.",
    ),
    Objective("extra_kv_bytes", "bytes", doc="Keys and values beside those of the text, at most."),
)

_WARM_UP_TOKENS = 6


@dataclass(slots=True)
class Record:
    """What one prompt showed.

    Args:
        task: Kind of prompt.
        seconds: Of the method.
        plain_seconds: Of plain decoding.
        emitted: Tokens after the first, which the pass over the prompt gives.
        calls: Passes after that.
        rows: Rows of those passes, those in other models by their size.
        extra_kv_bytes: See `OBJECTIVES`.
        near_ties: Choices between near ties that fell otherwise.
        notes: Sum and number of what else is counted, by name.
    """

    task: str
    seconds: float
    plain_seconds: float
    emitted: int
    calls: int
    rows: float
    extra_kv_bytes: int
    near_ties: int = 0
    notes: dict[str, tuple[float, float]] = field(default_factory=dict)

    def as_list(self) -> list[Any]:
        """All fields as JSON."""
        notes = {name: list(pair) for name, pair in self.notes.items()}
        return [
            self.task, self.seconds, self.plain_seconds, self.emitted, self.calls, self.rows,
            self.extra_kv_bytes, self.near_ties, notes,
        ]  # fmt: skip

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Record:
        """The inverse of `as_list`."""
        *head, notes = values
        made = {name: (float(a), float(b)) for name, (a, b) in notes.items()}
        record = cls(*head)
        record.notes = made
        return record


def measure_prompt(
    problem: DecodingProblem, method: Decoder[Any], split: Split, number: int, *, warm: bool
) -> Record:
    """Continue one prompt plainly and by the method.

    Args:
        problem: The instance.
        method: What decodes.
        split: Where the prompt comes from.
        number: Which prompt.
        warm: Whether both have run lately; else a few tokens are decoded before.

    Raises:
        MethodFailed: The method changed the text, or logits are not finite.
        ProblemError: The prompt cannot be continued.
    """
    from lamps_plugins.lossless_decoding import _equality
    from lamps_plugins.lossless_decoding._decode import Decoded, decode
    from lamps_plugins.lossless_decoding.plain import PlainDrafter

    lm, sampler = problem.lm(), problem.sampler(split, number)
    prompt = problem.prompts(split)[number]
    made = method.drafter(problem.draft_lm() if method.needs_draft else None)
    plain = PlainDrafter()

    def run(drafter: Any, max_new: int) -> Decoded:
        return decode(
            lm, drafter, prompt.tokens, max_new=max_new, sampler=sampler, stop=lm.stop_ids
        )

    if not warm:
        for drafter in (plain, made):
            run(drafter, min(_WARM_UP_TOKENS, problem.max_new))
    if number % 2 and not method.upper_bound:
        found = run(made, problem.max_new)
        reference = run(plain, problem.max_new)
    else:
        reference = run(plain, problem.max_new)
        made.foresee(reference.tokens)
        found = run(made, problem.max_new)
    ties = _equality.near_ties(
        lm, prompt.tokens, reference.tokens, found.tokens, max_new=problem.max_new,
        sampler=sampler, stop=lm.stop_ids, where=f"{method.name()}, {split} prompt {number}",
    )  # fmt: skip
    return Record(
        task=prompt.task,
        seconds=found.seconds,
        plain_seconds=reference.seconds,
        emitted=len(found.tokens) - 1,
        calls=found.calls,
        rows=found.rows + found.extra_rows,
        extra_kv_bytes=found.extra_kv_bytes,
        near_ties=ties,
        notes=method.notes(problem, prompt.tokens, reference.tokens),
    )


def summary(records: Sequence[Record], split: Split, *, seed: int = 0) -> Evaluation:
    """Objectives and signals of some prompts.

    Returns:
        Objectives ``{split}_latency_ratio``, ``{split}_rows_per_token``, ``extra_kv_bytes``;
        signals ``tau`` (tokens a call), ``calls_per_token``, ``tau_TASK``, ``latency_ratio_TASK``,
        ``near_ties``, what methods count besides, and for test the ends of the 95 % bootstrap
        intervals.
    """
    objectives = {**_of(records, split), "extra_kv_bytes": _extra(records)}
    signals = {
        "tau": _share(records, "emitted", "calls"),
        "calls_per_token": _share(records, "calls", "emitted"),
        "near_ties": float(sum(r.near_ties for r in records)),
        "plain_s_per_token": _share(records, "plain_seconds", "emitted"),
    }
    for task in sorted({r.task for r in records}):
        own = [r for r in records if r.task == task]
        signals[f"tau_{task}"] = _share(own, "emitted", "calls")
        signals[f"latency_ratio_{task}"] = _ratio(own)
    signals |= _noted([r.notes for r in records])
    if split == "test":
        signals |= _intervals(records, seed=seed)
    return Evaluation(objectives, signals)


def _of(records: Sequence[Record], split: Split) -> dict[str, float]:
    return {
        f"{split}_latency_ratio": _ratio(records),
        f"{split}_rows_per_token": _share(records, "rows", "emitted"),
    }


def _ratio(records: Sequence[Record]) -> float:
    return float(np.median([r.seconds / r.plain_seconds for r in records]))


def _share(records: Sequence[Record], over: str, under: str) -> float:
    """Sum over sum; 1 where every text ended with its first token."""
    total = sum(getattr(r, under) for r in records)
    return float(sum(getattr(r, over) for r in records) / total) if total else 1.0


def _extra(records: Sequence[Record]) -> float:
    return float(max(r.extra_kv_bytes for r in records))


def _noted(notes: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    sums: dict[str, tuple[float, float]] = {}
    for note in notes:
        for name, (total, n) in note.items():
            old = sums.get(name, (0.0, 0.0))
            sums[name] = (old[0] + total, old[1] + n)
    return {name: total / n for name, (total, n) in sums.items() if n}


def _intervals(records: Sequence[Record], *, seed: int) -> dict[str, float]:
    from lamps.stats import index_bootstrap  # pulls in scipy, which a search does not need

    ends: dict[str, float] = {}
    for name in _of(records, "test"):
        low, high = index_bootstrap(
            len(records), lambda i, name=name: _of([records[j] for j in i], "test")[name],  # type: ignore[misc]
            seed=seed,
        )  # fmt: skip
        ends |= {f"{name}_low": low, f"{name}_high": high}
    return ends
