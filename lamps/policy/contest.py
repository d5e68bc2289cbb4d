"""A comparison of policies, from tables to scores: who takes part, and on which cases.

As they are, policies are replayed on every table. With tables left out, the learned one is first
trained on the rest of each fold and then replayed on what was left out, so that it never saw the
table, the task or the family that it is judged on. All others have nothing to learn and are
replayed once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.policy import names, weights
from lamps.policy.cases import (
    SIMPLE,
    Case,
    Rule,
    cases,
    with_permuted_sizes,
    without_landmarks,
)
from lamps.policy.evaluate import Score, Work, evaluate
from lamps.policy.features import EXTRAPOLATION
from lamps.policy.folds import KINDS, folds
from lamps.policy.material import unusable
from lamps.policy.scorebook import Scorebook
from lamps.policy.training import settings_of, trained_in, untrained
from lamps.tables import LandmarkTable

LEARNED = "lamps"
POLICIES = (
    LEARNED, *SIMPLE, "mo-asha", "hyperband", "extrapolate", "ehvi", "optuna:tpe", "oracle",
    "exhaustive",
)  # fmt: skip
"""Who takes part unless told otherwise."""

Say = Callable[[str], None]
Rules = list[tuple[Rule, Callable[[Case], Case]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared.

    Args:
        policies: Names, with options in brackets.
        objectives: Sets of objectives; chosen per table if empty.
        workers: Landmarks at once, each of these numbers.
        seeds: Of policies that use chance.
        largest_pool: Larger tables are sampled down to this; 0 takes them whole.
        samples: Samples of a table that is too large.
        most_landmarks: Longer curves are thinned to this; 0 keeps all.
        most_sets: Sets of objectives per table.
        leave_out: ``table``, ``task`` or ``family``; empty trains nothing.
        folds: Join groups to at most this many folds; 0 joins none.
        ablations: Also the learned policy without what it is made of.
        weights: File of weights instead of the shipped ones.
        iterations: Of each training; its default if None.
        synthetic: Share of made-up episodes in each training; its default if None.
        train_seed: Of each training.
    """

    policies: tuple[str, ...] = POLICIES
    objectives: tuple[tuple[str, ...], ...] = ()
    workers: tuple[int, ...] = (1,)
    seeds: int = 3
    largest_pool: int = 128
    samples: int = 1
    most_landmarks: int = 0
    most_sets: int = 3
    leave_out: str = ""
    folds: int = 0
    ablations: bool = False
    weights: str = ""
    iterations: int | None = None
    synthetic: float | None = None
    train_seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be done, before anything is read or trained.

        Raises:
            ConfigError: A number out of its range, or an unknown way to leave out.
            UnknownMethod: A policy that does not exist.
        """
        least = {
            "seeds": 1, "samples": 1, "most_sets": 1, "largest_pool": 0, "most_landmarks": 0,
            "folds": 0,
        }  # fmt: skip
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected {low} or more")
        for name, value in (("largest_pool", self.largest_pool), ("folds", self.folds)):
            if value == 1:
                raise ConfigError(f"{name} is 1, expected 0 (no bound) or 2 and more")
        if not self.policies:
            raise ConfigError(f"no policy was named. Known: {', '.join(names())}")
        if not self.workers or min(self.workers) < 1:
            raise ConfigError(f"workers is {list(self.workers)}, expected numbers of 1 or more")
        if self.leave_out and self.leave_out not in KINDS:
            raise ConfigError(
                f"--leave-out is {self.leave_out!r}, expected one of {', '.join(KINDS)}"
            )
        for name in self.policies:
            Rule.named(name).make()
            if self.leave_out and name.startswith(f"{LEARNED}("):
                raise ConfigError(
                    f"policy {name!r} may have seen what it is judged on; with --leave-out only "
                    f"plain {LEARNED!r} is trained anew"
                )
        if self.weights:
            Rule(LEARNED, LEARNED, self.weights).make()

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return dataclasses.asdict(self)


def chosen_cases(
    tables: Sequence[LandmarkTable], plan: Plan, say: Say = lambda _: None
) -> list[Case]:
    """All cases of some tables; what cannot be judged is said and left out.

    Raises:
        ConfigError: No table has an objective that was asked for.
    """
    known = {o.name for t in tables for o in t.objectives}
    for name in (n for some in plan.objectives for n in some):
        if tables and name not in known:
            raise ConfigError(f"no table has an objective {name!r}. {did_you_mean(name, known)}")
    found: list[Case] = []
    for table in tables:
        if reason := unusable(table):
            say(f"{table.name} is left out: {reason}")
            continue
        if gaps := int((table.without_gaps().measured & ~table.measured).sum()):
            say(
                f"{table.name}: {gaps} landmarks that candidates skipped repeat the one before, "
                "at no cost"
            )
        some = list(
            cases(
                [table],
                workers=plan.workers,
                seeds=plan.seeds,
                largest_pool=plan.largest_pool,
                samples=plan.samples,
                most_landmarks=plan.most_landmarks,
                most_sets=plan.most_sets,
                objectives=plan.objectives,
            )
        )
        if not some:
            have = ", ".join(o.name for o in table.objectives)
            say(f"{table.name} is left out: it has none of the sets of objectives, only {have}")
        elif 0 < plan.largest_pool < len(table.candidates):
            say(
                f"{table.name}: {plan.largest_pool} of {len(table.candidates)} candidates are "
                "drawn; --pool 0 takes all"
            )
        good = [case for case in some if case.pool.whole.any()]
        if len(good) < len(some):
            lost = sorted({", ".join(c.pool.objectives) for c in some if not c.pool.whole.any()})
            say(
                f"{table.name} is left out for {'; '.join(lost)}: no candidate has a finite value "
                "at every landmark"
            )
        found += good
    return found


def prepare(
    tables: Sequence[LandmarkTable],
    plan: Plan,
    *,
    folder: Path | None = None,
    say: Say = lambda _: None,
) -> list[Work]:
    """Everything that is to be replayed; with ``plan.leave_out`` after the trainings.

    Args:
        tables: All of them; with ``plan.leave_out`` they are also trained on.
        plan: See `Plan`.
        folder: Keeps trainings, so that a second call goes on.
        say: Told what is left out and how trainings go.

    Raises:
        ConfigError: An option, objective or file of weights that cannot be used.
        UnknownMethod: No such policy.
        ProblemError: Nothing can be judged.
        MissingExtra: Leaving out needs torch, and it is not installed.
    """
    plan.check()
    if plan.leave_out and folder is None:
        raise ConfigError("leaving out trains policies; give --out DIR to keep them in")
    chosen = chosen_cases(tables, plan, say)
    if not chosen:
        raise ProblemError(
            f"none of {len(tables)} landmark tables can be evaluated, see above why"
            if tables
            else "there is no landmark table to evaluate; give --tables DIR"
        )
    return list(_work(tables, chosen, plan, folder, say))


def play(
    work: Sequence[Work],
    *,
    folder: Path | None = None,
    jobs: int = 1,
    say: Say = lambda _: None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> list[Score]:
    """Replay what is not known yet.

    Args:
        work: From `prepare`.
        folder: Keeps scores, so that a second call goes on.
        jobs: Processes.
        say: Told what a policy said, and which refused a case.
        progress: Told how many replays are done, and of how many.

    Returns:
        A score per policy, case and seed.

    Raises:
        ProblemError: Every policy refused every case.
    """
    book = Scorebook(folder)
    keys = [book.key(rule, case) for rule, case in work]
    todo = [w for w, k in zip(work, keys, strict=True) if book.get(k) is None]
    key_of = dict(zip(map(_mark, work), keys, strict=True))
    done = len(work) - len(todo)
    progress(done, len(work))

    def keep(item: Work, score: Score) -> None:
        nonlocal done
        done += 1
        book.add(key_of[_mark(item)], score)
        progress(done, len(work))

    evaluate(todo, jobs=jobs, keep=keep, say=say)
    found = []
    for (rule, case), key in zip(work, keys, strict=True):
        score = book.get(key)
        if score is not None:  # the same numbers may be known under another name
            label, pool = rule.label, case.pool
            found.append(
                dataclasses.replace(score, policy=label, table=pool.name, family=pool.family)
            )
    if not found:
        raise ProblemError("every policy refused every table, see above why")
    return found


def _mark(item: Work) -> tuple[Rule, int]:
    return item[0], id(item[1])


def _work(
    tables: Sequence[LandmarkTable],
    chosen: Sequence[Case],
    plan: Plan,
    folder: Path | None,
    say: Say,
) -> Iterator[Work]:
    """Everything that is to be replayed, case by case."""
    learned = LEARNED in plan.policies
    fixed = [Rule.named(n) for n in plan.policies if n != LEARNED]
    own: Rules = []
    taught: dict[str, Rules] = {}
    if learned and plan.leave_out and folder is not None:
        taught = _trained_rules(tables, plan, folder, say)
    elif learned:
        own = _own_rules(plan.weights, plan, folder, say)
    changed = {id(case): with_permuted_sizes(case) for case in chosen if plan.ablations}
    for case in chosen:
        if not case.seed:  # the learned policy knows no chance
            for rule, change in taught.get(case.fingerprint, own):
                again = changed[id(case)] if change is with_permuted_sizes else change(case)
                yield rule, again
        for rule in fixed:
            if case.seed == 0 or rule.by_chance:
                yield rule, case
        if learned and plan.ablations and not case.seed:
            for name in ("oracle", "smallest-first", "front-racing"):
                yield Rule(f"{name}, permuted sizes", name), changed[id(case)]


def _same(case: Case) -> Case:
    return case


def _own_rules(file: str, plan: Plan, folder: Path | None, say: Say) -> Rules:
    """The learned policy and, if asked for, what it is worth without its parts."""
    found: Rules = [(Rule(LEARNED, LEARNED, file), _same)]
    if not plan.ablations:
        return found
    found += [
        (Rule(f"{LEARNED}, no landmarks", LEARNED, file), without_landmarks),
        (Rule(f"{LEARNED}, permuted sizes", LEARNED, file), with_permuted_sizes),
    ]
    if folder is None:
        say("without --out, the ablation with random weights is left out")
        return found
    given = weights.load(Path(file) if file else weights.SHIPPED)
    random = untrained(given, folder / "ablations" / f"random-{given.sha256[:12]}.safetensors")
    found.append((Rule(f"{LEARNED}, random weights", LEARNED, str(random)), _same))
    if not plan.leave_out:
        say("the ablation without extrapolation needs a training; it comes with --leave-out")
    return found


def _trained_rules(
    tables: Sequence[LandmarkTable], plan: Plan, folder: Path, say: Say
) -> dict[str, Rules]:
    """Rules for every table, by its hash, trained without it."""
    usable = [t for t in tables if not unusable(t)]
    settings = settings_of(
        seed=plan.train_seed, iterations=plan.iterations, synthetic=plan.synthetic
    )
    blind = dataclasses.replace(settings, blind=tuple(EXTRAPOLATION))
    place = folder / "folds"
    found: dict[str, Rules] = {}
    parts = list(folds(usable, plan.leave_out, most=plan.folds))
    for number, (name, rest, test) in enumerate(parts, start=1):
        judged = {t.fingerprint() for t in test}
        rest = [t for t in rest if t.fingerprint() not in judged]  # not under another name either
        title = f"fold {number}/{len(parts)}, without {name}"
        say(f"{title}: {len(rest)} tables to learn from, {len(test)} to judge on")

        def told(line: str, title: str = title) -> None:
            say(f"{title}: {line}")

        file = str(trained_in(place, rest, settings, told))
        rules = _own_rules(file, plan, folder, say)
        if plan.ablations:
            other = str(trained_in(place, rest, blind, told))
            rules.append((Rule(f"{LEARNED}, no extrapolation", LEARNED, other), _same))
        found |= dict.fromkeys(judged, rules)
    return found
