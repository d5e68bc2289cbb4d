"""The doctor: looks at Ray's doors, the nodes, the database and the artifact root before a search.

Nothing is changed; each finding says what is there and what to do.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

from lamps.cluster.doors import (
    dashboard_finding,
    port_findings,
    token_findings,
    version_finding,
)
from lamps.cluster.findings import Finding, bad, good, warn
from lamps.cluster.node_facts import ask_nodes, node_findings
from lamps.errors import LampsError, StoreError
from lamps.scheduler.ray import RayBackend
from lamps.store import Store
from lamps.store.engine import hidden, parse_url

_SECRET_NAME = re.compile(r"(?i)(pass(word)?|secret|token|api_?key|credential|private_?key)")


def examine(
    *,
    address: str | None = None,
    dashboard: str | None = None,
    store: str | None = None,
    artifacts: str = "",
) -> list[Finding]:
    """All that can be found out.

    Args:
        address: Of the cluster; None looks at this machine only.
        dashboard: Of the dashboard, such as ``http://127.0.0.1:8265``.
        store: SQLAlchemy URL of the database that searches will use.
        artifacts: fsspec URL of the artifact root that searches will use.
    """
    findings = [version_finding(), *token_findings(), *port_findings()]
    if dashboard:
        findings.append(dashboard_finding(dashboard))
    n_nodes = 1
    if address is not None:
        answers = _nodes(address, artifacts, findings)
        n_nodes = len(answers)
    if store is not None:
        findings += store_findings(store, n_nodes)
    if dashboard:
        findings += job_findings(dashboard)
    given = {"--address": address, "--dashboard": dashboard, "--store": store}
    if address is not None:
        given["--artifacts"] = artifacts
    if left_out := [flag for flag, value in given.items() if not value]:
        findings.append(
            warn("not examined", f"nothing was looked at for {', '.join(left_out)}", "name them")
        )
    return findings


def _nodes(address: str, artifacts: str, findings: list[Finding]) -> dict[str, Any]:
    backend = RayBackend(1, address=address)
    try:
        backend.connect()
        try:
            answers = ask_nodes(artifacts)
        except StoreError as error:
            findings.append(bad("artifacts", f"not from here: {error}", "look at --artifacts"))
            answers, artifacts = ask_nodes(""), ""
    except LampsError as error:
        findings.append(bad("cluster", str(error), "look at its head"))
        return {}
    finally:
        backend.close()
    findings.append(good("cluster", f"{len(answers)} nodes at {address}"))
    findings += node_findings(answers, now=time.time(), artifact_root=artifacts)
    return answers


def store_findings(url: str, n_nodes: int) -> list[Finding]:
    """Whether the database can be used by searches on so many nodes.

    The password of a URL is never shown.
    """
    try:
        parsed = parse_url(url)
        shown = hidden(parsed)
        with Store.open(url) as opened:
            problems = opened.check()
    except LampsError as error:
        return [bad("store", str(error), "repair it, or name another one")]
    findings = []
    if problems:
        findings.append(bad("store", f"{shown}: {problems[0]}", "lamps store check"))
    else:
        findings.append(good("store", f"{shown} answers and is whole"))
    if parsed.get_backend_name() == "sqlite" and n_nodes > 1:
        findings.append(
            warn(
                "store",
                f"{shown} is a file, which only its own machine should write",
                "use PostgreSQL, so that a search can be resumed and looked at from any node",
            )
        )
    if parsed.password:
        findings.append(
            warn(
                "store password",
                "the URL holds a password, and command lines can be read by others",
                "keep it in ~/.pgpass or a service of pg_service.conf",
            )
        )
    return findings


def job_findings(dashboard: str) -> list[Finding]:
    """Whether jobs of the cluster carry what looks like secrets where everybody can see them."""
    from lamps.cluster.jobs import Jobs

    try:
        jobs = Jobs(dashboard).raw()
    except LampsError as error:
        return [warn("jobs", str(error), "is the dashboard running?")]
    shown: Counter[str] = Counter()
    for job in jobs:
        variables = ((job.runtime_env or {}).get("env_vars")) or {}
        shown.update(name for name in variables if _SECRET_NAME.search(name))
    if shown:
        listed = ", ".join(f"{name} ({n} jobs)" for name, n in sorted(shown.items()))
        return [
            bad(
                "jobs",
                f"runtime_env holds {listed}, which the dashboard shows",
                "set them in the environment of the nodes",
            )
        ]
    return [good("jobs", f"{len(jobs)} jobs, no secret in their runtime_env")]
