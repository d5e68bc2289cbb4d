"""Orthogonal-residual decoupling on fully fine-tuned experts, against its children alone.

Paper: Yang et al., arXiv 2602.05943: TIES 39.16 to 41.57 and TSV-Merge 41.52 to 42.07 with variant
C on five experts of Llama-3.2-3B; variant G helps task arithmetic most and can hurt. Both sides
tune the scale of the child's part with equal budgets. In quick only matrices of up to 512 inputs
are rotated; rotations of the wide ones take most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import Json
from lamps_plugins.model_merging._replications import _tuning
from lamps_plugins.model_merging._replications._retention import retention
from lamps_plugins.model_merging._replications._tuning import Arena, class_scales, mean, opened
from lamps_plugins.model_merging._rules.orthomerge import (
    Decoupled,
    decouple,
    merge_skew,
    naive_rotation_mean,
)
from lamps_plugins.model_merging._rules.rotation import cayley

CHILDREN = ("task-arithmetic", "ties", "tsv-m")
ALONE = {"task-arithmetic": (0.05, 0.6), "ties": (0.4, 1.5), "tsv-m": (0.4, 1.5)}
"""Scales of the child, the same with and without rotations."""

TA_SCALE = 0.4
WIDEST = {"quick": 512, "full": 0}


class OrthomergeOrdReplication(Replication):
    """Test accuracy with and without rotations, and geometry."""

    claims = (
        Claim(
            id="C2",
            statement="Variant C is at least as good as its child alone.",
            quantity="mean normalised test accuracy, ORD-C(child) - child, over children",
            compare="difference", direction=">=", threshold=0.0, tolerance=0.002,
        ),
        Claim(
            id="C2g",
            statement="Variant G is at least as good as its child alone.",
            quantity="mean normalised test accuracy, ORD-G(child) - child, over children",
            compare="difference", direction=">=", threshold=0.0, tolerance=0.002,
        ),
        Claim(
            id="C2m",
            statement="Rotations of variant C carry a twentieth of the updates or more.",
            quantity="share of the squared update that rotations explain, over children",
            compare="difference", direction=">=", threshold=0.05, source="ours", certain=False,
        ),
        Claim(
            id="C3",
            statement="The merged rotation keeps the singular values of the base.",
            quantity="largest relative change of a singular value, over layers",
            compare="difference", direction="<=", threshold=1e-6, certain=False,
        ),
        Claim(
            id="C4",
            statement="Variant G forgets no more than its child.",
            quantity="accuracy of frozen probes on tasks not merged, ORD-G(TIES) / TIES",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="N1",
            statement="So does the plain mean of the rotations.",
            quantity="largest relative change of a singular value, over layers",
            compare="difference", direction="<=", threshold=1e-6, source="ours", certain=False,
            control=True,
        ),
    )  # fmt: skip

    def fingerprint(self, profile: Profile) -> str:
        """Hash of texts and settings."""
        return _tuning.fingerprint_of(profile, "full", repr((ALONE, TA_SCALE)), WIDEST[profile])

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one zoo seed."""
        problem = opened(ask, "full")
        arena = Arena(problem, ask.profile, ask.seed)
        yield from _geometry(ask, arena)
        for child in CHILDREN:
            kept = child == "ties" and bool(ask.claims & {"C4"})
            if not ask.wants("C2", "C2g", "C2m", unit=child) and not kept:
                continue
            sides = {"alone": class_scales(arena, child, *ALONE[child])}
            for variant in ("C", "G"):
                ask.say(f"seed {ask.seed}: {child} alone and with rotations, variant {variant}")
                fixed: dict[str, Json] = {
                    "child": child, "variant": variant, "widest": WIDEST[ask.profile]
                }  # fmt: skip
                low, high = ALONE[child]
                if child == "task-arithmetic":  # the same scales of the child, within the range
                    fixed["child_params"] = f'{{"scale": {TA_SCALE}}}'
                    low, high = low / TA_SCALE, high / TA_SCALE
                sides[variant] = class_scales(arena, "orthomerge-ord", low, high, **fixed)
            found = {k: mean(arena.test(f"{child} {k}", v.merger)) for k, v in sides.items()}
            explained = {v: sides[v].merger.signals()["explained"] for v in ("C", "G")}
            yield ask.measured("C2", child, found["C"], found["alone"])
            yield ask.measured("C2g", child, found["G"], found["alone"], explained=explained["G"])
            yield ask.measured("C2m", child, explained["C"])
            if kept:
                n_test = _tuning.N_TEST[ask.profile]
                for task, (a, b) in retention(arena, (sides["G"], sides["alone"]), n_test):
                    yield ask.measured("C4", task, a, b)


def _geometry(ask: Ask, arena: Arena) -> Iterator[Measurement]:
    """C3 and N1 on the matrices of the first landmark, variant G."""
    for group in arena.problem.groups:
        if not group.first:
            continue
        base, deltas = arena.problem.base_weights(group), arena.problem.deltas(group)
        for i, name in enumerate(group.names):
            if not ask.wants("C3", "N1", unit=name):
                continue
            parts = decouple(base[i : i + 1], deltas[:, i : i + 1], variant="G")
            yield ask.measured("C3", name, _change(parts, _rotated(parts)))
            yield ask.measured("N1", name, _change(parts, naive_rotation_mean(parts)))


def _rotated(parts: Decoupled) -> torch.Tensor:
    skew = merge_skew(parts.skew)
    eye = torch.eye(skew.shape[-1], dtype=skew.dtype)
    return (parts.base.to(skew.dtype) @ (cayley(skew) - eye)).to(parts.base.dtype)


def _change(parts: Decoupled, update: torch.Tensor) -> float:
    before = torch.linalg.svdvals(parts.base.double())
    after = torch.linalg.svdvals((parts.base + update).double())
    return float(((after - before).abs().amax(-1) / before[..., 0]).max())
