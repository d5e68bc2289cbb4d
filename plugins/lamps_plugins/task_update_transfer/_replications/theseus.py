"""Theseus against the target base, random maps and cutting to width, and as a warm start.

Paper: Rinaldi et al., Transporting Task Vectors across Different Architectures without Training,
ICML 2026, arXiv 2602.12952: CLIP of two widths and language models.

Here the source is a distilled encoder of width 128 fine-tuned on a task and the target an
independent one of width 192, with token embeddings turned at random. Both had the same teacher,
which makes alignment easier. Every method has the same head, refitted on 16 texts a class, and
chooses alpha among five by validation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps_plugins.task_update_transfer import _networks
from lamps_plugins.task_update_transfer._problem import TransferProblem
from lamps_plugins.task_update_transfer._replications import _permuted, _shared
from lamps_plugins.task_update_transfer.finetune_target import FinetuneTarget
from lamps_plugins.task_update_transfer.naive_width import NaiveWidth
from lamps_plugins.task_update_transfer.random_isometry import RandomIsometry
from lamps_plugins.task_update_transfer.target_untouched import TargetUntouched
from lamps_plugins.task_update_transfer.theseus import Theseus
from lamps_plugins.text_classification import _training

GRID = tuple({"alpha": a} for a in (0.5, 1.0, 1.5, 2.0, 3.0))
STEPS: dict[Profile, int] = {"quick": 60, "full": 150}
"""Steps of the warm start's race."""
SHARE, CHECKS = 0.95, 12


class TheseusReplication(Replication):
    """Test accuracy over tasks, the exact case, and steps to a mark."""

    claims = (
        Claim(
            id="C1",
            statement="The target with the carried update is more accurate than without.",
            quantity="test accuracy, Theseus - untouched target, same head",
            compare="difference",
            direction=">",
            threshold=0.0,
        ),
        Claim(
            id="C2a",
            statement="Procrustes maps carry more than random maps of the same kind.",
            quantity="test accuracy, Theseus - random isometry",
            compare="difference",
            direction=">",
            threshold=0.0,
        ),
        Claim(
            id="C2b",
            statement="It is at least as accurate as cutting or padding to width.",
            quantity="test accuracy, Theseus - naive width",
            compare="difference",
            direction=">=",
            threshold=0.0,
        ),
        Claim(
            id="C3",
            statement="A target with permuted units takes the source over exactly.",
            quantity="share of networks whose features agree to 1e-3",
            compare="boolean",
            direction=">=",
            threshold=1.0,
            certain=False,
        ),
        Claim(
            id="C4",
            statement="Fine-tuning from it reaches 95 % of the fine-tuned target in 0.8 of the "
            "steps.",
            quantity="steps to 95 % of the fine-tuned target's validation accuracy, warm / cold",
            compare="geometric",
            direction="<=",
            threshold=0.8,
        ),
        Claim(
            id="N1",
            statement="Random maps make the target more accurate.",
            quantity="test accuracy, random isometry - untouched target",
            compare="difference",
            direction=">",
            threshold=0.0,
            source="ours",
            control=True,
        ),
    )

    def fingerprint(self, profile: Profile) -> str:
        """Hash of the zoo's recipe and of all settings."""
        return _shared.fingerprint(profile, GRID, STEPS[profile], SHARE, CHECKS)

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """One pair per task."""
        yield ask.measured("C3", "toy with permuted units", float(exact(ask.seed)))
        claims = [claim.id for claim in self.claims if claim.id != "C3"]
        for task in _shared.TASKS[ask.profile]:
            if ask.wants(*claims, unit=task):
                ask.say(f"seed {ask.seed}: {task}")
                problem = _shared.opened(
                    "width-192", task, ask.profile, ask.seed, ask.say, mark=True
                )
                yield from _pairs(ask, task, problem)


def _pairs(ask: Ask, unit: str, problem: TransferProblem) -> Iterator[Measurement]:
    def best(kind: type, *grid: _shared.Params) -> _shared.Result:
        return _shared.chosen(problem, kind, grid, ask.profile, ask.seed)

    ours, cold = best(Theseus, *GRID), best(TargetUntouched, {})
    plain = best(Theseus, {"alpha": 1.0})
    random, naive = best(RandomIsometry, *GRID), best(NaiveWidth, *GRID)
    tuned = _tuned(problem, ask)
    gain = tuned - cold.test
    facts: dict[str, Any] = {
        "alpha": float(ours.params["alpha"]), "alpha_1": plain.test, "target_tuned": tuned,
        "recovery": (ours.test - cold.test) / gain if gain > 0 else None,
        "alignment": ours.method.found_["alignment_mean"],
    }  # fmt: skip
    yield ask.measured("C1", unit, ours.test, cold.test, **facts)
    yield ask.measured("C2a", unit, ours.test, random.test)
    yield ask.measured("C2b", unit, ours.test, naive.test)
    yield ask.measured("N1", unit, random.test, cold.test)
    mark = SHARE * float(problem.marks("val")["tuned"].mean())
    race = [steps_to(problem, r, mark, ask) for r in (ours, cold)]
    yield ask.measured("C4", unit, race[0], race[1], mark=mark, most=STEPS[ask.profile])


def _tuned(problem: TransferProblem, ask: Ask) -> float:
    """Test accuracy of the target fine-tuned directly, on the texts that the others are given."""
    return float(problem.marks("test")["tuned"][: _shared.N_TEST[ask.profile]].mean())


def steps_to(problem: TransferProblem, start: _shared.Result, mark: float, ask: Ask) -> float:
    """Steps of fine-tuning until validation accuracy is at a mark; all of them if it never is.

    The head starts as the ridge head of the few labelled texts on both sides. Accuracy is looked
    at after every twelfth of the run.
    """
    total = STEPS[ask.profile]
    how = FinetuneTarget.from_params({"steps": total})
    net = problem.network(start.method.updates_)
    how.free(problem, net)
    optimizer = _training.make_optimizer(net, {}, how.recipe())
    examples = _training.Examples(problem.rows("train"), problem.targets("train"), problem.pad_id)
    size = how.params.batch_size
    block = _training.Block(1, 0, len(examples.rows), 0, total * size, total * size)
    targets = problem.targets("val")
    reached: list[int] = []

    def check(seen: int) -> bool:
        right = problem.logits(net, "val").argmax(axis=1) == targets
        if right.mean() >= mark:
            reached.append(seen // size)
        return bool(reached)

    if start.val >= mark:
        return 1.0  # of no steps there is no ratio
    _training.train_block(
        net, optimizer, examples, block, how.recipe(), rng=np.random.default_rng(ask.seed),
        check=check, n_checks=CHECKS,
    )  # fmt: skip
    return float(reached[0] if reached else total)


def exact(seed: int) -> bool:
    """Whether Theseus carries the toy's update to a base with all its units in another order."""
    with tempfile.TemporaryDirectory() as text:
        problem = _permuted.problem(Path(text), seed, residual=True)
        method = _shared.fitted(problem, Theseus, {"texts": 1000, "hidden": "after"}, seed)
        rows, pad = problem.rows("val"), problem.pad_id
        wanted = _networks.features(_permuted.tuned_network(problem), rows, pad)
        found = _networks.features(problem.network(method.updates_), rows, pad)
        return _permuted.same_up_to_order(wanted, found, 1e-3)
