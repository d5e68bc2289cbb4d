"""Figures of the store; asserted with room for a busy machine, printed as they are."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
from _store_samples import COST, FIDELITIES, candidates, complete, decide, spec, started
from sqlalchemy import Connection, delete, insert, select

from lamps.store import Run, Store
from lamps.store.columns import pack
from lamps.store.models import CostRow, DecisionRow, EvaluationRow, TrialRow, core


def fill(store: Store, n_trials: int, n_landmarks: int) -> tuple[Run, np.ndarray]:
    """A run whose trials all reached the last of ``n_landmarks`` landmarks, written in bulk."""
    fidelities = tuple(np.linspace(0, 1, n_landmarks)) if n_landmarks > 1 else (1.0,)
    run = store.create_run(spec(f"{n_trials} trials", fidelities=fidelities), candidates(1))
    values = np.random.default_rng(0).random((n_trials, n_landmarks, 3))
    signals = {"grad_norm": 0.123, "latency_p90": 12.5}

    def work(connection: Connection) -> None:
        first = store.trials(run.id)[0]
        assert first.index == 0
        row = connection.execute(
            select(core(TrialRow)).where(TrialRow.run_id == run.id)
        ).mappings().one()  # fmt: skip
        base = {k: v for k, v in row.items() if k not in ("id", "trial_index")}
        base |= {"state": "complete", "landmark": n_landmarks - 1, "attempts": 1}
        connection.execute(delete(core(TrialRow)).where(TrialRow.run_id == run.id))
        connection.execute(
            insert(TrialRow),
            [base | {"id": row["id"] + i, "trial_index": i} for i in range(n_trials)],
        )
        cells = [(i, k) for i in range(n_trials) for k in range(n_landmarks)]
        connection.execute(
            insert(DecisionRow),
            [
                {
                    "id": number, "run_id": run.id, "trial_id": row["id"] + i, "seq": number,
                    "landmark": k, "policy": "p", "features_hash": "f", "seed": 1, "note": "",
                    "state": "done", "attempt": 1, "created_at": 0.0,
                }
                for number, (i, k) in enumerate(cells, 1)
            ],
        )  # fmt: skip
        connection.execute(
            insert(EvaluationRow),
            [
                {
                    "trial_id": row["id"] + i, "decision_id": number, "landmark": k,
                    "fidelity": fidelities[k], "state": "ok", "packed": pack(values[i, k]),
                    "signals": signals, "created_at": 0.0,
                }
                for number, (i, k) in enumerate(cells, 1)
            ],
        )  # fmt: skip
        connection.execute(
            insert(CostRow),
            [
                {"decision_id": n, "attempt": 1, "wall_s": 1.0, "device_s": 1.0,
                 "peak_bytes": 1, "checkpoint_bytes": 0}
                for n in range(1, len(cells) + 1)
            ],
        )  # fmt: skip

    store._write(work)
    return run, values


def median_ms(call: Callable[[], object], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begin))
    return statistics.median(taken)


@pytest.mark.parametrize(("n_trials", "n_landmarks"), [(12_500, 8), (100_000, 1)])
def test_a_front_query_over_100_000_evaluations(
    sqlite_url: str, n_trials: int, n_landmarks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(sqlite_url) as store:
        run, values = fill(store, n_trials, n_landmarks)
        final = store.final_values(run.id)
        assert np.array_equal(final.values, values[:, -1])
        taken = median_ms(lambda: store.final_values(run.id, ["val_error", "gain"]))
        with capsys.disabled():
            shape = {"trials": n_trials, "landmarks": n_landmarks, "ms": round(taken, 1)}
            print("\nfront query, SQLite:", json.dumps(shape))
        assert taken < 1000


def test_loading_a_thousand_trials(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(url) as store:
        run, values = fill(store, 1000, 8)
        assert store.check() == []
        trials = store.trials(run.id)
        assert trials[999].evaluations[7].values["gain"] == values[999, 7, 2]
        taken = median_ms(lambda: store.trials(run.id), times=3)
        with capsys.disabled():
            print(f"\nload 1,000 trials x 8, {store.url.split(':')[0]}: {taken:.0f} ms")
        assert taken < 2000


def test_a_decision_and_its_outcome(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(url) as store:
        run = started(store, n=100)
        todo = iter(range(100))

        def landmark() -> None:
            complete(
                store, decide(store, run, next(todo), len(FIDELITIES) - 1),
                cost=COST, checkpoint=("file:///c", "0" * 64, 1),
            )  # fmt: skip

        taken = median_ms(landmark, times=100)
        with capsys.disabled():
            print(f"\ndecide + complete, {store.url.split(':')[0]}: {taken:.2f} ms")
        assert taken < 100
