"""What was found: the claims of a method with their verdicts, read off what the store holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamps.replication import PROFILES, Claim, Measurement
from lamps.replication_verdicts import Verdict, verdict
from lamps.store.replication_records import StoredReplication

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """One claim and what its measurements say.

    Args:
        claim: The claim.
        verdict: Value, interval and outcome.
        seeds: Seeds that were measured to the end.
        measurements: Their pairs.
    """

    claim: Claim
    verdict: Verdict
    seeds: tuple[int, ...]
    measurements: tuple[Measurement, ...]

    def as_dict(self) -> dict[str, Any]:
        """Claim, value, interval and outcome as one flat mapping."""
        c, v = self.claim, self.verdict
        return {
            "id": c.id,
            "statement": c.statement,
            "quantity": c.quantity,
            "compare": c.compare,
            "value": v.value,
            "low": v.low,
            "high": v.high,
            "interval_over": v.basis,
            "expected": c.expectation,
            "source": c.source,
            "seeds": list(self.seeds),
            "pairs": v.n_pairs,
            "control": c.control,
            "outcome": v.outcome,
            "verdict": v.word,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationResult:
    """The claims of one method, measured.

    Args:
        stored: The replication in the store.
        claims: Its claims that were measured, in the order of the replication.
        new: Measurements that this call added; 0 where all were in the store.
    """

    stored: StoredReplication
    claims: tuple[ClaimResult, ...]
    new: int = 0

    @property
    def broken(self) -> tuple[str, ...]:
        """Ids of controls that hold although they must not."""
        return tuple(c.claim.id for c in self.claims if c.verdict.broken)

    @property
    def untested(self) -> tuple[Claim, ...]:
        """Claims of the profile that need hardware and were not measured for want of it."""
        s, seen = self.stored, {c.claim.id for c in self.claims}
        profile = next((p for p in PROFILES if p == s.profile), None)
        return tuple(
            c
            for c in s.claims
            if c.needs != "nothing"
            and c.id not in seen
            and profile is not None
            and c.measured_at(profile)
        )

    def measurements(self) -> list[dict[str, Any]]:
        """All pairs as rows."""
        return [
            {
                "claim": m.claim,
                "seed": m.seed,
                "unit": m.unit,
                "newcomer": m.newcomer,
                "comparison": m.comparison,
                "details": dict(m.details),
            }
            for c in self.claims
            for m in c.measurements
        ]

    def as_dict(self) -> dict[str, Any]:
        """Everything as one JSON document."""
        s = self.stored
        return {
            "family": s.family,
            "method": s.method,
            "method_version": s.method_version,
            "profile": s.profile,
            "fingerprint": s.fingerprint,
            "new_measurements": self.new,
            "broken_controls": list(self.broken),
            "claims": [c.as_dict() for c in self.claims],
            "untested": [
                {"id": c.id, "statement": c.statement, "needs": c.needs} for c in self.untested
            ],
            "measurements": self.measurements(),
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per claim."""
        import pandas as pd

        return pd.DataFrame([c.as_dict() for c in self.claims])

    def __repr__(self) -> str:
        s, words = self.stored, [c.verdict.word for c in self.claims]
        told = ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))
        return f"ReplicationResult({s.family}/{s.method}, {s.profile}: {told or 'nothing'})"


def result_of(
    stored: StoredReplication,
    *,
    claims: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    new: int = 0,
) -> ReplicationResult:
    """The verdicts on what was measured to the end; claims without such a seed are left out.

    Args:
        stored: A replication.
        claims: Ids of the claims to look at; all if None.
        seeds: Seeds that count; all if None.
        new: Measurements that were just added.
    """
    found = []
    for claim in stored.claims:
        if claims is not None and claim.id not in claims:
            continue
        done = [s for s in stored.finished(claim.id) if seeds is None or s.seed in seeds]
        if not done:
            continue
        pairs = tuple(m for s in done for m in sorted(s.measurements, key=lambda m: m.unit))
        found.append(
            ClaimResult(
                claim=claim,
                verdict=verdict(claim, pairs),
                seeds=tuple(s.seed for s in done),
                measurements=pairs,
            )
        )
    return ReplicationResult(stored=stored, claims=tuple(found), new=new)


def newest(stored: Iterable[StoredReplication]) -> list[StoredReplication]:
    """Of each method and profile, the replication that was finished last.

    Sorted by family, method and profile, ``full`` first; those without a finished seed are left
    out.
    """
    best: dict[tuple[str, str, str], StoredReplication] = {}
    for one in stored:
        key = (one.family, one.method, one.profile)
        if finished_at(one) > (finished_at(best[key]) if key in best else -math.inf):
            best[key] = one
    return sorted(best.values(), key=lambda r: (r.family, r.method, -_rank(r.profile)))


def finished_at(stored: StoredReplication) -> float:
    """When the last seed was finished, in seconds since 1970; minus infinity if none was."""
    return max(
        (s.finished_at for s in stored.seeds if s.finished_at is not None), default=-math.inf
    )


def _rank(profile: str) -> int:
    known: Sequence[str] = PROFILES
    return known.index(profile) if profile in known else -1
