"""MetaMerging against other coefficients under the same adapters and the same unlabelled texts.

Paper: Learn to Merge, ICML 2026: 87.2 with learned coefficients against 80.0 with uniform ones,
adapters trained alike. All sides here train the same adapters for the same number of steps on
training texts without labels; nothing is tuned, so no side looks at validation labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import Json, digest
from lamps_plugins.model_merging._merger import Merger
from lamps_plugins.model_merging._problem import MergeProblem
from lamps_plugins.model_merging._replications import _tuning
from lamps_plugins.model_merging._replications._tuning import Arena, mean, opened
from lamps_plugins.model_merging.metamerging import Metamerging, Work
from lamps_plugins.model_merging.metamerging import Params as MetaParams

SIZES: dict[Profile, dict[str, Json]] = {
    "quick": {"meta_steps": 30, "meta_lr": 0.05, "epochs": 1},
    "full": {"meta_steps": 200, "meta_lr": 0.01, "epochs": 5},
}
"""Quick takes fewer, larger steps."""

SIDES: dict[str, dict[str, Json]] = {
    "base": {"learn": False, "start": 1e-6},
    "uniform": {"learn": False},
    "fixed 0.3": {"learn": False, "start": 0.3},
    "S=0": {"inner_steps": 0},
    "S=1": {},
}


class MetamergingReplication(Replication):
    """Test accuracy with adapters, outer loss and time."""

    claims = (
        Claim(
            id="C1",
            statement="Learned coefficients are at least as good as uniform ones, with adapters.",
            quantity="normalised test accuracy, MetaMerging / uniform, over tasks",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="C2",
            statement="An inner step gives no larger outer loss than none.",
            quantity="outer loss on texts kept aside, S = 1 / S = 0",
            compare="ratio", direction="<=", threshold=1.0, tolerance=0.01, certain=False,
        ),
        Claim(
            id="C2a",
            statement="And it is as accurate.",
            quantity="normalised test accuracy, S = 1 / S = 0, over tasks",
            compare="ratio", direction=">=", threshold=1.0, tolerance=0.01,
        ),
        Claim(
            id="C2t",
            statement="It takes no more than the 5.5 times of the paper's logs.",
            quantity="seconds, S = 1 / S = 0",
            compare="geometric", direction="<=", threshold=5.5, certain=False,
        ),
        Claim(
            id="C3",
            statement="With adapters, states are closer to the experts' than with uniform ones.",
            quantity="loss of the adapted model on texts kept aside, MetaMerging / uniform",
            compare="ratio", direction="<=", threshold=1.0,
        ),
        Claim(
            id="C4",
            statement="How good a merge is alone does not tell how good it is with adapters.",
            quantity="rank correlation of accuracies without and with adapters, over coefficients",
            compare="correlation", direction="<=", threshold=0.5, certain=False,
        ),
        Claim(
            id="N1",
            statement="Adapters on the base alone are as good.",
            quantity="normalised test accuracy, base with adapters / MetaMerging, over tasks",
            compare="ratio", direction=">=", threshold=1.0, control=True, source="ours",
        ),
    )  # fmt: skip

    def fingerprint(self, profile: Profile) -> str:
        """Hash of texts and settings."""
        return _tuning.fingerprint_of(profile, "full", digest([SIZES[profile], SIDES]))

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one zoo seed."""
        problem = opened(ask, "full")
        units = [*problem.tasks, *SIDES, "all tasks"]
        if not any(ask.wants(c.id, unit=unit) for c in self.claims for unit in units):
            return
        arena = Arena(problem, ask.profile, ask.seed)
        adapted: dict[str, dict[str, float]] = {}
        alone: dict[str, float] = {}
        losses: dict[str, dict[str, float]] = {}
        took: dict[str, float] = {}
        outer: dict[str, float] = {}
        for name, changes in SIDES.items():
            ask.say(f"seed {ask.seed}: coefficients {name}, then adapters")
            start = perf_counter()
            made = arena.fitted(Metamerging, **SIZES[ask.profile], **changes)
            assert isinstance(made, Metamerging)
            took[name] = perf_counter() - start
            adapted[name] = arena.test(name, made)
            alone[name] = mean(arena.test(f"{name}, alone", _Plain(made)))
            losses[name], outer[name] = _losses(problem, made)
        for task in problem.tasks:
            meta = adapted["S=1"][task]
            yield ask.measured("C1", task, meta, adapted["uniform"][task])
            yield ask.measured("C2a", task, meta, adapted["S=0"][task])
            yield ask.measured("C3", task, losses["S=1"][task], losses["uniform"][task])
            yield ask.measured("N1", task, adapted["base"][task], meta)
        yield ask.measured("C2", "all tasks", outer["S=1"], outer["S=0"])
        yield ask.measured("C2t", "all tasks", took["S=1"], took["S=0"])
        for name in SIDES:
            yield ask.measured("C4", name, alone[name], mean(adapted[name]))


class _Plain(Merger[MetaParams]):
    """A merge without its adapters."""

    def __init__(self, made: Metamerging) -> None:
        super().__init__(made.params)
        self.updates_ = made.updates_


def _losses(problem: MergeProblem, made: Metamerging) -> tuple[dict[str, float], float]:
    """On the texts kept aside: loss of each task with its adapters, and the sum with new ones."""
    import torch

    work = Work(problem, MetaParams(), np.random.default_rng(0))
    weights = work.combination.weights(made.coefficients())
    found: dict[str, Any] = {}
    with torch.no_grad():
        for task in problem.tasks:
            stop = work.pools[task][2]
            found[task] = float(work.loss(task, weights, made.adapters_[task], stop))
    assert made.optimizer_ is not None
    rho = torch.as_tensor(made.best_.get("rho", made.optimizer_.value))
    return found, work.held_out(rho)
