"""What must always be true of a store, as queries that find what is not.

`lamps store check` prints the findings.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from lamps.store.columns import load_json

LAWS: tuple[tuple[str, str], ...] = (
    (
        "trial {1} of run {0} is running without a pending decision",
        """SELECT r.name, t.trial_index FROM trials t JOIN runs r ON r.id = t.run_id
        WHERE t.state = 'running' AND NOT EXISTS
        (SELECT 1 FROM decisions d WHERE d.trial_id = t.id AND d.state = 'pending')""",
    ),
    (
        "decision {1} of run {0} is {2}, but its trial is {3}",
        """SELECT r.name, d.seq, d.state, t.state FROM decisions d
        JOIN trials t ON t.id = d.trial_id JOIN runs r ON r.id = d.run_id
        WHERE (d.state = 'pending' AND t.state <> 'running')
        OR (d.state IN ('crashed', 'abandoned') AND t.state <> 'crashed')
        OR (d.state = 'failed' AND t.state <> 'failed')""",
    ),
    (
        "trial {1} of run {0} is {2} without a decision that says so",
        """SELECT r.name, t.trial_index, t.state FROM trials t JOIN runs r ON r.id = t.run_id
        WHERE (t.state = 'crashed' AND NOT EXISTS (SELECT 1 FROM decisions d
            WHERE d.trial_id = t.id AND d.state IN ('crashed', 'abandoned')))
        OR (t.state = 'failed' AND NOT EXISTS (SELECT 1 FROM decisions d
            WHERE d.trial_id = t.id AND d.state = 'failed'))""",
    ),
    (
        "trial {1} of run {0} has {2} unresolved decisions",
        """SELECT r.name, t.trial_index, COUNT(*) FROM decisions d
        JOIN trials t ON t.id = d.trial_id JOIN runs r ON r.id = d.run_id
        WHERE d.state IN ('pending', 'crashed', 'abandoned')
        GROUP BY r.name, t.trial_index HAVING COUNT(*) > 1""",
    ),
    (
        "decision {1} of run {0} belongs to a trial of another run",
        """SELECT r.name, d.seq FROM decisions d JOIN trials t ON t.id = d.trial_id
        JOIN runs r ON r.id = d.run_id WHERE d.run_id <> t.run_id""",
    ),
    (
        "run {0} has {1} decisions numbered {2} to {3}; expected 1, 2, 3, ...",
        """SELECT r.name, COUNT(DISTINCT d.seq), MIN(d.seq), MAX(d.seq) FROM decisions d
        JOIN runs r ON r.id = d.run_id GROUP BY r.name
        HAVING MIN(d.seq) <> 1 OR MAX(d.seq) <> COUNT(*) OR COUNT(DISTINCT d.seq) <> COUNT(*)""",
    ),
    (
        "decision {1} of run {0} is {2}, but its evaluation is {3}",
        """SELECT r.name, d.seq, d.state, COALESCE(e.state, 'missing') FROM decisions d
        JOIN runs r ON r.id = d.run_id LEFT JOIN evaluations e ON e.decision_id = d.id
        WHERE (d.state = 'done' AND COALESCE(e.state, '') <> 'ok')
        OR (d.state = 'failed' AND COALESCE(e.state, '') <> 'failed')
        OR (d.state NOT IN ('done', 'failed') AND e.id IS NOT NULL)""",
    ),
    (
        "evaluation of decision {1} of run {0} is filed under another trial or landmark",
        """SELECT r.name, d.seq FROM evaluations e JOIN decisions d ON d.id = e.decision_id
        JOIN runs r ON r.id = d.run_id
        WHERE e.trial_id <> d.trial_id OR e.landmark <> d.landmark""",
    ),
    (
        "trial {1} of run {0} says landmark {2}, but its last ok evaluation is at {3}",
        """SELECT r.name, t.trial_index, t.landmark, COALESCE(MAX(e.landmark), -1) FROM trials t
        JOIN runs r ON r.id = t.run_id
        LEFT JOIN evaluations e ON e.trial_id = t.id AND e.state = 'ok'
        GROUP BY r.name, t.id, t.trial_index, t.landmark
        HAVING t.landmark <> COALESCE(MAX(e.landmark), -1)""",
    ),
    (
        "trial {1} of run {0} is {2} at landmark {3}",
        """SELECT r.name, t.trial_index, t.state, t.landmark FROM trials t
        JOIN runs r ON r.id = t.run_id
        WHERE (t.state = 'waiting' AND t.landmark <> -1)
        OR (t.state IN ('paused', 'complete') AND t.landmark < 0)""",
    ),
    (
        "decision {1} of run {0} is done, but its last attempt has no cost",
        """SELECT r.name, d.seq FROM decisions d JOIN runs r ON r.id = d.run_id
        WHERE d.state = 'done' AND NOT EXISTS
        (SELECT 1 FROM costs c WHERE c.decision_id = d.id AND c.attempt = d.attempt)""",
    ),
    (
        "decision {1} of run {0} has a cost for attempt {2}, which it never made",
        """SELECT r.name, d.seq, c.attempt FROM costs c JOIN decisions d ON d.id = c.decision_id
        JOIN runs r ON r.id = d.run_id WHERE c.attempt > d.attempt OR c.attempt < 1""",
    ),
    (
        "the checkpoint of trial {1} of run {0} is at landmark {2}, the trial at {3}",
        """SELECT r.name, t.trial_index, k.landmark, t.landmark FROM checkpoints k
        JOIN trials t ON t.id = k.trial_id JOIN runs r ON r.id = t.run_id
        WHERE k.landmark > t.landmark""",
    ),
    (
        "run {0} is finished, but trial {1} is {2}",
        """SELECT r.name, t.trial_index, t.state FROM trials t JOIN runs r ON r.id = t.run_id
        WHERE r.state = 'finished' AND t.state IN ('waiting', 'paused', 'running')""",
    ),
)
"""A sentence, and the rows for which it is true."""

_LIMIT = 20  # findings of one kind that are spelled out


def check(connection: Connection) -> list[str]:
    """Everything that is wrong with a store, one line each; empty if all is well."""
    findings = list(_sqlite_findings(connection)) if connection.dialect.name == "sqlite" else []
    for sentence, query in LAWS:
        rows = connection.execute(text(query)).fetchall()
        findings += [sentence.format(repr(row[0]), *row[1:]) for row in rows[:_LIMIT]]
        if len(rows) > _LIMIT:
            findings.append(f"... and {len(rows) - _LIMIT} more of this kind")
    return findings + list(_short_blobs(connection))


def _sqlite_findings(connection: Connection) -> Iterator[str]:
    for (line,) in connection.exec_driver_sql("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"
    for table, rowid, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"row {rowid} of table {table} points to a missing row of {parent}"


def _short_blobs(connection: Connection) -> Iterator[str]:
    """Evaluations whose blob does not hold one float64 per objective of their run."""
    for run_id, name, objectives in connection.execute(
        text("SELECT id, name, objectives FROM runs")
    ).fetchall():
        size = 8 * len(load_json(objectives))
        bad = connection.execute(
            text(
                "SELECT COUNT(*) FROM evaluations e JOIN trials t ON t.id = e.trial_id "
                "WHERE t.run_id = :run AND LENGTH(e.packed) <> :size"
            ),
            {"run": run_id, "size": size},
        ).scalar_one()
        if bad:
            yield f"{bad} evaluations of run {name!r} do not hold {size} bytes"
