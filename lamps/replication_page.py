"""The page of replication results, from the store alone: equal content gives an equal page."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from lamps.errors import StoreError
from lamps.markdown import table
from lamps.replication import NEEDS, Claim
from lamps.replication_results import (
    ClaimResult,
    ReplicationResult,
    finished_at,
    newest,
    result_of,
)
from lamps.store.replication_records import StoredReplication

__all__ = ["page"]

_HEAD = """# What of the papers could be seen again

Written by `lamps replicate --report` from stored measurements; do not edit. A value is the \
method's number against that of the comparison, measured side by side with the same data, seeds \
and tuning. A claim holds when the whole 95 % interval lies on the claimed side, unless it is \
marked *by value*; it is undecided when the interval lies on both. The interval is over seeds and \
units (tasks, layers, settings) unless said otherwise. A *control* must fail: it shows that the \
measurement can tell a difference."""


def page(stored: Iterable[StoredReplication]) -> str:
    """The whole page as Markdown: of each method and profile, what was finished last.

    Raises:
        StoreError: Nothing was measured to the end.
    """
    results = [result_of(one) for one in newest(stored)]
    results = [r for r in results if r.claims]
    if not results:
        raise StoreError(
            "the store holds no finished replication; run one with: lamps replicate METHOD"
        )
    parts = [_HEAD, _overview(results)]
    for family, group in groupby(results, key=lambda r: r.stored.family):
        parts.append(f"## {family}")
        for method, profiles in groupby(group, key=lambda r: r.stored.method):
            parts.append(f"### {method}")
            for result in profiles:
                parts += _method(result)
    return "\n\n".join(parts) + "\n"


def _overview(results: Sequence[ReplicationResult]) -> str:
    rows = []
    for r in results:
        plain = [c for c in r.claims if not c.claim.control]
        controls = [c for c in r.claims if c.claim.control]
        words = [c.verdict.outcome for c in plain]
        failed = sum(c.verdict.outcome == "not held" for c in controls)
        rows.append(
            (
                f"{r.stored.family}/{r.stored.method}", r.stored.profile,
                words.count("held"), words.count("not held"), words.count("undecided"),
                f"{failed} of {len(controls)}",
            )
        )  # fmt: skip
    head = ("method", "profile", "held", "not held", "undecided", "controls that fail")
    return table(head, rows)


def _method(result: ReplicationResult) -> list[str]:
    s = result.stored
    paper = _paper(s.paper)
    first = f"{s.summary[:1].upper()}{s.summary[1:]}."
    parts = [f"{first} {paper}" if paper else first]
    rows = [_row(c) for c in result.claims]
    head = (
        "claim", "statement", "measured", "value", "95 % interval", "expected", "seeds", "pairs",
        "verdict",
    )  # fmt: skip
    parts.append(table(head, rows, left=3))
    if result.untested:
        told = [
            (c.id, c.statement, c.quantity, c.expectation, NEEDS[c.needs], f"`{_again(s, c)}`")
            for c in result.untested
        ]
        headings = ("claim", "statement", "to be measured", "expected", "needs", "command")
        parts.append("Not testable on the machine that measured the others:")
        parts.append(table(headings, told, left=6))
    waiting = sorted({x.seed for x in s.seeds if x.finished_at is None})
    if waiting:
        parts.append(f"Begun and not finished: seeds {', '.join(map(str, waiting))}.")
    parts.append(_provenance(result))
    return parts


def _again(stored: StoredReplication, claim: Claim) -> str:
    where = f"{stored.family}/{stored.method} --profile {stored.profile}"
    return f"lamps replicate {where} --claim {claim.id}"


def _row(c: ClaimResult) -> tuple[Any, ...]:
    claim, v = c.claim, c.verdict
    interval = "-" if math.isnan(v.low) else f"{number(v.low)} to {number(v.high)}"
    if v.basis not in ("seeds and units", "nothing"):
        interval += f" ({v.basis})"
    expected = claim.expectation + ("" if claim.certain else ", by value")
    if claim.control:
        expected = f"not {expected}"
    who = "control" if claim.control else claim.source
    word = f"**{v.word}**" if v.word in ("not held", "control broken") else v.word
    return (
        f"{claim.id} ({who})", claim.statement, claim.quantity, number(v.value), interval,
        expected, ", ".join(map(str, c.seeds)), v.n_pairs, word,
    )  # fmt: skip


def _provenance(result: ReplicationResult) -> str:
    s = result.stored
    counted = {c.claim.id: set(c.seeds) for c in result.claims}
    done = [x for x in s.seeds if x.seed in counted.get(x.claim, ())]
    seeds = sorted({x.seed for x in done})
    day = time.strftime("%Y-%m-%d", time.gmtime(finished_at(s)))
    command = f"lamps replicate {s.family}/{s.method} --profile {s.profile}"
    command += "".join(f" --seed {seed}" for seed in seeds)
    facts = "; ".join(sorted({_facts(x.facts) for x in done}))
    # All claims of one call share its seconds.
    spent = sum({(x.seed, x.finished_at): x.wall_s for x in done}.values())
    return (
        f"Profile {s.profile}, {day}, {spent:.0f} s; method version {s.method_version}, data "
        f"`{s.fingerprint[:12]}`; {facts}. Again: `{command}`"
    )


def _facts(facts: Any) -> str:
    versions = facts.get("versions", {})
    told = [
        f"CPUs {facts.get('cpus', '?')}, threads {facts.get('threads', '?')}",
        str(facts.get("machine", "")),
        str(facts.get("device", "")),
        ", ".join(f"{k} {versions[k]}" for k in versions),
    ]
    return ", ".join(t for t in told if t)


def _paper(paper: Any) -> str:
    if not paper:
        return ""
    arxiv = paper.get("arxiv")
    section = paper.get("section")
    told = [
        f"*{paper['title']}*",
        paper.get("venue"),
        f"arXiv {arxiv}" if arxiv else None,
        f"section {section}" if section else None,
    ]
    return f"Paper: {', '.join(str(t) for t in told if t)}."


def number(value: float) -> str:
    """A number to four digits; a dash where there is none.

    Example:
        >>> number(0.98765), number(float("nan"))
        ('0.9877', '-')
    """
    return "-" if math.isnan(value) else f"{value:.4g}"
