"""Projection on the simplex and least squares over it, against exact solutions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views.simplex import project, regress
from lamps_plugins.fair_multi_view_clustering._sylvester import solve_low_rank

SEEDS = st.integers(0, 2**32 - 1)


def exact(quadratic: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """The minimiser by trying every support: on each the problem is a linear system."""
    m = len(linear)
    best, found = np.inf, np.full(m, 1.0 / m)
    for size in range(1, m + 1):
        for support in map(list, itertools.combinations(range(m), size)):
            system = np.zeros((size + 1, size + 1))
            system[:size, :size] = quadratic[np.ix_(support, support)]
            system[:size, size] = system[size, :size] = 1.0
            z = np.zeros(m)
            z[support] = np.linalg.lstsq(system, np.append(linear[support], 1.0), rcond=None)[0][
                :size
            ]
            if z.min() < -1e-12 or abs(z.sum() - 1.0) > 1e-9:
                continue
            value = z @ quadratic @ z - 2.0 * linear @ z
            if value < best:
                best, found = value, z
    return found


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, m=st.integers(1, 5))
def test_projection_is_the_nearest_point(seed: int, m: int) -> None:
    points = np.random.default_rng(seed).normal(scale=2.0, size=(3, m))
    found = project(points)
    assert found.min() >= 0.0
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    for point, near in zip(points, found, strict=True):
        np.testing.assert_allclose(near, exact(np.eye(m), point), atol=1e-8)


@given(seed=SEEDS, m=st.integers(1, 9), shift=st.floats(-50, 50))
def test_projection_keeps_the_simplex_and_forgets_shifts(seed: int, m: int, shift: float) -> None:
    points = np.random.default_rng(seed).normal(size=(4, m))
    found = project(points)
    np.testing.assert_allclose(project(found), found, atol=1e-12)
    np.testing.assert_allclose(project(points + shift), found, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, m=st.integers(2, 5))
def test_regression_finds_the_minimum(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m + 2, m))
    quadratic, linear = root.T @ root + 0.1 * np.eye(m), rng.normal(size=(6, m)) * 3.0
    found = regress(quadratic, linear, steps=2000)
    for row, z in zip(linear, found, strict=True):
        np.testing.assert_allclose(z, exact(quadratic, row), atol=2e-4)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, steps=st.integers(1, 4))
def test_regression_never_gets_worse_and_ignores_the_company(seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 6)) * 10.0
    quadratic, linear = root.T @ root, rng.normal(size=(20, 6)) * 30.0
    start = project(rng.normal(size=(20, 6)))

    def value(z: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->i", z @ quadratic - 2.0 * linear, z)

    found = regress(quadratic, linear, start, steps=steps)
    assert (value(found) <= value(start) + 1e-9).all()


@pytest.mark.parametrize(("d", "m", "beta"), [(7, 4, 3.0), (4, 7, 0.5), (6, 6, 1000.0), (9, 3, 0)])
def test_sylvester_agrees_with_scipy(d: int, m: int, beta: float) -> None:
    from scipy.linalg import solve_sylvester

    rng = np.random.default_rng(d)
    left, root, target = rng.normal(size=(d, m)), rng.normal(size=(m, m)), rng.normal(size=(d, m))
    right = root @ root.T + 0.2 * np.eye(m)
    found = solve_low_rank(left, beta, right, target)
    np.testing.assert_allclose(
        found, solve_sylvester(beta * left @ left.T, right, target), atol=1e-9
    )


def test_sylvester_survives_an_anchor_that_nobody_uses() -> None:
    rng = np.random.default_rng(0)
    codes = np.eye(3)[rng.integers(2, size=20)]
    found = solve_low_rank(
        rng.normal(size=(5, 3)), 10.0, codes.T @ codes, rng.normal(size=(20, 5)).T @ codes
    )
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 2], 0.0, atol=1e-6)
