"""ESP against plain decoding, against other starts of its masks, and against other drafters.

Paper: Goel et al., arXiv 2603.17942: no token changes; 1.6 to 1.7 tokens a call at 60 rows, more
than prompt lookup, lookahead and adaptive n-grams; the mean of the prompt's embeddings is the
best start (1.71, sampled 1.69, last-k 1.67); 1.2 to 1.5 times the tokens a second on GPUs.
Measured on a model of two million weights that is trained on the spot and, with fewer prompts, on
SmolLM2-135M, at 20 rows a call; trees and baselines are chosen on validation prompts, numbers are
those of test prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from lamps.replication import Ask, Claim, Measurement, Profile, Replication, Say
from lamps.types import digest
from lamps_plugins._small_lms import folder
from lamps_plugins.lossless_decoding._decode import decode
from lamps_plugins.lossless_decoding._measure import measure_prompt
from lamps_plugins.lossless_decoding._options import TASKS
from lamps_plugins.lossless_decoding._problem import FAMILY, DecodingProblem
from lamps_plugins.lossless_decoding._replications._arena import (
    BASELINES,
    MAX_NEW,
    N_PROMPTS,
    ROWS,
    SMOLLM2_SIZE,
    TREES,
    Arena,
)
from lamps_plugins.lossless_decoding._sampling import Sampler
from lamps_plugins.lossless_decoding._teacher import mask_hits
from lamps_plugins.lossless_decoding.esp import Esp, Params
from lamps_plugins.lossless_decoding.plain import PlainDrafter

COPY = "copy-edit"
DRAWS = {"quick": 600, "full": 20_000}
CONTINUED = 3  # tokens of the sampled continuations that are compared
SAMPLED = {"temperature": 1.0, "top_p": 0.95}
TIMED = {"BC 8": 8, "BC 60": 60}
STARTS = ("mean", "last-k", "sample", "random", "zero")
OF_SMOLLM2 = frozenset(("C1l", "C2l", "C2bl", "C3l", "C4l"))
FORESEEN = "mask1_top1_plain"
SHARE = 1.5  # hits of mean masks over those of a control, below which the mechanism fails


class EspReplication(Replication):
    """Tokens a call and equality of texts on the model of the standard library."""

    claims = (
        Claim(
            id="C1g",
            statement="Greedy texts are those of plain decoding, for every tree.",
            quantity="share of texts that are equal token by token",
            compare="boolean", direction=">=", threshold=1.0, certain=False,
        ),
        Claim(
            id="C1s",
            statement="Sampled texts are those of plain decoding with the same seed.",
            quantity="share of texts that are equal token by token",
            compare="boolean", direction=">=", threshold=1.0, certain=False,
        ),
        Claim(
            id="C1d",
            statement="Sampled continuations have the distribution of plain decoding.",
            quantity="share of prompts where chi-square of 3 tokens has p > 0.01",
            compare="boolean", direction=">=", threshold=1.0, certain=False,
        ),
        Claim(
            id="C2s",
            statement="Masks that start at the prompt's mean foresee at least as much as sampled.",
            quantity="tokens a call at equal rows, mean / sample",
            compare="ratio", direction=">=", threshold=1.0, certain=False,
        ),
        Claim(
            id="C2r",
            statement="They foresee more than a random direction of the same length.",
            quantity="tokens a call at equal rows, mean / random",
            compare="ratio", direction=">", threshold=1.0, source="ours",
        ),
        Claim(
            id="N1",
            statement="A random direction foresees as much as the mean.",
            quantity="tokens a call at equal rows, random / mean",
            compare="ratio", direction=">=", threshold=1.0, source="ours", control=True,
        ),
        Claim(
            id="C2m",
            statement="Mask 1 says the right token 1.5 times as often as a random direction does.",
            quantity="top-1 hits at places that are neither blank nor repeated, mean / random",
            compare="ratio", direction=">=", threshold=SHARE, source="ours", certain=False,
        ),
        Claim(
            id="C2l",
            statement="The same with a larger model, SmolLM2-135M.",
            quantity="top-1 hits at places that are neither blank nor repeated, mean / random",
            compare="ratio", direction=">=", threshold=SHARE, source="ours", certain=False,
        ),
        Claim(
            id="C2b",
            statement="Copies aside, it emits more tokens a call than the best other drafter.",
            quantity="tokens a call at equal rows, ESP / baseline chosen on validation",
            compare="ratio", direction=">=", threshold=1.05, certain=False,
        ),
        Claim(
            id="C3",
            statement="On at least one kind of prompts four calls do for five tokens.",
            quantity="calls a token, kind chosen on validation",
            compare="difference", direction="<=", threshold=0.8, source="ours", certain=False,
        ),
        Claim(
            id="C4",
            statement="At 8 rows a call it is faster than plain decoding on this machine.",
            quantity="tokens a second, ESP / plain, median over prompts, trees included",
            compare="geometric", direction=">", threshold=1.0, source="ours",
        ),
        Claim(
            id="C4w",
            statement="At 60 rows a call it is faster than plain decoding on this machine.",
            quantity="tokens a second, ESP / plain, median over prompts, trees included",
            compare="geometric", direction=">", threshold=1.0, source="ours",
        ),
        Claim(
            id="C1l",
            statement="Greedy texts of SmolLM2-135M are those of plain decoding.",
            quantity="share of texts that are equal token by token",
            compare="boolean", direction=">=", threshold=1.0, certain=False,
        ),
        Claim(
            id="C2bl",
            statement="Copies aside, SmolLM2-135M emits more a call than by the best other.",
            quantity="tokens a call at equal rows, ESP / baseline chosen on validation",
            compare="ratio", direction=">=", threshold=1.05, certain=False,
        ),
        Claim(
            id="C3l",
            statement="On at least one kind of prompts four calls of it do for five tokens.",
            quantity="calls a token, kind chosen on validation",
            compare="difference", direction="<=", threshold=0.8, source="ours", certain=False,
        ),
        Claim(
            id="C4l",
            statement="At 8 rows a call it is faster than plain decoding on this machine.",
            quantity="tokens a second of SmolLM2-135M, ESP / plain, median over prompts",
            compare="geometric", direction=">", threshold=1.0, source="ours",
        ),
        Claim(
            id="C5",
            statement="On a GPU a model of 100 million weights decodes 1.15 times as fast.",
            quantity="tokens a second of SmolLM2-135M, ESP / plain, median over prompts",
            compare="geometric", direction=">=", threshold=1.15, needs="gpu",
        ),
    )  # fmt: skip

    def fingerprint(self, profile: Profile) -> str:
        """Hash of model, prompts and settings.

        Those of SmolLM2-135M are no part of it: who changes them raises the claims' version.
        """
        settings = [
            folder("stdlib").name, N_PROMPTS[profile], MAX_NEW[profile], ROWS, sorted(TREES),
            sorted(BASELINES), DRAWS[profile], CONTINUED, list(SAMPLED.values()), list(STARTS),
        ]  # fmt: skip
        return digest(settings, length=32)

    def prepare(self, profile: Profile, say: Say) -> None:
        """Refuse at once where the model is not built; the message says how to build it."""
        say("the model of the standard library")
        _opened(profile, 0)

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one set of prompts."""
        if ask.claims & OF_SMOLLM2:
            yield from _smollm2(ask)
        if ask.claims - OF_SMOLLM2 - {"C5"}:
            problem = _opened(ask.profile, ask.seed)
            arena = Arena(problem, ask)
            yield from _equality(ask, arena)
            yield from _draws(ask, arena)
            yield from _starts(ask, arena)
            yield from _hits(ask, arena, "C2m")
            yield from _baselines(ask, arena, "C2b")
            yield from _calls(ask, arena, "C3")
            for claim, rows in (("C4", TIMED["BC 8"]), ("C4w", TIMED["BC 60"])):
                if ask.wants(claim, unit="stdlib"):
                    yield from _timed(ask, problem, claim, "stdlib", rows)
        if ask.wants("C5", unit="smollm2"):
            options = {"prompt_seed": ask.seed, "n_prompts": 16, "max_new": 64}
            yield from _timed(ask, FAMILY.open_problem("smollm2", options), "C5", "smollm2", 60)


