"""``lamps compare``: two runs of one problem, measured with one ruler."""

from __future__ import annotations

from typing import Any

import click

from lamps.cli.output import emit, output_options, store_option
from lamps.errors import ConfigError


@click.command()
@click.argument("first")
@click.argument("second")
@store_option
@output_options
def compare(first: str, second: str, store: str | None, as_json: bool, nl: bool) -> None:
    """Compare the fronts of runs FIRST and SECOND up to one reference point.

    \b
    Example:
      lamps compare reviews reviews-exhaustive
    """  # noqa: D301
    import lamps
    from lamps.front import Front

    with lamps.open_store(store, create=False) as opened:
        runs = [opened.run(first), opened.run(second)]
        records = [r.record for r in runs]
        if records[0].problem_fingerprint != records[1].problem_fingerprint:
            raise ConfigError(
                f"{first!r} and {second!r} searched different data or splits "
                f"({records[0].problem_name} {records[0].problem_fingerprint[:8]} and "
                f"{records[1].problem_name} {records[1].problem_fingerprint[:8]}); their fronts "
                "cannot be compared. Search again with the same file and data options"
            )
        shared = [n for n in records[0].front_objectives if n in records[1].front_objectives]
        if not shared:
            raise ConfigError(f"{first!r} and {second!r} share no objective")
        fronts = [r.front(*shared) for r in runs]
        both = Front.of([m for f in fronts for m in f.pool], fronts[0].objectives)
        point = both.reference_point if both.pool else None
        joint = {id(m) for m in both}
        rows: list[dict[str, Any]] = []
        for run, record, found in zip(runs, records, fronts, strict=True):
            rows.append(
                {
                    "run": run.name,
                    "policy": record.policy,
                    "state": record.state,
                    "landmarks": record.n_evaluations,
                    "landmark_s": record.cost_wall_s,
                    "front": len(found),
                    "hypervolume": found.hypervolume(point) if point else 0.0,
                    "on_joint_front": sum(id(m) in joint for m in found),
                }
            )
        title = None
        if point:
            title = "up to " + ", ".join(f"{k}={v:.4g}" for k, v in point.items())
        emit(
            rows,
            as_json=as_json,
            nl=nl,
            document={"reference_point": point, "runs": rows},
            title=title,
        )
