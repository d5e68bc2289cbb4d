"""Remembering: runs, trials, decisions and evaluations in SQL, so that a search survives anything.

`Store` is the only writer; `lamps.store.states` holds the moves it allows, `lamps.store.records`
what it returns.
"""

from lamps.store.records import (
    Decision,
    DecisionRecord,
    FinalValues,
    PolicyRecord,
    PolicyScore,
    PoolMember,
    Run,
    RunHead,
    RunSpec,
    RunSummary,
    StoredCheckpoint,
    StoredEvaluation,
    TestScore,
    Trial,
)
from lamps.store.replication_records import ReplicationSpec, StoredReplication, StoredSeed
from lamps.store.store import Store

__all__ = [
    "Decision",
    "DecisionRecord",
    "FinalValues",
    "PolicyRecord",
    "PolicyScore",
    "PoolMember",
    "ReplicationSpec",
    "Run",
    "RunHead",
    "RunSpec",
    "RunSummary",
    "Store",
    "StoredCheckpoint",
    "StoredEvaluation",
    "StoredReplication",
    "StoredSeed",
    "TestScore",
    "Trial",
]