def _opened(profile: Profile, seed: int) -> DecodingProblem:
    options = {
        "prompt_seed": seed, "n_prompts": N_PROMPTS[profile], "max_new": MAX_NEW[profile],
    }  # fmt: skip
    return FAMILY.open_problem("stdlib", options)


def _smollm2(ask: Ask) -> Iterator[Measurement]:
    """The claims about SmolLM2-135M."""
    n, max_new = SMOLLM2_SIZE[ask.profile]
    options = {"prompt_seed": ask.seed, "n_prompts": n, "max_new": max_new}
    problem = FAMILY.open_problem("smollm2", options)
    arena = Arena(problem, ask)
    yield from _hits(ask, arena, "C2l")
    if any(ask.wants("C1l", unit=task) for task in TASKS):
        for task, sums in arena.on_test.items():
            yield ask.measured("C1l", task, sums.equal / sums.texts, texts=sums.texts)
    yield from _baselines(ask, arena, "C2bl")
    yield from _calls(ask, arena, "C3l")
    if ask.wants("C4l", unit="smollm2"):
        yield from _timed(ask, problem, "C4l", "smollm2", TIMED["BC 8"])


def _equality(ask: Ask, arena: Arena) -> Iterator[Measurement]:
    """C1g and C1s: every tree, every kind of prompts."""
    samplers = {"C1g": Sampler(), "C1s": Sampler(**SAMPLED, seed=1 + ask.seed)}
    for claim, sampler in samplers.items():
        for name in TREES:
            units = [f"{name}, {task}" for task in TASKS]
            if not any(ask.wants(claim, unit=unit) for unit in units):
                continue
            ask.say(f"seed {ask.seed}: {claim}, texts of {name}")
            for task, sums in arena.tally(arena.esp(name), "test", sampler=sampler).items():
                yield ask.measured(
                    claim, f"{name}, {task}", sums.equal / sums.texts, texts=sums.texts
                )


