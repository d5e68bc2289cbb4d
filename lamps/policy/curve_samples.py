"""Hypervolume over cost of a few cases, for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamps.policy.cases import Case
from lamps.policy.evaluate import Work, sampled_curve

SHOWN = ("lamps", "front-racing", "smallest-first", "mo-asha", "optuna:tpe", "random", "oracle")
"""Policies whose curves are drawn."""


def curves_of(work: Sequence[Work], most: int = 6) -> list[dict[str, Any]]:
    """Curves of up to ``most`` serial cases, one family after another.

    Args:
        work: Policies, each with a case.
        most: Cases.

    Returns:
        Per policy and case: ``policy``, ``table``, ``objectives`` and ``share``, the share of the
        optimum at 101 even shares of the exhaustive time.
    """
    cases: dict[tuple[str, str], Case] = {}
    for _, case in work:
        if case.workers == 1 and case.seed == 0:
            cases.setdefault((case.pool.family, case.fingerprint), case)
    families: dict[str, list[str]] = {}
    for family, fingerprint in cases:
        families.setdefault(family, []).append(fingerprint)
    # First the first table of each family, then the second of each.
    order = [(i, f) for f, some in families.items() for i in range(len(some))]
    chosen = [cases[f, families[f][i]] for i, f in sorted(order, key=lambda x: x[0])[:most]]
    wanted = {id(case) for case in chosen}
    return [
        {
            "policy": rule.label,
            "table": case.pool.name,
            "family": case.pool.family,
            "objectives": list(case.pool.objectives),
            "share": [round(v, 4) for v in sampled_curve(rule, case)],
        }
        for rule, case in work
        if id(case) in wanted and rule.label in SHOWN
    ]
