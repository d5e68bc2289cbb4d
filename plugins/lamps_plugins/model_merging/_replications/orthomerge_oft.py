"""OrthoMerge of OFT experts against mergers of their dense updates.

Paper: Yang et al., arXiv 2602.05943: 46.25 against 44.97 of the next best on five OFT experts of
Llama-3.1-8B, and better retention. Baselines merge the same experts' updates, tuned with equal
budgets; retention is the accuracy of frozen probes on tasks that were not merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps_plugins.model_merging._replications import _tuning
from lamps_plugins.model_merging._replications._retention import PROBED, retention
from lamps_plugins.model_merging._replications._tuning import Arena, class_scales, mean, opened
from lamps_plugins.model_merging.orthomerge_oft import OrthomergeOft

BASELINES = {
    "task-arithmetic": (0.05, 0.8), "ties": (0.4, 3.0), "dare": (0.05, 0.8), "tsv-m": (0.4, 2.0)
}  # fmt: skip
ETAS = (0.5, 1.5)


class OrthomergeOftReplication(Replication):
    """Test accuracy, retention and geometry."""

    claims = (
        Claim(
            id="C1",
            statement="It is at least as accurate as the best of TA, TIES, DARE and TSV-Merge.",
            quantity="normalised test accuracy, OrthoMerge / best tuned baseline, over tasks",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="C1u",
            statement="Untuned, it is as accurate as tuned task arithmetic.",
            quantity="normalised test accuracy, OrthoMerge at eta 1 / tuned TA, over tasks",
            compare="ratio", direction=">=", threshold=1.0, tolerance=0.01, source="ours",
        ),
        Claim(
            id="C3",
            statement="The merged weights keep the singular values of the base.",
            quantity="largest relative change of a singular value, over groups of layers",
            compare="difference", direction="<=", threshold=1e-4, certain=False,
        ),
        Claim(
            id="C4",
            statement="It forgets no more than the best baseline.",
            quantity="accuracy of frozen probes on tasks not merged, OrthoMerge / best baseline",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="N1",
            statement="Task arithmetic keeps the singular values of the base.",
            quantity="largest relative change of a singular value, over groups of layers",
            compare="difference", direction="<=", threshold=1e-4, source="ours", certain=False,
            control=True,
        ),
    )  # fmt: skip

    def fingerprint(self, profile: Profile) -> str:
        """Hash of texts and settings."""
        return _tuning.fingerprint_of(profile, "oft", repr(BASELINES), list(ETAS), PROBED)

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one zoo seed."""
        problem = opened(ask, "oft")
        if not any(
            ask.wants("C1", "C1u", unit=task) for task in problem.tasks
        ) and not ask.claims & {"C3", "C4", "N1"}:
            return
        arena = Arena(problem, ask.profile, ask.seed)
        ask.say(f"seed {ask.seed}: OrthoMerge, untuned and tuned")
        n = arena.budget
        etas = [ETAS[0] + (ETAS[1] - ETAS[0]) * i / (n - 1) for i in range(n)]
        ours = arena.tuned(OrthomergeOft, [{"eta": eta} for eta in etas])
        untuned = arena.fitted(OrthomergeOft)
        sides = {}
        for name, (low, high) in BASELINES.items():
            ask.say(f"seed {ask.seed}: {name}, tuned")
            sides[name] = class_scales(arena, name, low, high)
        best = max(sides, key=lambda name: sides[name].val)
        found = arena.test("OrthoMerge", ours.merger)
        wanted = arena.test(best, sides[best].merger)
        plain = arena.test("untuned", untuned)
        ta = wanted if best == "task-arithmetic" else arena.test(
            "task-arithmetic", sides["task-arithmetic"].merger
        )  # fmt: skip
        for task in problem.tasks:
            yield ask.measured(
                "C1", task, found[task], wanted[task], baseline=best, eta=ours.params["eta"]
            )
            yield ask.measured("C1u", task, plain[task], ta[task], mean=mean(plain))
        for group in problem.groups:
            base = problem.base_weights(group)
            unit = f"{group.shape[0]}x{group.shape[1]}, group {group.number}"
            yield ask.measured("C3", unit, change(base, ours.merger, group.names))
            other = sides["task-arithmetic"].merger
            yield ask.measured("N1", unit, change(base, other, group.names))
        n_test = _tuning.N_TEST[ask.profile]
        for task, (a, b) in retention(arena, (ours, sides[best]), n_test):
            yield ask.measured("C4", task, a, b, baseline=best)


def change(base: torch.Tensor, merger: Any, names: tuple[str, ...]) -> float:
    """Largest change of a singular value of a group, relative to the largest one."""
    update = torch.stack([merger.updates_[name] for name in names])
    before = torch.linalg.svdvals(base.double())
    after = torch.linalg.svdvals((base + update).double())
    return float(((after - before).abs().amax(-1) / before[..., 0]).max())