def _draws(ask: Ask, arena: Arena) -> Iterator[Measurement]:
    """C1d: two samples with seeds of their own, by plain decoding and by ESP."""
    task = "code"
    if not ask.wants("C1d", unit=task):
        return
    ask.say(f"seed {ask.seed}: {DRAWS[ask.profile]} sampled continuations each")
    prompt = arena.problem.prompts("test")[next(arena.texts("test", [task]))].tokens
    counts: list[Counter[Any]] = []
    for side, make in enumerate((PlainDrafter, arena.esp(arena.tree))):
        own: Counter[tuple[int, ...]] = Counter()
        for number in range(DRAWS[ask.profile]):
            seed = 2 * (number + DRAWS[ask.profile] * ask.seed) + side
            found = decode(
                arena.lm, make(), prompt, max_new=CONTINUED,
                sampler=Sampler(**SAMPLED, seed=seed),
            )  # fmt: skip
            own[tuple(found.tokens)] += 1
        counts.append(own)
    p = chi_square(counts[0], counts[1])
    yield ask.measured("C1d", task, float(p > 0.01), p=p, kinds=len(counts[0] | counts[1]))


def chi_square(a: Counter[Any], b: Counter[Any], least: int = 10) -> float:
    """The p-value of the two-sample test; outcomes seen fewer times in all are put together."""
    from scipy.stats import chi2_contingency

    both = a + b
    common = [outcome for outcome, n in both.items() if n >= least]
    table = np.array([[own[outcome] for outcome in common] for own in (a, b)])
    rest = np.array([[own.total()] for own in (a, b)]) - table.sum(axis=1, keepdims=True)
    if rest.sum():
        table = np.concatenate([table, rest], axis=1)
    return float(chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0


def _starts(ask: Ask, arena: Arena) -> Iterator[Measurement]:
    """C2s, C2r, N1: tokens a call by what masks start as."""
    if any(ask.wants("C2s", "C2r", "N1", unit=task) for task in TASKS):
        ask.say(f"seed {ask.seed}: starts of masks, {arena.tree}")
        taus = {start: arena.tally(arena.esp(arena.tree, init=start), "test") for start in STARTS}
        for task in TASKS:
            by = {start: sums[task].tau for start, sums in taus.items()}
            yield ask.measured("C2s", task, by["mean"], by["sample"], tree=arena.tree, **by)
            yield ask.measured("C2r", task, by["mean"], by["random"])
            yield ask.measured("N1", task, by["random"], by["mean"])


def _hits(ask: Ask, arena: Arena, claim: str) -> Iterator[Measurement]:
    """C2m and C2l: how often mask 1 foresees the model's own text, by teacher forcing."""
    if not any(ask.wants(claim, unit=task) for task in TASKS):
        return
    ask.say(f"seed {ask.seed}: {claim}, hits of mask 1 by teacher forcing")
    for task in TASKS:
        sums = {start: np.zeros((2, 2)) for start in STARTS}
        for number in arena.texts("test", [task]):
            prompt = arena.problem.prompts("test")[number].tokens
            for start, total in sums.items():
                hits = mask_hits(
                    arena.lm, prompt, arena.plain("test", number), k=1, init=start,  # type: ignore[arg-type]
                    rate=0.1, seed=ask.seed, blank=arena.problem.is_blank,
                )  # fmt: skip
                for row, name in enumerate((FORESEEN, "mask1_top1")):
                    total[row] += hits.get(name, (0.0, 0.0))
        shares = {
            f"{start}_{kind}": float(total[row, 0] / max(total[row, 1], 1.0))
            for start, total in sums.items()
            for row, kind in enumerate(("plain", "all"))
        }
        places = {"plain_places": sums["mean"][0, 1], "places": sums["mean"][1, 1]}
        yield ask.measured(
            claim, task, shares["mean_plain"], shares["random_plain"], **shares, **places
        )


def _baselines(ask: Ask, arena: Arena, claim: str) -> Iterator[Measurement]:
    """C2b and C2bl: tokens a call beside the best other drafter."""
    tasks = [task for task in TASKS if task != COPY]
    if not any(ask.wants(claim, unit=task) for task in tasks):
        return
    name = arena.chosen_baseline()
    ask.say(f"seed {ask.seed}: {claim}, {name} on test prompts")
    own, other = arena.on_test, arena.tally(BASELINES[name], "test")
    for task in tasks:
        yield ask.measured(
            claim, task, own[task].tau, other[task].tau, tree=arena.tree, baseline=name,
            copy_esp=own[COPY].tau, copy_baseline=other[COPY].tau,
        )  # fmt: skip


def _calls(ask: Ask, arena: Arena, claim: str) -> Iterator[Measurement]:
    """C3 and C3l: calls a token where validation prompts need fewest."""
    if not ask.wants(claim, unit="best kind"):
        return
    task = max(arena.on_val, key=lambda name: arena.on_val[name].tau)
    found = arena.on_test[task]
    yield ask.measured(claim, "best kind", found.calls / max(found.emitted, 1), task=task)


def _timed(
    ask: Ask, problem: DecodingProblem, claim: str, unit: str, rows: int
) -> Iterator[Measurement]:
    """Speed beside plain decoding, one mask a row."""
    ask.say(f"seed {ask.seed}: {claim}, times at {rows} rows")
    method = Timed(Params(k=1, rows=rows))
    records = [
        measure_prompt(problem, method, "test", number, warm=number > 0)
        for number in range(len(problem.prompts("test")))
    ]
    speed = float(np.median([r.plain_seconds / r.seconds for r in records]))
    tau = sum(r.emitted for r in records) / max(1, sum(r.calls for r in records))
    yield ask.measured(claim, unit, speed, 1.0, tau=tau, rows=rows)


class Timed(Esp):
    """Without the count of hits, which takes time between the runs and memory."""

    def notes(self, *given: Any) -> dict[str, tuple[float, float]]:
        """Nothing."""
        return {}
