"""The front query over 100,000 evaluations in SQLite, the whole way of ``lamps front``."""

from __future__ import annotations

import tempfile

import numpy as np
from bench_table import Figure, figure, timed
from sqlalchemy import text

import lamps
from lamps.store import RunSpec, Store
from lamps.types import Candidate, Cost, Objective

OBJECTIVES = (Objective("error"), Objective("ms"), Objective("bytes"))


def fill(url: str, name: str, n: int, landmarks: int) -> None:
    """A run of ``n`` trials with ``landmarks`` evaluations each.

    One trial is written through the store; the rest are copies of its rows with other values,
    because a hundred thousand commits are not what is measured here.
    """
    rng = np.random.default_rng(0)
    pool = [Candidate("replay", "curve-replay", {"curve": str(i)}) for i in range(n)]
    with Store.open(url) as store:
        run = store.create_run(
            RunSpec(
                name=name,
                family="replay",
                problem_name="p",
                problem_reference={},
                problem_fingerprint=name,
                problem_card={},
                objectives=OBJECTIVES,
                front_objectives=("error", "ms", "bytes"),
                fidelities=tuple(np.linspace(0, 1, landmarks)),
                unit="share",
                method_versions={"curve-replay": "1"},
            ),
            pool,
        )
        store.set_run_state(run.id, "running")
        for k in range(landmarks):
            decision = store.decide(run.id, 0, k, policy="none", features_hash="", seed=0)
            store.complete(
                decision.id,
                values=dict.fromkeys(("error", "ms", "bytes"), 1.0),
                signals={},
                cost=Cost(wall_s=1.0),
                last=k == landmarks - 1,
            )
        _copy_rows(store, run.id, n, landmarks, rng)


def _copy_rows(
    store: Store, run_id: int, n: int, landmarks: int, rng: np.random.Generator
) -> None:
    with store._engine.begin() as connection:
        trials = [
            r[0]
            for r in connection.execute(
                text("select id from trials where run_id=:r order by trial_index"), {"r": run_id}
            )
        ]
        template = [
            dict(r._mapping)
            for r in connection.execute(
                text("select * from evaluations where trial_id=:t"), {"t": trials[0]}
            )
        ]
        decisions = [
            dict(r._mapping)
            for r in connection.execute(
                text("select * from decisions where trial_id=:t"), {"t": trials[0]}
            )
        ]
        at = max(d["id"] for d in decisions)
        rows_d, rows_e = [], []
        key = max(e["id"] for e in template) if "id" in template[0] else 0
        for trial in trials[1:]:
            for decision, row in zip(decisions, template, strict=True):
                at += 1
                key += 1
                rows_d.append(decision | {"id": at, "seq": at, "trial_id": trial})
                more = {"id": key} if "id" in row else {}
                rows_e.append(
                    row
                    | more
                    | {"trial_id": trial, "decision_id": at, "packed": rng.random(3).tobytes()}
                )
        for table, rows in (("decisions", rows_d), ("evaluations", rows_e)):
            names = ", ".join(f'"{c}"' for c in rows[0])
            marks = ", ".join(f":{c}" for c in rows[0])
            connection.execute(text(f"insert into {table} ({names}) values ({marks})"), rows)
        connection.execute(
            text("update trials set state='complete', landmark=:k where run_id=:r"),
            {"k": landmarks - 1, "r": run_id},
        )


def measure() -> list[Figure]:
    """Two shapes of 100,000 evaluations."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for n, landmarks in ((12_500, 8), (100_000, 1)):
            url = f"sqlite:///{folder}/{n}.db"
            fill(url, "bench", n, landmarks)
            store = lamps.open_store(url)
            times = [1e3 * timed(lambda s=store: s.run("bench").front()) for _ in range(7)]
            figures.append(
                figure(f"front of {n:,} trials x {landmarks} landmarks", times, "ms", 200.0)
            )
            store.close()
    return figures
