"""Singular value calibration: its closed forms, invariances, controls and refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from lamps_plugins.model_merging._rules.svc import svc, svc_linear
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from _updates import dense, low_rank, relative

from lamps.errors import ConfigError, ProblemError


def orthogonal(n: int, seed: int) -> Tensor:
    return torch.linalg.qr(dense(1, 1, n, n, seed=seed)[0, 0])[0]


def disjoint(k: int = 3, each: int = 2, m: int = 12, n: int = 10) -> Tensor:
    """Updates with mutually orthogonal rows and columns and distinct sizes. [k, 1, m, n]."""
    u, v = orthogonal(m, 1), orthogonal(n, 2)
    parts = []
    for i in range(k):
        at = slice(i * each, (i + 1) * each)
        sizes = torch.arange(1, each + 1, dtype=torch.float64) + 0.1 * i
        parts.append((u[:, at] * sizes) @ v[:, at].T)
    return torch.stack(parts).unsqueeze(1)


@pytest.mark.parametrize("side", ["column", "row"])
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_equal_updates_summed_come_back(side: str, k: int, alpha: float) -> None:
    x = dense(1)
    found = svc(x.expand(k, -1, -1, -1), k * x[0], alpha=alpha, side=side)
    assert relative(found.update, x[0]) < 1e-12
    torch.testing.assert_close(found.gamma, torch.full_like(found.gamma, 1 / k))
    torch.testing.assert_close(found.coefficients, torch.full_like(found.coefficients, k))
    torch.testing.assert_close(found.inflation, torch.full_like(found.inflation, k))
    assert found.shrunk_energy.tolist() == [1, 1]


def test_equal_updates_averaged_stay() -> None:
    x = dense(1)
    for alpha in (0.2, 1.0):
        found = svc(x.expand(4, -1, -1, -1), x[0], alpha=alpha)
        assert relative(found.update, x[0]) < 1e-12


@pytest.mark.parametrize("alpha", [1.0, 0.5, 1 / 3])
@pytest.mark.parametrize("side", ["column", "row"])
def test_unrelated_updates_summed_are_scaled_by_the_floor(alpha: float, side: str) -> None:
    # Alpha is also a hidden scale: below 1 it enlarges what one expert owns.
    x = disjoint()
    found = svc(x, x.sum(0), alpha=alpha, side=side)
    factor = 3 / (1 + 2 * alpha)
    assert relative(found.update, factor * x.sum(0)) < 1e-9
    real = found.gamma > 0
    assert int(real.sum()) == 6
    torch.testing.assert_close(found.gamma[real], torch.full((6,), factor, dtype=torch.float64))


def test_alpha_one_shrinks_and_factors_are_bounded() -> None:
    x = dense(4, 3, seed=5)
    for alpha in (0.25, 1.0):
        gamma = svc(x, x.sum(0), alpha=alpha).gamma
        assert bool(((gamma > 0) & (gamma <= 1 / alpha + 1e-12)).all())
    shrunk = svc(x, x.sum(0), alpha=1.0)
    assert float(shrunk.gamma.max()) <= 1
    assert bool((torch.linalg.norm(shrunk.update) <= torch.linalg.norm(x.sum(0))).all())


@pytest.mark.parametrize("side", ["column", "row"])
def test_change_of_basis_carries_through(side: str) -> None:
    x = dense(3)
    p, q = orthogonal(12, 3), orthogonal(10, 4)
    wanted = p @ svc(x, x.sum(0), alpha=0.5, side=side).update @ q
    assert relative(svc(p @ x @ q, (p @ x @ q).sum(0), alpha=0.5, side=side).update, wanted) < 1e-9


def test_sides_are_each_others_transpose_and_signs_cancel() -> None:
    x = dense(3)
    column = svc(x, x.sum(0), alpha=0.5, side="column").update
    assert relative(svc(x.mT, x.mT.sum(0), alpha=0.5, side="row").update.mT, column) < 1e-9
    assert relative(svc(x, x.sum(0), alpha=0.5, side="row").update, column) > 1e-3
    assert relative(svc(-x, -x.sum(0), alpha=0.5).update, -column) < 1e-9
    assert relative(svc(7e-9 * x, 7e-9 * x.sum(0), alpha=0.5).update, 7e-9 * column) < 1e-6


def test_one_target() -> None:
    x = dense(3)
    found = svc(x, x.sum(0), alpha=0.5, target=1)
    s = found.coefficients[1]
    wanted = torch.where(s > 0, 1 / s.clamp_min(0.5), 1.0)
    torch.testing.assert_close(found.gamma, wanted)
    assert bool((s < 0).any())


def test_interference_of_a_direction_kept_once_is_zero() -> None:
    x = dense(1)
    assert float(svc(x.expand(2, -1, -1, -1), x[0], alpha=1.0).interference.max()) < 1e-18


@pytest.mark.parametrize(("c", "ratio"), [(0.5, 0.1), (1.0, 0.1), (2.0, 0.1)])
def test_shared_updates_are_recovered_where_a_sum_counts_them_k_times(
    c: float, ratio: float
) -> None:
    """Updates c S + T_k with a shared S of rank 4 and private, mutually orthogonal T_k."""
    k, side = 4, 64
    u, v = orthogonal(side, 11), orthogonal(side, 12)
    shared = 10 * u[:, :4] @ v[:, :4].T
    own = [5 * u[:, 4 + 4 * i : 8 + 4 * i] @ v[:, 4 + 4 * i : 8 + 4 * i].T for i in range(k)]
    x = torch.stack([c * shared + t for t in own]).unsqueeze(1)
    plain = svc(x, x.sum(0), alpha=1.0)
    after = svc(x, plain.update, alpha=1.0)
    assert float(after.interference) < ratio * float(plain.interference)
    nothing_shared = torch.stack(own).unsqueeze(1)
    kept = svc(nothing_shared, nothing_shared.sum(0), alpha=1.0)
    assert relative(kept.update, nothing_shared.sum(0)) < 1e-9
    # A floor of 1/K on a sum that was not averaged enlarges instead.
    wrong = svc(x, x.sum(0), alpha=1 / k)
    assert float(torch.linalg.norm(wrong.update)) > float(torch.linalg.norm(plain.update))


def test_one_factor_keeps_the_norm_and_the_shape_of_the_spectrum() -> None:
    x = dense(3)
    shaped = svc(x, x.sum(0), alpha=0.5)
    flat = svc(x, x.sum(0), alpha=0.5, factor="global")
    torch.testing.assert_close(
        torch.linalg.matrix_norm(flat.update), torch.linalg.matrix_norm(shaped.update)
    )
    ratio = flat.update / x.sum(0)
    torch.testing.assert_close(ratio, ratio[:, :1, :1].expand_as(ratio))
    torch.testing.assert_close(flat.rank_after, flat.rank_before)
    assert relative(flat.update, shaped.update) > 1e-2


@pytest.mark.parametrize("side", ["column", "row"])
@pytest.mark.parametrize("factor", ["direction", "global"])
@pytest.mark.parametrize("target", [None, 1])
def test_cores_give_the_same_in_single_precision(
    side: str, factor: str, target: int | None
) -> None:
    low = low_rank((2, 3, 2), m=40, n=30, dtype=torch.float32)
    weights = [0.3, 0.5, 0.4]
    child = torch.einsum("k,klmn->lmn", torch.tensor(weights), low.dense())
    wanted = svc(low.dense(), child, alpha=0.4, side=side, factor=factor, target=target)
    found = svc_linear(low, weights, alpha=0.4, side=side, factor=factor, target=target)
    assert relative(found.update, wanted.update) < 1e-5
    for name in ("inflation", "shrunk_energy", "rank_before", "rank_after", "interference"):
        torch.testing.assert_close(
            getattr(found, name), getattr(wanted, name), rtol=1e-4, atol=1e-5
        )


def test_layers_without_updates_pass_through() -> None:
    x = dense(3)
    x[:, 1] = 0
    merged = dense(1, seed=8)[0]
    found = svc(x, merged, alpha=0.5)
    assert found.skipped == 1
    assert relative(found.update[1:], merged[1:]) < 1e-12
    zero = svc(x, torch.zeros_like(merged), alpha=0.5)
    assert float(zero.update.abs().max()) == 0
    assert zero.rank_before.tolist() == [0, 0]


def test_a_faint_response_deletes_its_direction_unless_limited() -> None:
    # D_2 says the same as D_1, a thousand times weaker: s = 1001, and the factor nearly 0.
    x = torch.zeros(2, 1, 3, 3, dtype=torch.float64)
    x[0, 0, 0, 0], x[1, 0, 0, 0] = 1.0, 1e-3
    plain = svc(x, x.sum(0), alpha=1.0)
    assert plain.blown_up == 1
    assert float(plain.gamma.max()) < 0.01
    limited = svc(x, x.sum(0), alpha=1.0, limit=2.0)
    assert limited.blown_up == 1
    torch.testing.assert_close(limited.gamma.max().item(), 2 / (1.001 + 2))


def test_effective_rank_falls_to_what_carries_the_update() -> None:
    x = disjoint(2, 1)
    found = svc(x, x.sum(0), alpha=1.0)
    assert 1.9 < float(found.rank_before) < 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, "alpha is 0"),
        ({"alpha": -1.0}, "alpha is -1"),
        ({"alpha": float("inf")}, "alpha is inf"),
        ({"alpha": 1.0, "side": "left"}, "known: column, row"),
        ({"alpha": 1.0, "factor": "all"}, "known: direction, global"),
        ({"alpha": 1.0, "target": 3}, "expected 0 to 2"),
        ({"alpha": 1.0, "limit": 0.0}, "limit is 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    x = dense(3)
    with pytest.raises(ConfigError, match=message):
        svc(x, x.sum(0), **settings)  # type: ignore[arg-type]


def test_updates_that_do_not_fit_are_refused() -> None:
    x = dense(3)
    with pytest.raises(ProblemError, match="at least 2"):
        svc(x[:1], x[0], alpha=1.0)
    with pytest.raises(ProblemError, match="calibration needs equal ones"):
        svc(x, x.sum(0)[:, :4], alpha=1.0)
    with pytest.raises(ProblemError, match="NaN or infinity"):
        svc(x, x.sum(0) * float("inf"), alpha=1.0)
    with pytest.raises(ProblemError, match="at least 2"):
        svc_linear(low_rank((2,)), alpha=1.0)
