"""Verdicts: laws of the statistics, known examples, odd numbers, controls."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lamps.errors import ContractError
from lamps.replication import Claim, Measurement
from lamps.replication_verdicts import Verdict, verdict

NAN, INF = math.nan, math.inf
Pairs = Sequence[tuple[int, str, float, float]]


def claim(**changes: object) -> Claim:
    values = {
        "id": "C1", "statement": "It is better.", "quantity": "accuracy, new / old",
        "compare": "ratio", "direction": ">=", "threshold": 1.0,
    } | changes  # fmt: skip
    return Claim(**values)  # type: ignore[arg-type]


def judge(pairs: Pairs, **changes: object) -> Verdict:
    rows = [
        Measurement(claim="C1", seed=s, unit=u, newcomer=a, comparison=b) for s, u, a, b in pairs
    ]
    return verdict(claim(**changes), rows)


def one_seed(*pairs: tuple[float, float]) -> Pairs:
    return [(0, f"u{i}", a, b) for i, (a, b) in enumerate(pairs)]


positive = st.floats(0.01, 100.0)
table = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("abcde"), positive, positive),
    min_size=1,
    max_size=12,
    unique_by=lambda p: (p[0], p[1]),
)
few = settings(max_examples=25)  # each example is a bootstrap or three
KINDS = ("ratio", "geometric", "difference", "correlation")


@few
@given(table, st.sampled_from(KINDS), st.randoms())
def test_order_and_names_change_nothing(pairs: Pairs, compare: str, random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    renamed = [(7 - s, f"{u}'", a, b) for s, u, a, b in shuffled]
    first = judge(pairs, compare=compare)
    assert repr(judge(shuffled, compare=compare)) == repr(first)
    assert repr(judge(renamed, compare=compare)) == repr(first)


@few
@given(table, st.sampled_from(("ratio", "geometric", "correlation")), st.integers(-8, 8))
def test_the_unit_of_measurement_changes_no_ratio_and_no_rank(
    pairs: Pairs, compare: str, power: int
) -> None:
    scaled = [(s, u, a * 2.0**power, b * 2.0**power) for s, u, a, b in pairs]
    assert repr(judge(scaled, compare=compare)) == repr(judge(pairs, compare=compare))


@few
@given(table, st.lists(st.integers(-8, 8), min_size=5, max_size=5))
def test_a_scale_of_its_own_for_each_unit_changes_no_geometric_ratio(
    pairs: Pairs, powers: list[int]
) -> None:
    scaled = [
        (s, u, a * 2.0 ** powers["abcde".index(u)], b * 2.0 ** powers["abcde".index(u)])
        for s, u, a, b in pairs
    ]
    assert judge(scaled, compare="geometric").value == pytest.approx(
        judge(pairs, compare="geometric").value, rel=1e-12
    )


@few
@given(table)
def test_swapping_newcomer_and_comparison_inverts(pairs: Pairs) -> None:
    swapped = [(s, u, b, a) for s, u, a, b in pairs]
    there, back = (judge(p, compare="geometric").value for p in (pairs, swapped))
    assert there * back == pytest.approx(1.0)
    there, back = (judge(p, compare="difference").value for p in (pairs, swapped))
    assert there == pytest.approx(-back)


@few
@given(table, st.sampled_from(KINDS))
def test_the_interval_is_ordered_and_a_verdict_follows_from_it(pairs: Pairs, compare: str) -> None:
    v = judge(pairs, compare=compare, threshold=0.5)
    assert math.isnan(v.low) == math.isnan(v.high)
    assert not v.low > v.high
    if v.outcome == "held":
        assert v.low >= 0.5
    if v.outcome == "not held":
        assert v.high < 0.5 or math.isnan(v.value)


@few
@given(table, st.sampled_from(("ratio", "geometric", "difference")))
def test_equal_pairs_are_a_tie_without_spread(pairs: Pairs, compare: str) -> None:
    equal = [(s, u, a, a) for s, u, a, _ in pairs]
    v = judge(equal, compare=compare)
    same = 0.0 if compare == "difference" else 1.0
    assert v.value == same
    assert {v.low, v.high} == {same} or len(pairs) == 1


@pytest.mark.parametrize("compare", ["ratio", "geometric", "difference"])
@pytest.mark.parametrize(
    ("direction", "held"), [(">=", True), ("<=", True), (">", False), ("<", False)]
)
def test_a_tie_meets_only_the_bounds_that_include_it(
    compare: str, direction: str, held: bool
) -> None:
    at = 0.0 if compare == "difference" else 1.0
    v = judge(one_seed((3, 3), (0, 0)), compare=compare, direction=direction, threshold=at)
    assert (v.outcome == "held") is held


def test_values_of_known_pairs() -> None:
    pairs = [(0, "a", 1.0, 2.0), (0, "b", 8.0, 4.0), (1, "a", 3.0, 3.0)]
    assert judge(pairs, compare="ratio").value == pytest.approx((9 / 6 + 1) / 2)
    assert judge(pairs, compare="geometric").value == pytest.approx(1.0)
    assert judge(pairs, compare="difference").value == pytest.approx(((-1 + 4) / 2 + 0) / 2)


def test_correlation_is_spearmans_with_ties() -> None:
    a, b = [1.0, 2.0, 2.0, 5.0, 9.0, 4.0], [2.0, 1.0, 3.0, 3.0, 8.0, 8.0]
    v = judge(one_seed(*zip(a, b, strict=True)), compare="correlation", threshold=0.0)
    assert v.value == pytest.approx(stats.spearmanr(a, b).statistic)
    assert -1.0 <= v.low <= v.value <= v.high <= 1.0


def test_seeds_with_too_few_units_are_ranked_together() -> None:
    pairs = [(s, "u", float(s), float(s) ** 2) for s in range(6)]
    v = judge(pairs, compare="correlation", threshold=0.5)
    assert (v.value, v.basis, v.n_seeds) == (pytest.approx(1.0), "pairs", 6)
    constant = judge(one_seed((1, 1), (1, 2), (1, 3)), compare="correlation")
    assert (math.isnan(constant.value), constant.outcome) == (True, "not held")


def test_one_unit_per_seed_gives_students_interval() -> None:
    values = np.random.default_rng(1).normal(0.3, 0.1, 8)
    pairs = [(i, "u", float(x), 0.0) for i, x in enumerate(values)]
    v = judge(pairs, compare="difference", threshold=0.0)
    low, high = stats.t.interval(0.95, 7, values.mean(), stats.sem(values))
    assert (v.low, v.high, v.basis) == (pytest.approx(low), pytest.approx(high), "seeds")
    ratios = [(i, "u", float(np.exp(x)), 1.0) for i, x in enumerate(values)]
    g = judge(ratios, compare="geometric")
    assert (g.low, g.high) == (pytest.approx(np.exp(low)), pytest.approx(np.exp(high)))


def test_many_seeds_and_units_give_the_normal_interval() -> None:
    rng = np.random.default_rng(2)
    effects = rng.normal(0.5, 0.2, 40)
    pairs = [
        (s, f"u{u}", float(effects[s] + rng.normal(0, 0.1)), 0.0)
        for s in range(40)
        for u in range(25)
    ]
    v = judge(pairs, compare="difference", threshold=0.4)
    per_seed = [np.mean([p[2] for p in pairs if p[0] == s]) for s in range(40)]
    half = 1.96 * np.std(per_seed, ddof=1) / math.sqrt(40)
    assert v.basis == "seeds and units"
    assert v.high - v.low == pytest.approx(2 * half, rel=0.15)
    assert v.outcome == "held"


def test_an_interval_holds_its_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        values = rng.normal(1.0, 0.5, 5)
        v = judge([(i, "u", float(x), 0.0) for i, x in enumerate(values)], compare="difference")
        hits += v.low <= 1.0 <= v.high
    assert 180 <= hits <= 199


def test_one_seed_says_that_its_interval_is_over_units() -> None:
    v = judge(one_seed((1.1, 1), (1.2, 1), (1.3, 1)))
    assert (v.basis, v.n_seeds, v.n_pairs, v.outcome) == ("units of one seed", 1, 3, "held")


def test_one_pair_has_no_interval_and_decides_only_where_the_value_may() -> None:
    v = judge(one_seed((2, 1)))
    assert (v.value, v.basis, v.outcome) == (2.0, "nothing", "undecided")
    assert math.isnan(v.low)
    assert judge(one_seed((2, 1)), certain=False).outcome == "held"
    assert judge(one_seed((0.5, 1)), certain=False).outcome == "not held"


def test_an_interval_on_both_sides_is_undecided_where_certainty_is_asked() -> None:
    pairs = one_seed((0.8, 1), (1.3, 1), (1.0, 1))
    assert judge(pairs).outcome == "undecided"
    assert judge(pairs, certain=False).outcome == "held"
    assert judge(pairs, tolerance=0.3).outcome == "held"
    assert judge(pairs, threshold=1.5).outcome == "not held"


@pytest.mark.parametrize(
    ("pairs", "compare", "value"),
    [
        ([(0, 0)], "ratio", 1.0),
        ([(1, 0)], "ratio", INF),
        ([(0, 2)], "ratio", 0.0),
        ([(1, 0), (1, 2)], "ratio", 1.0),
        ([(1, -1)], "ratio", NAN),
        ([(0, 0), (4, 1)], "geometric", 2.0),
        ([(0, 1), (4, 1)], "geometric", 0.0),
        ([(1, 0), (4, 1)], "geometric", INF),
        ([(0, 1), (1, 0)], "geometric", NAN),
        ([(-1, -1), (2, 1)], "geometric", NAN),
        ([(INF, 1), (1, 1)], "difference", INF),
        ([(INF, INF), (1, 0)], "difference", 0.5),
        ([(INF, 1), (-INF, 1)], "difference", NAN),
        ([(1, 0), (0, 0), (1, 0), (1, 0)], "boolean", 0.75),
        ([], "ratio", NAN),
        ([(NAN, 1), (1, 1)], "ratio", NAN),
        ([(1, NAN), (1, 1)], "difference", NAN),
        ([(1, NAN), (2, 1), (3, 4)], "correlation", NAN),
    ],
)
def test_zeros_infinities_and_missing_numbers(
    pairs: list[tuple[float, float]], compare: str, value: float
) -> None:
    v = judge(one_seed(*pairs), compare=compare)
    assert v.value == pytest.approx(value, nan_ok=True)
    if math.isnan(value):
        assert (v.outcome, v.basis) == ("not held", "nothing")
        control = judge(one_seed(*pairs), compare=compare, control=True)
        assert (control.outcome, control.broken) == ("undecided", False)


def test_a_boolean_that_always_held_is_certain() -> None:
    v = judge([(s, "u", 1.0, 0.0) for s in range(3)], compare="boolean")
    assert (v.value, v.low, v.high, v.outcome) == (1.0, 1.0, 1.0, "held")
    v = judge([(s, "u", float(s > 0), 0.0) for s in range(3)], compare="boolean")
    assert (v.low, v.high, v.outcome) == (0.0, 1.0, "undecided")


@pytest.mark.parametrize(
    ("pairs", "word", "broken"),
    [
        ([(0.5, 1), (0.6, 1)], "fails as expected", False),
        ([(1.5, 1), (1.6, 1)], "control broken", True),
        ([(0.5, 1), (1.6, 1)], "undecided", False),
    ],
)
def test_a_control_must_fail(pairs: list[tuple[float, float]], word: str, broken: bool) -> None:
    v = judge(one_seed(*pairs), control=True)
    assert (v.word, v.broken) == (word, broken)
    assert judge(one_seed(*pairs)).broken is False


def test_measurements_of_other_claims_do_not_count() -> None:
    mine = Measurement(claim="C1", seed=0, unit="u", newcomer=2.0, comparison=1.0)
    other = Measurement(claim="C2", seed=0, unit="u", newcomer=9.0, comparison=1.0)
    assert repr(verdict(claim(), [other, mine])) == repr(verdict(claim(), [mine]))


def test_refused_measurements() -> None:
    with pytest.raises(ContractError, match="two pairs for seed 0 and unit 'u'"):
        judge([(0, "u", 1, 1), (0, "u", 2, 1)])
    with pytest.raises(ContractError, match=r"boolean, but its newcomer is 0\.5"):
        judge(one_seed((0.5, 0)), compare="boolean")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "a b"}, "1 to 100 letters"),
        ({"id": ""}, "1 to 100 letters"),
        ({"compare": "quotient"}, "compare is 'quotient', expected one of ratio"),
        ({"direction": "="}, "direction is '='"),
        ({"source": "me"}, "source is 'me'"),
        ({"profile": "slow"}, "profile is 'slow'"),
        ({"statement": " "}, "statement is ' '"),
        ({"quantity": "a\nb"}, "one line of text"),
        ({"threshold": NAN}, "threshold is nan"),
        ({"tolerance": -0.1}, "tolerance is -0.1"),
    ],
)
def test_refused_claims(change: dict[str, object], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        claim(**change)


def test_a_claim_survives_json_also_of_a_later_release() -> None:
    one = claim(tolerance=0.01, control=True, certain=False, profile="full", version="3")
    assert Claim.from_json(one.as_json()) == one
    assert Claim.from_json({**one.as_json(), "colour": "red"}) == one
    assert (one.bar, one.expectation) == (0.99, ">= 1 (-0.01)")
    assert (one.measured_at("quick"), one.measured_at("full")) == (False, True)
