"""``lamps status``: all runs, or one."""

from __future__ import annotations

import time
from typing import Any

import click

from lamps.cli.output import emit, output_options, store_option


@click.command()
@click.argument("run", required=False)
@store_option
@output_options
def status(run: str | None, store: str | None, as_json: bool, nl: bool) -> None:
    """List all runs, or show how far RUN is.

    \b
    Example:
      lamps status reviews
    """  # noqa: D301
    import lamps

    with lamps.open_store(store, create=False) as opened:
        if run is None:
            rows = [
                {
                    "run": r.name,
                    "state": r.state,
                    "problem": f"{r.family}:{r.problem_name}",
                    "policy": r.policy,
                    "finished": f"{r.n_complete}/{r.n_trials}",
                    "landmarks": r.n_evaluations,
                    "spent_s": round(r.spent_wall_s, 1),
                    "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(r.created_at)),
                }
                for r in opened.runs()
            ]
            emit(rows, as_json=as_json, nl=nl, title=None if rows else "no runs yet")
            return
        found = opened.run(run)
        record = found.record
        rows = [_row(t) for t in found.trials()]
        document = {
            "run": record.name,
            "state": record.state,
            "note": record.note,
            "problem": f"{record.family}:{record.problem_name}",
            "policy": record.policy,
            "budget": record.budget.as_dict(),
            "spent": {
                "wall_s": record.spent_wall_s,
                "device_s": record.cost_device_s,
                "landmarks": record.n_decisions,
            },
            "counts": dict(record.counts),
            "objectives": list(record.front_objectives),
            "card": dict(record.problem_card),
            "trials": rows,
        }
        title = f"{record.name}: {record.state}" + (f" ({record.note})" if record.note else "")
        title += f"\n{found!r}"
        emit(rows, as_json=as_json, nl=nl, document=document, title=title)


def _row(trial: Any) -> dict[str, Any]:
    last = next((e for e in reversed(trial.evaluations) if e.state == "ok"), None)
    row: dict[str, Any] = {
        "#": str(trial.index),
        "candidate": trial.label,
        "state": trial.state,
        "landmarks": trial.landmark + 1,
        "fidelity": last.fidelity if last else None,
        "seconds": sum(e.cost.wall_s for e in trial.evaluations if e.cost),
    }
    row["error"] = (trial.error or "").split("\n")[0]
    return row
