"""Singular value calibration against what it is put on, and against a mere change of scale.

Paper: Li et al., arXiv 2602.05536: calibration lifts task arithmetic and five other mergers. Their
coefficients are fixed; here both sides are tuned as well, with equal budgets, and a control with
one factor for all directions of a layer tells calibration from scale.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import Json
from lamps_plugins.model_merging._children import class_of
from lamps_plugins.model_merging._replications import _tuning
from lamps_plugins.model_merging._replications._tuning import Arena, mean, opened, scales, subset
from lamps_plugins.model_merging._rules.svc import svc
from lamps_plugins.model_merging.svc import Svc

CHILDREN: Mapping[Profile, tuple[str, ...]] = {
    "quick": ("task-arithmetic", "ties", "tsv-m"),
    "full": ("task-arithmetic", "ties", "dare", "tsv-m", "iso-c"),
}
RANGES = {"task-arithmetic": (0.05, 0.6), "dare": (0.05, 0.6)}
"""Scales that children are tuned over; others from 0.4 to 2.5, calibrated ones from 0.3 to 2."""

SHARED = (0.5, 1.0, 2.0)
SIDE, RANK, K = 64, 4, 4
REMOVED = 0.1


class SvcReplication(Replication):
    """Test accuracy of merged experts, all weights fine-tuned."""

    claims = (
        Claim(
            id="C1",
            statement="Calibrated task arithmetic is at least as good at the authors' scale 0.3.",
            quantity="normalised test accuracy, SVC(TA 0.3) / TA 0.3",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="C2",
            statement="A calibrated child beats the child, both tuned with equal budgets.",
            quantity="mean normalised test accuracy, SVC(child) - child, over children",
            compare="difference", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="C2g",
            statement="It is the spectrum and not the scale: one factor a layer does not do it.",
            quantity="mean normalised test accuracy, SVC(child) - one factor a layer, both tuned",
            compare="difference", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="C3",
            statement="The more experts share, the more calibration of TA 0.3 gains.",
            quantity="rank correlation of inflation and gain over subsets of tasks",
            compare="correlation", direction=">", threshold=0.0, source="ours",
        ),
        Claim(
            id="C4",
            statement="It removes nine tenths of the interference, however large the shared part.",
            quantity="share of synthetic sums whose interference falls below a tenth",
            compare="boolean", direction=">=", threshold=1.0, source="ours", certain=False,
        ),
        Claim(
            id="N1",
            statement="One factor for all directions does the same.",
            quantity="share of synthetic sums whose interference falls below a tenth",
            compare="boolean", direction=">=", threshold=1.0, source="ours", certain=False,
            control=True,
        ),
    )  # fmt: skip

    def fingerprint(self, profile: Profile) -> str:
        """Hash of texts and settings."""
        settings = repr((CHILDREN[profile], RANGES, SHARED, SIDE, RANK, K))
        return _tuning.fingerprint_of(profile, "full", settings)

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one zoo seed."""
        yield from _synthetic(ask)
        if not ask.claims & {"C1", "C2", "C2g", "C3"}:
            return
        problem = opened(ask, "full")
        arena = Arena(problem, ask.profile, ask.seed)
        if any(ask.wants("C1", unit=task) for task in problem.tasks):
            ask.say(f"seed {ask.seed}: task arithmetic at 0.3, plain and calibrated")
            plain = arena.test("TA 0.3", arena.fitted(class_of("task-arithmetic")))
            calibrated = arena.test("SVC(TA 0.3)", arena.fitted(Svc))
            for task in problem.tasks:
                yield ask.measured("C1", task, calibrated[task], plain[task])
        for child in CHILDREN[ask.profile]:
            if ask.wants("C2", "C2g", unit=child):
                ask.say(f"seed {ask.seed}: {child}, tuned plain, calibrated, and rescaled")
                yield from _tuned(ask, arena, child)
        yield from _subsets(ask, arena)


def _tuned(ask: Ask, arena: Arena, child: str) -> Iterator[Measurement]:
    low, high = RANGES.get(child, (0.4, 2.5))
    plain = arena.tuned(class_of(child), [{"scale": s} for s in scales(ask.profile, low, high)])
    sides: dict[str, Any] = {"plain": plain}
    for factor in ("direction", "global"):
        fixed: dict[str, Json] = {"child": child, "factor": factor}
        grid = [fixed | {"scale": s} for s in scales(ask.profile, 0.3, 2.0)]
        sides[factor] = arena.tuned(Svc, grid)
    tested = {name: arena.test(f"{child} {name}", side.merger) for name, side in sides.items()}
    means = {name: mean(scores) for name, scores in tested.items()}
    details: dict[str, Json] = {
        f"{name}_scale": side.params["scale"] for name, side in sides.items()
    }
    details |= {f"{name}_worst": min(scores.values()) for name, scores in tested.items()}
    yield ask.measured("C2", child, means["direction"], means["plain"], **details)
    yield ask.measured("C2g", child, means["direction"], means["global"], **details)


def _subsets(ask: Ask, arena: Arena) -> Iterator[Measurement]:
    """C3: pairs of tasks, in quick all of four, in full those next to each other and one apart."""
    tasks = arena.problem.tasks
    pairs = [
        (a, b) for (i, a), (j, b) in itertools.combinations(enumerate(tasks), 2)
        if len(tasks) <= 4 or j - i <= 2
    ]  # fmt: skip
    for pair in pairs:
        name = "+".join(pair)
        if not ask.wants("C3", unit=name):
            continue
        ask.say(f"seed {ask.seed}: inflation and gain of {name}")
        inner = Arena(subset(arena.problem, pair), ask.profile, ask.seed)
        calibrated = inner.fitted(Svc)
        gain = mean(inner.test("SVC", calibrated)) - mean(
            inner.test("TA", inner.fitted(class_of("task-arithmetic")))
        )
        yield ask.measured("C3", name, calibrated.signals()["inflation"], gain)


def synthetic(shared: float, seed: int) -> torch.Tensor:
    """Updates ``c S + T_k``: one shared part of rank 4, private parts orthogonal to it and others.

    Shape:
        Returns [4, 1, 64, 64] float64.
    """
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(SIDE, SIDE)))[0] for _ in range(2))
    sizes = rng.uniform(2.0, 4.0, (K + 1, RANK))
    parts = [
        (left[:, i * RANK : (i + 1) * RANK] * sizes[i]) @ right[:, i * RANK : (i + 1) * RANK].T
        for i in range(K + 1)
    ]
    return torch.from_numpy(np.stack([shared * parts[0] + part for part in parts[1:]]))[:, None]


def _synthetic(ask: Ask) -> Iterator[Measurement]:
    for shared in SHARED:
        name = f"shared {shared:g}"
        if not ask.wants("C4", "N1", unit=name):
            continue
        deltas = synthetic(shared, ask.seed)
        total = deltas.sum(0)
        plain = float(svc(deltas, total, alpha=1.0).interference)
        left = {
            factor: float(
                svc(
                    deltas, svc(deltas, total, alpha=1.0, factor=factor).update, alpha=1.0
                ).interference
            )
            for factor in ("direction", "global")
        }
        for claim, factor in (("C4", "direction"), ("N1", "global")):
            share = left[factor] / plain
            yield ask.measured(claim, name, float(share < REMOVED), share=share)
