"""What the replication of ESP measures with, on the toy."""

from __future__ import annotations

from collections import Counter

import numpy as np
from lamps_plugins.lossless_decoding._problem import DecodingProblem
from lamps_plugins.lossless_decoding._replications._arena import BASELINES, ROWS, TREES, Arena
from lamps_plugins.lossless_decoding._replications.esp import EspReplication, chi_square
from lamps_plugins.lossless_decoding._sampling import Sampler

from lamps.replication import Ask


def arena(problem: DecodingProblem) -> Arena:
    return Arena(problem, Ask(profile="quick", seed=0, claims=frozenset()))


def test_every_tree_writes_plain_texts(toy: DecodingProblem) -> None:
    made = arena(toy)
    for sampler in (Sampler(), Sampler(temperature=1.0, seed=4)):
        for name in list(TREES)[1::2]:
            (sums,) = made.tally(made.esp(name), "val", sampler=sampler).values()
            assert sums.equal == sums.texts == 8
            assert 1.0 <= sums.tau <= TREES[name]["k"] + 1


def test_all_take_at_most_the_same_rows(toy: DecodingProblem) -> None:
    made = arena(toy)
    makes = BASELINES | {name: made.esp(name) for name in TREES}
    most = {name: made.run(make(), "val", 1).most_rows for name, make in makes.items()}
    assert max(most.values()) <= ROWS
    assert min(most[name] for name in TREES) >= ROWS - 3


def test_a_choice_is_the_best_on_validation_prompts(toy: DecodingProblem) -> None:
    made, before = arena(toy), toy.test_opened
    assert made.tree in TREES
    assert made.chosen_baseline() in BASELINES
    assert toy.test_opened == before
    assert made.on_val == made.tally(made.esp(made.tree), "val")
    assert all(sums.equal == sums.texts for sums in made.on_test.values())


def test_chi_square_tells_samples_apart() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (Counter(rng.integers(0, 6 + shift, 900).tolist()) for shift in (0, 0, 2))
    assert chi_square(a, b) > 0.01 > chi_square(a, c)
    assert chi_square(Counter({1: 50}), Counter({1: 70})) == 1.0


def test_claims_have_controls_and_say_what_needs_a_gpu() -> None:
    claims = EspReplication.claims
    assert len({claim.id for claim in claims}) == len(claims)
    assert [claim.id for claim in claims if claim.control] == ["N1"]
    assert [claim.id for claim in claims if claim.needs == "gpu"] == ["C5"]
    assert EspReplication().fingerprint("quick") != EspReplication().fingerprint("full")
