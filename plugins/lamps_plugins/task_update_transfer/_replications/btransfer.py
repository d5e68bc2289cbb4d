"""BTransfer against the plain update, the new base alone, and steps for the same backward passes.

Paper: Guo, Wang and Zheng, Fine-Tune Once, Reuse Across Models: Bayesian Task-Update Factors and
Approximations, ICML 2026.

Here the old base is a distilled encoder of width 128 fine-tuned on a task, the new base the same
encoder after 20, 80 or 300 more steps on an encyclopedia, and the old head is kept. C1 and C4 take
defaults on both sides; C6 lets both choose among four candidates by validation. As keeping the
fine-tuned source unchanged is often as accurate, C5 looks at what it loses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps_plugins._zoo._students import SHIFTS
from lamps_plugins.task_update_transfer._factor import full_factor, full_posterior
from lamps_plugins.task_update_transfer._problem import TransferProblem
from lamps_plugins.task_update_transfer._replications import _shared
from lamps_plugins.task_update_transfer.btransfer import BTransfer
from lamps_plugins.task_update_transfer.finetune_budget import FinetuneBudget
from lamps_plugins.task_update_transfer.param_delta import ParamDelta
from lamps_plugins.task_update_transfer.random_isometry import RandomIsometry
from lamps_plugins.task_update_transfer.source_unchanged import SourceUnchanged
from lamps_plugins.task_update_transfer.target_untouched import TargetUntouched

GRID_B = tuple(
    {"kappa": k, "cap": c} for k, c in ((1.0, 10.0), (10.0, 10.0), (10.0, 2.0), (0.1, 2.0))
)
GRID_P = tuple({"alpha": a} for a in (1.0, 0.5, 0.75, 1.25))
SMALL = 64
"""Texts of a Fisher at the smallest budget."""


class BTransferReplication(Replication):
    """Test accuracy and retention over tasks and shifts of the base."""

    claims = (
        Claim(
            id="C1",
            statement="BTransfer is at least as accurate as adding the plain update.",
            quantity="test accuracy, BTransfer - plain update, defaults",
            compare="difference",
            direction=">=",
            threshold=0.0,
        ),
        Claim(
            id="C1b",
            statement="Its lead grows with how far the base has moved.",
            quantity="rank correlation of the lead with the steps of the shift",
            compare="correlation",
            direction=">",
            threshold=0.0,
            source="ours",
        ),
        Claim(
            id="C2",
            statement="It is more accurate than the new base with a head fitted on 16 texts a "
            "class.",
            quantity="test accuracy, BTransfer - new base with refitted head",
            compare="difference",
            direction=">",
            threshold=0.0,
        ),
        Claim(
            id="C3",
            statement="For a linear model with Gaussian prior the transferred factor is exact.",
            quantity="share of posteriors that agree to 1e-10",
            compare="boolean",
            direction=">=",
            threshold=1.0,
            certain=False,
        ),
        Claim(
            id="C4",
            statement=f"With Fishers of {SMALL} texts it beats as many backward passes of "
            "fine-tuning.",
            quantity="test accuracy, BTransfer - fine-tuning at equal backward passes",
            compare="difference",
            direction=">",
            threshold=0.0,
        ),
        Claim(
            id="C5",
            statement="It keeps more of the new base than the fine-tuned source does.",
            quantity="generic loss on the new base's texts, BTransfer - source unchanged",
            compare="difference",
            direction="<",
            threshold=0.0,
        ),
        Claim(
            id="C6",
            statement="It is more accurate than the plain update when both are tuned alike.",
            quantity="test accuracy, BTransfer - plain update, best of 4 by validation",
            compare="difference",
            direction=">",
            threshold=0.0,
            source="ours",
        ),
        Claim(
            id="N1",
            statement="An update of equal norm that means nothing does as well.",
            quantity="test accuracy, random isometry - plain update",
            compare="difference",
            direction=">=",
            threshold=0.0,
            source="ours",
            control=True,
        ),
    )

    def fingerprint(self, profile: Profile) -> str:
        """Hash of the zoo's recipe and of all settings."""
        return _shared.fingerprint(profile, GRID_B, GRID_P, SMALL)

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """One pair per task and shift."""
        yield ask.measured("C3", "conjugate regression", float(conjugate(ask.seed)))
        claims = [claim.id for claim in self.claims if claim.id != "C3"]
        for task in _shared.TASKS[ask.profile]:
            for shift in SHIFTS:
                unit = f"{task}, {shift}"
                if ask.wants(*claims, unit=unit):
                    ask.say(f"seed {ask.seed}: {unit}")
                    problem = _shared.opened(
                        f"shift-{shift}", task, ask.profile, ask.seed, ask.say, mark=False
                    )
                    yield from _pairs(ask, unit, problem, SHIFTS[shift])


def _pairs(ask: Ask, unit: str, problem: TransferProblem, steps: int) -> Iterator[Measurement]:
    def best(kind: type, *grid: _shared.Params) -> _shared.Result:
        return _shared.chosen(problem, kind, grid, ask.profile, ask.seed)

    ours, plain = best(BTransfer, {}), best(ParamDelta, {})
    yield ask.measured("C1", unit, ours.test, plain.test, **problem.lineage.signals)
    yield ask.measured("C1b", unit, ours.test - plain.test, steps)
    refitted, old = best(TargetUntouched, {"head": "refitted"}), best(TargetUntouched, {})
    yield ask.measured("C2", unit, ours.test, refitted.test, old_head=old.test)
    source = best(SourceUnchanged, {})
    kept = [_shared.retention(problem, r.method) for r in (ours, source, plain)]
    yield ask.measured(
        "C5", unit, kept[0], kept[1], plain=kept[2], source_accuracy=source.test,
        accuracy=ours.test,
    )  # fmt: skip
    small = best(BTransfer, {"texts": SMALL})
    spent = best(FinetuneBudget, {"texts": SMALL})
    yield ask.measured("C4", unit, small.test, spent.test)
    tuned, tuned_plain = best(BTransfer, *GRID_B), best(ParamDelta, *GRID_P)
    chosen = {f"{k}": float(v) for k, v in {**tuned.params, **tuned_plain.params}.items()}
    yield ask.measured("C6", unit, tuned.test, tuned_plain.test, **chosen)
    yield ask.measured("N1", unit, best(RandomIsometry, {}).test, plain.test)


def conjugate(seed: int, *, d: int = 8, n: int = 40, noise: float = 0.2) -> bool:
    """Whether a factor lifted from one Gaussian prior gives another one's exact posterior."""
    import torch

    rng = np.random.default_rng([seed, 11])
    x, y = torch.from_numpy(rng.standard_normal((n, d))), torch.from_numpy(rng.standard_normal(n))

    def prior() -> tuple[torch.Tensor, torch.Tensor]:
        root = torch.from_numpy(rng.standard_normal((d, d)))
        mean = torch.from_numpy(rng.standard_normal(d))
        return mean, root @ root.T + torch.eye(d, dtype=torch.float64)

    def posterior(
        mean: torch.Tensor, precision: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        whole = precision + x.T @ x / noise
        return torch.linalg.solve(whole, precision @ mean + x.T @ y / noise), whole

    old, new = prior(), prior()
    found = full_posterior(*full_factor(*posterior(*old), *old), *new)
    pairs = zip(found, posterior(*new), strict=True)
    return all(float((a - b).abs().max() / b.abs().max()) < 1e-10 for a, b in pairs)
