"""What the store takes and gives back about replications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamps.replication import Claim, Measurement
from lamps.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSpec:
    """What a replication measures, and on what.

    Measurements belong together where everything down to ``fingerprint`` is equal.

    Args:
        family: Name of the problem family.
        method: Name of the method.
        method_version: Its version.
        version: That of the code that measures it.
        profile: ``quick`` or ``full``.
        fingerprint: Hash of data and settings.
        summary: The method in one line.
        paper: Its source, as JSON; None for a plain baseline.
        claims: All claims of the method, in their order.
    """

    family: str
    method: str
    method_version: str
    version: str
    profile: str
    fingerprint: str
    summary: str
    paper: Mapping[str, Json] | None
    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSeed:
    """How far a claim was measured with a seed.

    Args:
        claim: Id of the claim.
        seed: The seed.
        facts: Machine and versions; empty before it is finished.
        wall_s: Seconds of the call that finished it, shared by all claims of that call.
        finished_at: Seconds since 1970; None while pairs may be missing.
        measurements: Its pairs by unit.
    """

    claim: str
    seed: int
    facts: Mapping[str, Json]
    wall_s: float
    finished_at: float | None
    measurements: Sequence[Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReplication(ReplicationSpec):
    """A replication as stored: its claims of today and all that was measured about them.

    Args:
        id: Key for further calls.
        created_at: When it was begun, in seconds since 1970.
        seeds: One entry per claim and seed, by claim and then seed.
    """

    id: int
    created_at: float
    seeds: Sequence[StoredSeed]

    def finished(self, claim: str) -> list[StoredSeed]:
        """The seeds with which a claim was measured to the end, in rising order."""
        return [s for s in self.seeds if s.claim == claim and s.finished_at is not None]
