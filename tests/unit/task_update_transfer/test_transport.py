"""Partial isometries and what is carried along them, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.task_update_transfer._transport import (
    carried,
    padded_identity,
    procrustes,
    quality,
    random_isometry,
    scaled_basis,
    whitened,
)

from lamps.errors import ProblemError

sizes = st.integers(1, 12)
seeds = st.integers(0, 10_000)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@given(sizes, sizes, seeds)
def test_maps_are_partial_isometries(a: int, b: int, seed: int) -> None:
    for found in (
        procrustes(normal(seed, a, b)), random_isometry(a, b, np.random.default_rng(seed)),
        padded_identity(a, b),
    ):  # fmt: skip
        small = found @ found.T if a <= b else found.T @ found
        torch.testing.assert_close(small, torch.eye(min(a, b), dtype=torch.float64))


@given(sizes, seeds)
def test_equal_activations_match_themselves(d: int, seed: int) -> None:
    x = normal(seed, 4 * d + 4, d)
    torch.testing.assert_close(procrustes(x.T @ x), torch.eye(d, dtype=torch.float64))


@given(sizes, seeds, st.sampled_from([0.0, 0.25, 0.5]))
def test_a_permutation_is_found_whitened_or_not(d: int, seed: int, power: float) -> None:
    x = normal(seed, 6 * d + 6, d)
    order = np.random.default_rng(seed).permutation(d)
    y = x[:, order]
    cross = whitened(x.T @ y, x.T @ x, y.T @ y, power) if power else x.T @ y
    found = procrustes(cross)
    torch.testing.assert_close(
        found, torch.eye(d, dtype=torch.float64)[:, order], atol=1e-5, rtol=0
    )
    if not power:
        assert quality(cross, float(x.square().sum()), float(y.square().sum())) == pytest.approx(1)


@given(sizes, sizes, sizes, sizes, seeds)
def test_norm_is_kept_towards_wider_and_never_grows(
    m: int, n: int, extra: int, less: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    update = normal(seed, m, n)
    wide = carried(update, random_isometry(n, n + extra, rng), random_isometry(m, m + extra, rng))
    assert float(wide.norm()) == pytest.approx(float(update.norm()), rel=1e-9)
    assert torch.linalg.matrix_rank(wide) == torch.linalg.matrix_rank(update)
    narrow = carried(
        update, random_isometry(n, min(n, less), rng), random_isometry(m, min(m, less), rng)
    )
    assert float(narrow.norm()) <= float(update.norm()) * (1 + 1e-9)


def test_doubled_units_take_the_source_over_exactly() -> None:
    """W_B = [[W, W], [W, W]] / 2 on doubled activations: T = [I I] / sqrt 2, closed form."""
    widths = (7, 6, 5, 4)  # outputs of every layer fill their space
    weights = [normal(i, widths[i + 1], widths[i]) for i in range(3)]
    updates = [0.3 * normal(10 + i, widths[i + 1], widths[i]) for i in range(3)]
    x = normal(20, 200, widths[0])
    doubled = [w.repeat(2, 2) / 2 for w in weights]
    states, twins = [x], [x.repeat(1, 2)]
    for w, w_b in zip(weights, doubled, strict=True):
        states.append(torch.tanh(states[-1] @ w.T))
        twins.append(torch.tanh(twins[-1] @ w_b.T))
    moved = []
    for i, (update, w_b) in enumerate(zip(updates, doubled, strict=True)):
        before = (states[i] @ weights[i].T, twins[i] @ w_b.T)
        t_in, t_out = procrustes(states[i].T @ twins[i]), procrustes(before[0].T @ before[1])
        torch.testing.assert_close(t_in, torch.eye(widths[i]).double().repeat(1, 2) / 2**0.5)
        moved.append(w_b + carried(update, t_in, t_out))
        torch.testing.assert_close(moved[-1] - w_b, update.repeat(2, 2) / 2)
    source, target = x, x.repeat(1, 2)
    for w, update, w_b in zip(weights, updates, moved, strict=True):
        source, target = torch.tanh(source @ (w + update).T), torch.tanh(target @ w_b.T)
    torch.testing.assert_close(target, source.repeat(1, 2))


def test_sides_are_not_mixed_up_where_nothing_is_square() -> None:
    update, t_in, t_out = normal(0, 3, 5), normal(1, 5, 7), normal(2, 3, 4)
    found = carried(update, t_in, t_out)
    assert found.shape == (4, 7)
    x = normal(3, 7)
    torch.testing.assert_close(found @ x, t_out.T @ (update @ (t_in @ x)))
    assert carried(normal(4, 3), None, t_out).shape == (4,)


def test_a_basis_rebuilds_its_matrix() -> None:
    x = normal(5, 9, 6)
    basis = scaled_basis(x.T @ x, 0.0)
    torch.testing.assert_close(basis @ basis.T, x.T @ x)


def test_activations_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ProblemError, match="not finite"):
        procrustes(torch.full((2, 2), torch.nan))
