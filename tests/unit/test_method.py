"""The contract's own code: streams, pools, fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator

from lamps import space as hp
from lamps.errors import ConfigError, ProblemError
from lamps.method import (
    Family,
    Method,
    MethodSpec,
    ModelCatalogue,
    ModelInfo,
    Problem,
    State,
    substream,
)
from lamps.plugins import registry
from lamps.types import Candidate, Evaluation, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    model: str = hp.model(accepts=("encoder",), doc="Which.")
    rate: float = hp.real(0.5, low=0.0, high=1.0, doc="Rate.")
    kind: str = hp.choice("a", ("a", "b"), doc="Kind.")
    note: str = hp.fixed("", doc="Note.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    width: int = hp.integer(3, low=1, high=2**20, log=True, doc="Width.")


class Sum(Method[Problem, Plain]):
    """Adds one draw per step: its value tells which streams it saw."""

    spec = MethodSpec(family="toys", summary="adds draws")

    def __init__(self, params: Plain) -> None:
        super().__init__(params)
        self.seen_: list[float] = []

    def partial_fit(self, problem: Problem, fidelity: float, *, rng: Generator) -> Self:
        self.seen_.append(float(rng.random()))
        self.fidelity_ = fidelity
        return self

    def evaluate(self, problem: Problem, split: Split = "val") -> Evaluation:
        return Evaluation({"error": sum(self.seen_)})

    def state_dict(self) -> State:
        return {"seen": self.seen_}

    def load_state_dict(self, state: State, problem: Problem) -> None:
        self.seen_ = state["seen"]

    def save(self, problem: Problem, directory: Path) -> None:
        (directory / "sum").write_text(str(sum(self.seen_)))


class Tuned(Sum, Method[Problem, Params]):
    """The same with other params."""


class Models(ModelCatalogue):
    KINDS: Mapping[str, str] = {"m1": "encoder", "m2": "decoder", "m3": "encoder"}

    def list(self) -> Sequence[ModelInfo]:
        return [self.resolve(n) for n in self.KINDS]

    def resolve(self, name: str) -> ModelInfo:
        if name not in self.KINDS:
            raise ProblemError(f"no model {name!r}")
        return ModelInfo(
            name=name,
            kind=self.KINDS[name],
            path="",
            parameters=1,
            size_bytes=1,
            licence="",
            source="",
        )


class Toys(Family):
    name = "toys"
    summary = "toys"
    default_objectives = ("error",)
    catalogue: ModelCatalogue | None = Models()

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> Problem:
        return self.toy_problem()

    def reopen(self, reference: Mapping[str, Any]) -> Problem:
        return self.toy_problem()

    def toy_problem(self, *, seed: int = 0) -> Problem:
        return registry().load_family("replay").toy_problem(seed=seed)

    def models(self) -> ModelCatalogue | None:
        return self.catalogue


METHODS: dict[str, type[Method[Any, Any]]] = {"tuned": Tuned, "plain": Sum}


def pool(**changes: Any) -> list[Candidate]:
    options: dict[str, Any] = {"given": {}, "per_method": 1, "seed": 0}
    family = Toys()
    models = changes.pop("models", ("m1", "m2", "m3"))
    methods = changes.pop("methods", METHODS)
    return family.candidates(family.toy_problem(), methods, models, **(options | changes))


# --- streams -------------------------------------------------------------------------------------


@given(st.integers(0, 2**64), st.lists(st.integers(0, 2**31), max_size=3))
def test_a_substream_is_fixed_by_stream_and_position(seed: int, position: list[int]) -> None:
    root = np.random.default_rng(seed)
    before = root.bit_generator.state
    first = substream(root, *position).random(3).tolist()
    assert root.bit_generator.state == before, "the parent was used"
    again = substream(np.random.default_rng(seed), *position).random(3).tolist()
    assert first == again


@given(st.integers(0, 2**32), st.integers(0, 1000), st.integers(0, 1000))
def test_other_positions_and_seeds_give_other_streams(seed: int, a: int, b: int) -> None:
    root, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    same = substream(root, a).random() == substream(root, b).random()
    assert same == (a == b)
    assert substream(root, a).random() != substream(other, a).random()
    assert substream(root, a, b).random() != substream(root, a).random()


def test_a_parent_that_moved_on_has_other_substreams() -> None:
    root = np.random.default_rng(0)
    before = substream(root, 1).random()
    root.random()
    assert substream(root, 1).random() != before


def test_substreams_are_uniform_and_independent() -> None:
    root = np.random.default_rng(0)
    draws = np.array([substream(root, i).random(2) for i in range(4000)])
    assert abs(draws.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.06
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.06


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM"])
def test_generators_with_one_word_of_state_have_substreams(kind: str) -> None:
    roots = [Generator(getattr(np.random, kind)(seed)) for seed in (1, 1, 2)]
    one, same, other = (substream(r, 3).random() for r in roots)
    assert one == same != other


def test_fit_hands_every_step_the_same_stream() -> None:
    problem = Toys().toy_problem()
    rng = np.random.default_rng(9)
    method = Sum(Plain()).fit(problem, rng=rng)
    assert len(method.seen_) == len(problem.fidelities)
    assert len(set(method.seen_)) == 1
    assert method.fidelity_ == 1.0
    assert method.seen_[0] == np.random.default_rng(9).random()


# --- pools ---------------------------------------------------------------------------------------


def test_defaults_once_per_fitting_model() -> None:
    found = pool()
    assert [(c.method, c.params.get("model")) for c in found] == [
        ("tuned", "m1"),
        ("tuned", "m3"),
        ("plain", None),
    ]
    assert found[0].params == {"model": "m1", "rate": 0.5, "kind": "a", "note": ""}


def test_samples_begin_with_the_defaults_and_cover_the_range() -> None:
    found = [c for c in pool(per_method=16, models=["m1"]) if c.method == "plain"]
    assert found[0].params == {"width": 3}
    assert len(found) == len({c.key for c in found})
    logs = np.log2([c.params["width"] for c in found[1:]])  # type: ignore[arg-type]
    assert logs.min() < 4
    assert logs.max() > 16
    assert len(found) >= 14
    for candidate in found:
        Sum.from_params(candidate.params)


def test_the_seed_alone_decides_the_samples() -> None:
    one, same, other = (pool(per_method=5, seed=s) for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_more_samples_keep_the_ones_before() -> None:
    few, many = pool(per_method=3, models=["m1"]), pool(per_method=6, models=["m1"])
    assert {c.key for c in few} <= {c.key for c in many}


def test_given_params_are_fixed_in_every_sample() -> None:
    given_ = {"tuned": {"rate": 0.25, "note": "x"}, "plain": {"width": 9}}
    found = pool(per_method=6, given=given_)
    tuned = [c.params for c in found if c.method == "tuned"]
    assert {p["rate"] for p in tuned} == {0.25}
    assert {p["note"] for p in tuned} == {"x"}
    assert {p["kind"] for p in tuned} == {"a", "b"}
    # Nothing is left to sample: one candidate, not six copies.
    assert [c.params for c in found if c.method == "plain"] == [{"width": 9}]


def test_a_given_model_leaves_one_candidate() -> None:
    found = pool(given={"tuned": {"model": "m3"}})
    assert [c.params["model"] for c in found if c.method == "tuned"] == ["m3"]


def test_no_model_fits_no_candidate() -> None:
    assert [c.method for c in pool(models=["m2"])] == ["plain"]
    assert pool(models=[], methods={"tuned": Tuned}) == []


def test_a_family_without_models_refuses_a_method_that_asks_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Toys, "catalogue", None)
    with pytest.raises(ConfigError, match="'toys' has no models"):
        pool()


# --- classes -------------------------------------------------------------------------------------


def test_params_are_the_last_type_argument() -> None:
    assert Sum.Params is Plain
    assert Tuned.Params is Params


def test_a_method_tells_where_it_stands() -> None:
    method = Sum.from_params({"width": 4})
    assert repr(method) == "Sum(Plain(width=4), untouched)"
    method.fidelity_ = 0.25
    assert repr(method) == "Sum(Plain(width=4), fidelity 0.25)"
    assert Sum.name() == "test-method"


def test_params_are_checked_by_name() -> None:
    with pytest.raises(ConfigError, match="method 'test-method' has no parameter 'wdith'"):
        Sum.from_params({"wdith": 4})
    with pytest.raises(ConfigError, match="width=0"):
        Sum.from_params({"width": 0})


def test_a_family_has_sensible_defaults() -> None:
    family = Toys()
    problem = family.toy_problem()
    assert not family.opens(Path("x.csv"))
    assert list(family.default_models(problem)) == []
    assert Problem.floor(problem) == {}
    assert np.isnan(Problem.size_hint(problem, Candidate("f", "m")))
    assert Problem.landmark_table(problem) is None
    with pytest.raises(ProblemError, match="do not predict rows"):
        family.predict(Path(), None, {})
    with pytest.raises(ProblemError, match=r"measures no objective 'x'\. Known: error, size"):
        problem.objective("x")
