"""Lift, transfer and return: the oracles of BTransfer, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.task_update_transfer._factor import (
    Factor,
    Settings,
    amplification,
    check_fisher,
    full_factor,
    full_posterior,
    returned,
)

from lamps.errors import ProblemError

EXACT = Settings(floor=0.0)


def draw(seed: int, n: int = 3) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.standard_normal((4, 5))) for _ in range(n)]


def fishers(seed: int, n: int = 3) -> list[torch.Tensor]:
    return [x.square() + 0.01 for x in draw(seed + 1_000, n)]


seeds = st.integers(0, 10_000)


@given(seeds)
def test_an_unchanged_base_gets_the_fine_tuned_model_back(seed: int) -> None:
    old, tuned, _ = draw(seed)
    f_o, f_t, _ = fishers(seed)
    found = returned(old, tuned, old, f_o, f_o, f_t, EXACT)
    torch.testing.assert_close(found, tuned, rtol=1e-9, atol=1e-12)


@given(seeds)
def test_without_task_fisher_and_with_equal_bases_it_is_the_plain_update(seed: int) -> None:
    old, tuned, new = draw(seed)
    f_o, _, _ = fishers(seed)
    found = returned(old, tuned, new, f_o, f_o, torch.zeros_like(f_o), EXACT)
    torch.testing.assert_close(found, new + tuned - old)


@given(seeds)
def test_an_infinite_task_fisher_gives_the_fine_tuned_model(seed: int) -> None:
    old, tuned, new = draw(seed)
    f_o, f_n, f_t = fishers(seed)
    found = returned(old, tuned, new, f_o, f_n, f_t * 1e14, EXACT)
    torch.testing.assert_close(found, tuned)


@given(seeds)
def test_nothing_learned_leaves_the_new_base(seed: int) -> None:
    old, _, new = draw(seed)
    f_o, f_n, _ = fishers(seed)
    found = returned(old, old, new, f_o, f_n, torch.zeros_like(f_o), EXACT)
    torch.testing.assert_close(found, new)


@given(seeds, st.floats(0.01, 100))
def test_the_kept_factor_says_the_same(seed: int, kappa: float) -> None:
    old, tuned, new = draw(seed)
    f_o, f_n, f_t = fishers(seed)
    how = Settings(kappa=kappa, floor=0.0)
    factor = Factor.lifted({"w": old}, {"w": tuned}, {"w": f_o}, {"w": kappa * f_t})
    found = factor.on({"w": new}, {"w": f_n})["w"]
    torch.testing.assert_close(found, returned(old, tuned, new, f_o, f_n, f_t, how))


@given(seeds)
def test_precision_never_falls(seed: int) -> None:
    old, tuned, _ = draw(seed)
    f_o, f_t, _ = fishers(seed)
    factor = Factor.lifted({"w": old}, {"w": tuned}, {"w": f_o}, {"w": f_t})
    assert bool((factor.precision["w"] >= 0).all())


@given(seeds)
def test_conjugate_regression_is_exact(seed: int) -> None:
    # The theory's ideal case: a Gaussian prior, a linear model, known noise.
    rng = np.random.default_rng(seed)
    d, n, noise = 6, 20, 0.3
    x, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    task = torch.from_numpy(x.T @ x / noise), torch.from_numpy(x.T @ y / noise)

    def prior() -> tuple[torch.Tensor, torch.Tensor]:
        root = rng.standard_normal((d, d))
        mean = torch.from_numpy(rng.standard_normal(d))
        return mean, torch.from_numpy(root @ root.T + np.eye(d))

    def posterior(mean: Any, precision: Any) -> tuple[torch.Tensor, torch.Tensor]:
        whole = precision + task[0]
        return torch.linalg.solve(whole, precision @ mean + task[1]), whole

    old, new = prior(), prior()
    shift, extra = full_factor(*posterior(*old), *old)
    torch.testing.assert_close(extra, task[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(shift, task[1], rtol=1e-10, atol=1e-10)
    mean, precision = full_posterior(shift, extra, *new)
    wanted = posterior(*new)
    torch.testing.assert_close(mean, wanted[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(precision, wanted[1], rtol=1e-10, atol=1e-10)


def test_the_cap_bounds_what_dead_units_would_blow_up() -> None:
    old, tuned, new = torch.zeros(2), torch.ones(2), torch.zeros(2)
    f_o, f_n, f_t = torch.tensor([1.0, 1e-3]), torch.full((2,), 1e-6), torch.full((2,), 1e-6)
    how = Settings(cap=10.0)
    assert float(amplification(f_o, f_n, f_t, how)[0]) == pytest.approx(5e5)
    found = returned(old, tuned, new, f_o, f_n, f_t, how)
    assert found.max() <= 0.5 + 10.0 + 1e-6
    assert returned(old, tuned, new, f_o, f_n, f_t, Settings()).max() > 1e5


def test_a_factor_survives_its_file(tmp_path: Path) -> None:
    old, tuned, new = draw(1)
    f_o, f_n, f_t = fishers(1)
    factor = Factor.lifted({"a.w": old}, {"a.w": tuned}, {"a.w": f_o}, {"a.w": f_t})
    factor.save(tmp_path / "factor.safetensors")
    again = Factor.load(tmp_path / "factor.safetensors")
    for found in (again, factor):
        assert torch.equal(
            found.on({"a.w": new}, {"a.w": f_n})["a.w"],
            factor.on({"a.w": new}, {"a.w": f_n})["a.w"],
        )


@pytest.mark.parametrize(
    ("bad", "culprit"),
    [
        ({}, "no 'w'"),
        ({"w": torch.ones(3, 2)}, "[3, 2]"),
        ({"w": -torch.ones(2, 3)}, "negative"),
        ({"w": torch.full((2, 3), torch.nan)}, "finite"),
    ],
)
def test_fishers_that_are_no_precisions_are_refused(bad: Any, culprit: str) -> None:
    with pytest.raises(ProblemError) as caught:
        check_fisher("of the task", bad, {"w": torch.ones(2, 3)})
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_factor_needs_the_shapes_it_came_from() -> None:
    old, tuned, _ = draw(2)
    f_o, f_n, f_t = fishers(2)
    factor = Factor.lifted({"w": old}, {"w": tuned}, {"w": f_o}, {"w": f_t})
    with pytest.raises(ProblemError, match="same shapes"):
        factor.on({"w": torch.ones(2, 2)}, {"w": f_n})
