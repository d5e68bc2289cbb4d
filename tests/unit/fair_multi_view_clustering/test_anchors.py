"""The mathematics of fair anchors: every exact block lowers the objective, and its identities."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views.simplex import regress
from lamps_plugins.fair_multi_view_clustering import _anchors as anchors
from lamps_plugins.fair_multi_view_clustering._anchors import Groups, Model, Weights

M = 6


def instance(seed: int, n: int = 80, t: int = 2, dtype: Any = np.float64) -> Any:
    """Two views of three blobs whose values differ by group, and where the paper begins."""
    rng = np.random.default_rng(seed)
    group = np.resize(np.arange(t), n)
    rng.shuffle(group)
    y = rng.integers(3, size=n)
    views = []
    for d in (5, 8):
        centres, shifts = rng.normal(scale=3.0, size=(3, d)), rng.normal(scale=1.5, size=(t, d))
        x = centres[y] + shifts[group] + rng.normal(size=(n, d))
        views.append(((x - x.mean(0)) / x.std(0)).astype(dtype))
    rows = rng.choice(n, M, replace=False)
    labels = np.argmin(
        ((np.hstack(views)[:, None] - np.hstack(views)[rows]) ** 2).sum(axis=2), axis=1
    )
    groups = Groups.of(group, dtype)
    model = anchors.start(views, groups, [x[rows] for x in views], labels, sensitive=True)
    return views, groups, model


def weights(**changes: Any) -> Weights:
    return dataclasses.replace(Weights(alpha=2.0, beta=(0.5, 0.3), gamma=3.0), **changes)


def total(views: Any, model: Model, groups: Groups, used: Weights) -> float:
    return anchors.objective(views, model, groups, used)["total"]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), t=st.integers(2, 4), alpha=st.sampled_from([0.0, 1.0, 1e3]))
def test_every_block_lowers_the_objective(seed: int, t: int, alpha: float) -> None:
    views, groups, model = instance(seed, t=t)
    used = weights(alpha=alpha, zu_step="joint")
    before = total(views, model, groups, used)
    for _ in range(3):
        blocks: list[Any] = [
            lambda m: {"rotation": anchors.rotation(m.biased_codes, groups)},
            lambda m: {
                "biased": anchors.anchor_step(
                    views, m.fair_codes, m.content, m.biased_codes, used.beta
                )
            },
            lambda m: {"biased_codes": anchors.sensitive_step(views, m, groups, used)},
            lambda m: {
                "content": anchors.anchor_step(
                    views, m.biased_codes, m.biased, m.fair_codes, used.beta
                )
            },
            lambda m: {"fair_codes": anchors.fair_step(views, m, groups, used, alpha).fair_codes},
        ]
        for block in blocks:
            model = dataclasses.replace(model, **block(model))
            after = total(views, model, groups, used)
            assert after <= before * (1 + 1e-6) + 1e-6
            before = after


def test_a_sweep_is_those_blocks_in_order() -> None:
    views, groups, model = instance(3)
    used = weights(zu_step="joint")
    totals = [total(views, model, groups, used)]
    for number in range(8):
        model = anchors.sweep(views, model, groups, used, number)
        totals.append(total(views, model, groups, used))
    assert np.diff(totals).max() <= 1e-6 * totals[0]
    np.testing.assert_allclose(model.rotation.T @ model.rotation, np.eye(2), atol=1e-10)
    for codes in (model.fair_codes, model.biased_codes):
        assert codes.min() >= 0.0
        np.testing.assert_allclose(codes.sum(axis=1), 1.0, atol=1e-9)


def test_the_printed_objective_rises_where_ours_falls() -> None:
    """The update of the sensitive codes does not minimise the last term as it stands in print."""
    views, groups, model = instance(0)
    used = weights(gamma=1e6)

    def printed(codes: np.ndarray) -> float:
        return float(((groups.one_hot - codes @ model.rotation) ** 2).sum())

    turn = model.rotation
    best = regress(turn @ turn.T, groups.one_hot @ turn.T, steps=2000)
    model = dataclasses.replace(model, biased_codes=best)
    moved = dataclasses.replace(
        model, biased_codes=anchors.sensitive_step(views, model, groups, used)
    )
    assert total(views, moved, groups, used) < total(views, model, groups, used)
    assert printed(moved.biased_codes) > 1.05 * printed(best)


def test_dependence_is_the_hilbert_schmidt_criterion() -> None:
    _, groups, model = instance(1, n=30, t=3)
    z, g = model.biased_codes, groups.one_hot
    n = len(z)
    centre = np.eye(n) - 1.0 / n
    traced = np.trace(z @ z.T @ centre @ g @ g.T @ centre)
    assert anchors.dependence(z, groups) == pytest.approx(traced)


@pytest.mark.parametrize("t", [2, 3, 5])
def test_groups_know_the_space_of_their_columns(t: int) -> None:
    _, groups, _ = instance(2, n=60, t=t)
    assert groups.basis.shape == (60, t - 1)
    np.testing.assert_allclose(groups.basis.T @ groups.basis, np.eye(t - 1), atol=1e-9)
    np.testing.assert_allclose(
        (groups.basis * groups.powers) @ groups.basis.T, groups.centred @ groups.centred.T,
        atol=1e-8,
    )  # fmt: skip
    assert groups.norm2 == pytest.approx(np.linalg.norm(groups.centred, 2) ** 2)


def test_names_of_groups_do_not_matter() -> None:
    views, groups, model = instance(5, t=3)
    used = weights()
    swapped = Groups.of(np.array([2, 0, 1])[groups.one_hot.argmax(axis=1)], np.float64)
    other = dataclasses.replace(model, rotation=anchors.rotation(model.biased_codes, swapped))
    for number in range(3):
        model = anchors.sweep(views, model, groups, used, number)
        other = anchors.sweep(views, other, swapped, used, number)
    np.testing.assert_allclose(model.fair_codes, other.fair_codes, atol=1e-7)


def test_order_of_samples_does_not_matter() -> None:
    views, groups, model = instance(6)
    order = np.random.default_rng(0).permutation(len(views[0]))
    moved = Groups.of(groups.one_hot.argmax(axis=1)[order], np.float64)
    other = dataclasses.replace(
        model, fair_codes=model.fair_codes[order], biased_codes=model.biased_codes[order]
    )
    for number in range(3):
        model = anchors.sweep(views, model, groups, weights(), number)
        other = anchors.sweep([x[order] for x in views], other, moved, weights(), number)
    np.testing.assert_allclose(model.fair_codes[order], other.fair_codes, atol=1e-7)


def test_a_common_scale_of_the_views_is_a_scale_of_the_weights() -> None:
    views, groups, model = instance(7)
    s = 3.0
    used = weights(zu_step="joint")
    # The overlap is of fourth order in the data, the other two terms of order zero.
    scaled = weights(
        zu_step="joint", alpha=used.alpha * s**2, gamma=used.gamma * s**2,
        beta=tuple(b / s**2 for b in used.beta),
    )  # fmt: skip
    other = dataclasses.replace(
        model,
        content=tuple(s * a for a in model.content),
        biased=tuple(s * a for a in model.biased),
    )
    for number in range(3):
        model = anchors.sweep(views, model, groups, used, number)
        other = anchors.sweep([s * x for x in views], other, groups, scaled, number)
    np.testing.assert_allclose(model.fair_codes, other.fair_codes, atol=1e-6)


def test_split_takes_out_the_difference_of_two_groups() -> None:
    """Before the projection; the reconstruction is switched off by codes that are optimal."""
    _, groups, model = instance(8)
    codes = model.biased_codes
    moved = codes - groups.centred @ (groups.centred.T @ codes) / groups.norm2
    assert anchors.dependence(moved, groups) < 1e-18
    assert anchors.dependence(codes, groups) > 1e-3


@pytest.mark.parametrize("step", anchors.ZU_STEPS)
def test_all_moves_make_codes_fairer_than_none(step: str) -> None:
    blind = fair = 0.0
    for seed in range(4):
        views, groups, first = instance(seed, n=200)
        for alpha in (0.0, 50.0):
            model, used = first, weights(alpha=alpha, zu_step=step)
            for number in range(30):
                model = anchors.sweep(views, model, groups, used, number)
            found = anchors.dependence(model.fair_codes, groups)
            blind, fair = (blind + found, fair) if alpha == 0.0 else (blind, fair + found)
    assert fair < 0.5 * blind


def test_joint_hardly_moves_where_alpha_is_large() -> None:
    """The known weak point: one step size for both terms shrinks with alpha and n."""
    views, groups, model = instance(9)
    fair = dataclasses.replace(model, fair_codes=np.full_like(model.fair_codes, 1.0 / M))

    def moved(step: str) -> float:
        used = weights(alpha=1e6, zu_step=step, inner_steps=1)
        new = anchors.fair_step(views, fair, groups, used, 1e6)
        return float(np.linalg.norm(new.fair_codes - fair.fair_codes))

    assert moved("split") > 1000 * moved("joint")


def test_alternate_sampling_spreads() -> None:
    data = np.linspace(0.0, 1.0, 101)[:, None]
    rows = anchors.alternate_sampling(data, 5)
    assert rows[0] == 100
    assert abs(rows[1] - 50) <= 1
    assert len(set(rows.tolist())) == 5


def test_alternate_sampling_never_repeats_even_where_rows_are_equal() -> None:
    assert len(set(anchors.alternate_sampling(np.ones((7, 2)), 7).tolist())) == 7


def test_float32_agrees_with_float64() -> None:
    results = []
    for dtype in (np.float32, np.float64):
        views, groups, model = instance(4, dtype=dtype)
        for number in range(3):
            model = anchors.sweep(views, model, groups, weights(), number)
        results.append(anchors.objective(views, model, groups, weights()))
    assert results[0]["total"] == pytest.approx(results[1]["total"], rel=1e-3)


def test_memory_grows_with_n_and_not_with_its_square() -> None:
    n = 8000
    views, groups, model = instance(0, n=n, dtype=np.float32)
    tracemalloc.start()
    try:
        for step in anchors.ZU_STEPS:
            used = weights(zu_step=step)
            anchors.objective(views, anchors.sweep(views, model, groups, used, 0), groups, used)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * n / 20  # bytes; the smallest matrix of all pairs would take n * n
