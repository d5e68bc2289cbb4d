"""What each node of a cluster has: versions, plugins, clock, and whether it reaches the artifacts.

`facts` runs in a worker on the node; `node_findings` compares what the nodes say.
"""

from __future__ import annotations

import importlib.metadata
import platform
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lamps import __version__, artifacts
from lamps.cluster.findings import Finding, bad, good, warn
from lamps.errors import LampsError
from lamps.plugins import registry

ANSWER_S = 120.0
MAX_SKEW_S = 2.0


def facts(probe: str, digest: str) -> dict[str, Any]:
    """The facts of the node on which this is called.

    Args:
        probe: URI of a checkpoint that the caller has written; empty leaves the artifacts out.
        digest: Its SHA-256.
    """
    seen: dict[str, Any] = {
        "lamps": __version__,
        "python": platform.python_version(),
        "ray": importlib.metadata.version("ray"),
        "families": ", ".join(sorted(registry("").families)),
        "clock": time.time(),
        "artifacts": "",
    }
    if probe:
        own = f"{probe}-{secrets.token_hex(4)}"
        try:
            artifacts.read_checkpoint(probe, digest)
            artifacts.write_checkpoint(own, {"node": platform.node()})
            artifacts.delete(own)
        except (LampsError, OSError) as error:
            seen["artifacts"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return seen


def ask_nodes(artifact_root: str) -> dict[str, dict[str, Any] | str]:
    """`facts` of every living node of the cluster that this process is in, by address.

    A node that did not answer has a line of text.

    Args:
        artifact_root: fsspec URL; a checkpoint is written there and deleted again. Empty leaves
            the artifacts out.

    Raises:
        StoreError: Nothing can be written there from here.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe, digest = "", ""
    if artifact_root:
        probe = artifacts.join(artifact_root, f"doctor-{secrets.token_hex(4)}")
        digest = artifacts.write_checkpoint(probe, {"from": platform.node()}).sha256
    try:
        call = ray.remote(num_cpus=0, max_retries=0)(facts)
        asked = {}
        for node in ray.nodes():
            if not node["Alive"]:
                continue
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})"
            asked[name] = call.options(scheduling_strategy=where).remote(probe, digest)
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_S)
        answers: dict[str, dict[str, Any] | str] = {}
        for name, reference in asked.items():
            try:
                answers[name] = ray.get(reference, timeout=1.0)
            except ray.exceptions.RayError as error:
                answers[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return answers
    finally:
        if probe:
            artifacts.delete(probe)


def node_findings(
    answers: Mapping[str, dict[str, Any] | str], *, now: float, artifact_root: str
) -> list[Finding]:
    """What differs between nodes that should be alike.

    Args:
        answers: By node, see `ask_nodes`.
        now: Seconds since 1970 here, when the answers had come.
        artifact_root: What was asked for.
    """
    findings = []
    heard = {name: a for name, a in answers.items() if not isinstance(a, str)}
    for name, answer in answers.items():
        if isinstance(answer, str):
            findings.append(bad("node", f"{name} gives no answer: {answer}", "look at its logs"))
    for key, text in (
        ("lamps", "install the same release of lamps on every node"),
        ("python", "use the same Python on every node"),
        ("families", "install the same plugins on every node"),
    ):
        findings.append(_alike(key, text, {n: a[key] for n, a in heard.items()}))
    skewed = {n: a["clock"] - now for n, a in heard.items()}
    # An answer is as old as the slowest one, so only a clock that runs ahead is certain.
    late = {n: s for n, s in skewed.items() if s > MAX_SKEW_S or s < -(ANSWER_S + MAX_SKEW_S)}
    if late:
        listed = ", ".join(f"{n} by {s:+.0f} s" for n, s in late.items())
        findings.append(warn("clocks", f"differ: {listed}", "run a time service on every node"))
    if artifact_root:
        blind = {n: a["artifacts"] for n, a in heard.items() if a["artifacts"]}
        shown = artifact_root if "@" not in urlsplit(artifact_root).netloc else "the artifact root"
        if blind:
            name, reason = next(iter(blind.items()))
            findings.append(
                bad(
                    "artifacts",
                    f"{len(blind)} of {len(heard)} nodes do not reach {shown}; {name}: {reason}",
                    "name a folder that all nodes mount, or an object store, with --artifacts",
                )
            )
        else:
            findings.append(good("artifacts", f"all {len(heard)} nodes reach {shown}"))
    return findings


def _alike(key: str, advice: str, values: Mapping[str, str]) -> Finding:
    counts = Counter(values.values())
    if len(counts) <= 1:
        return good(key, f"{next(iter(counts), '-')} on all {len(values)} nodes")
    common = counts.most_common(1)[0][0]
    listed = "; ".join(f"{n} has {v}" for n, v in values.items() if v != common)
    return bad(key, f"most nodes have {common}; {listed}", advice)
