"""Rules that work entry by entry: exact thresholds, TIES over a model and by layer, DARE."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.model_merging._rules import ties as module
from lamps_plugins.model_merging._rules.dare import dare
from lamps_plugins.model_merging._rules.linear import average, task_arithmetic
from lamps_plugins.model_merging._rules.ties import (
    kth_magnitude,
    thresholds,
    ties_layer,
    ties_model,
)
from lamps_plugins.model_merging._rules.weighted import fisher_merge, regmean
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from _updates import dense, relative

from lamps.errors import ConfigError, ProblemError

VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-38, 3e38]), st.floats(-10, 10, width=32)
)


@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=20), min_size=1, max_size=4),
    st.data(),
    st.sampled_from([torch.float32, torch.float64]),
    st.booleans(),
)
def test_threshold_equals_sorting_the_whole(
    rows: list[list[float]], data: st.DataObject, dtype: torch.dtype, histogram: bool
) -> None:
    parts = [torch.tensor(r, dtype=dtype) for r in rows]
    flat = torch.cat(parts).abs()
    k = data.draw(st.integers(1, len(flat)))
    with pytest.MonkeyPatch.context() as patch:
        if histogram:
            patch.setattr(module, "SMALL", 0)
        found = kth_magnitude(parts, k)
    assert found.dtype == dtype
    assert found.item() == flat.topk(k).values[-1].item()
    assert found.item() == flat.kthvalue(len(flat) - k + 1).values.item()


def test_histogram_equals_topk_on_many_entries_with_ties() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(700_000, generator=generator)
    rounded = (x * 4).round() / 4
    for values in (x, rounded):
        parts = [values[:100_002].view(3, -1), values[100_002:]]
        for k in (1, 140_000, 699_999, 700_000):
            assert kth_magnitude(parts, k).item() == values.abs().topk(k).values[-1].item()


@pytest.mark.parametrize("k", [0, 4])
def test_a_rank_outside_the_entries_is_refused(k: int) -> None:
    with pytest.raises(ProblemError, match=f"magnitude number {k} of 3"):
        kth_magnitude([torch.ones(3)], k)


def flat_ties(x: Tensor, keep: float, combine: str = "mean") -> Tensor:
    """The definition on a flat model, [K, N], by sorting."""
    k = max(1, round(keep * x.shape[1]))
    bound = x.abs().sort(dim=1, descending=True).values[:, k - 1 : k]
    kept = torch.where(x.abs() >= bound, x, 0)
    sign = kept.sum(0).sign()
    sign = torch.where(sign == 0, sign.sum().sign(), sign)
    agree = torch.where(kept * sign > 0, kept, 0)
    total = agree.sum(0)
    return total / (agree != 0).sum(0).clamp_min(1) if combine == "mean" else total


@pytest.mark.parametrize("combine", ["mean", "sum"])
@pytest.mark.parametrize("keep", [0.05, 0.2, 0.7, 1.0])
def test_model_wide_ties_equals_the_flattened_model(combine: str, keep: float) -> None:
    groups = [dense(4, 2, 6, 5), dense(4, 3, 4, 4, seed=1) * 3, dense(4, 1, 1, 9, seed=2)[:, :, 0]]
    groups = [(g * 2).round() / 2 for g in groups]  # many ties, zeros and cancelled sums
    found = torch.cat([f.flatten() for f in ties_model(groups, keep, combine=combine)])
    wanted = flat_ties(torch.cat([g.flatten(1) for g in groups], 1), keep, combine)
    torch.testing.assert_close(found, wanted)


def test_layer_wise_ties_is_ties_of_each_layer_and_another_rule() -> None:
    x = dense(3, 2) * torch.tensor([1.0, 20.0]).view(1, 2, 1, 1)
    by_layer = ties_layer(x, 0.2)
    for i in range(2):
        assert torch.equal(by_layer[i : i + 1], ties_model([x[:, i : i + 1]], 0.2)[0])
    whole = ties_model([x], 0.2)[0]
    assert float((whole[0] != 0).double().mean()) < 0.05  # the small layer is trimmed away
    assert relative(by_layer, whole) > 0.05


def test_ties_of_vectors_and_scale() -> None:
    x = dense(3)[:, :, 0]
    assert ties_layer(x).shape == x.shape[1:]
    torch.testing.assert_close(ties_layer(x, scale=0.5), 0.5 * ties_layer(x))


def test_ties_is_odd() -> None:
    x = (dense(4) * 2).round() / 2
    torch.testing.assert_close(ties_layer(-x, 0.7), -ties_layer(x, 0.7))


def test_majority_of_the_model_settles_cancelled_entries() -> None:
    x = torch.tensor([[[[1.0, 2.0, 3.0]]], [[[-1.0, 2.0, 3.0]]]])
    assert ties_layer(x, 1.0).tolist() == [[[1, 2, 3]]]
    # Majority over all groups: the second one outvotes the first.
    other = torch.full((2, 1, 1, 5), -1.0)
    assert ties_model([x, other], 1.0)[0].tolist() == [[[-1, 2, 3]]]


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.1, float("nan")])
def test_ties_refuses_a_share_that_is_none(keep: float) -> None:
    with pytest.raises(ConfigError, match="keep is"):
        ties_layer(dense(), keep)


def test_ties_refuses_groups_that_do_not_fit() -> None:
    with pytest.raises(ProblemError, match=r"groups hold \[3, 2\] experts"):
        ties_model([dense(3), dense(2)])
    with pytest.raises(ProblemError, match="at least one group"):
        ties_model([])
    with pytest.raises(ConfigError, match="combine is 'max'"):
        ties_model([dense()], combine="max")


def test_thresholds_keep_the_asked_share() -> None:
    x = dense(3, 2, 30, 20)
    bounds = thresholds([x], 0.2)
    kept = (x.flatten(1).abs() >= bounds[:, None]).sum(1)
    assert kept.tolist() == [240, 240, 240]


SEEDS = np.arange(6).reshape(3, 2)


def test_dare_keeps_the_mean_and_rescales() -> None:
    x = torch.ones(3, 2, 300, 200)
    found = dare(x, 0.8, SEEDS)
    assert set(found.unique().tolist()) == {0.0, float(torch.tensor(1.0) / (1 - 0.8))}
    assert abs(float(found.mean()) - 1) < 0.02


def test_dare_masks_belong_to_their_seeds() -> None:
    x = dense(3, 2)
    whole = dare(x, 0.5, SEEDS)
    assert torch.equal(dare(x[[2, 0, 1]], 0.5, SEEDS[[2, 0, 1]]), whole[[2, 0, 1]])
    assert torch.equal(dare(x[:, 1:], 0.5, SEEDS[:, 1:]), whole[:, 1:])
    assert not torch.equal(dare(x, 0.5, SEEDS + 6), whole)
    assert torch.equal(dare(x.float(), 0.5, SEEDS) != 0, whole != 0)
    assert torch.equal(dare(x, 0.0, SEEDS), x)


@pytest.mark.parametrize("drop", [-0.1, 1.0, float("nan")])
def test_dare_refuses_what_is_no_share(drop: float) -> None:
    with pytest.raises(ConfigError, match="drop is"):
        dare(dense(), drop, SEEDS)


def test_dare_refuses_seeds_of_another_shape_and_nan() -> None:
    with pytest.raises(ConfigError, match="one per expert and layer"):
        dare(dense(), 0.5, SEEDS[:, :1])
    with pytest.raises(ProblemError, match="NaN"):
        dare(dense() * float("nan"), 0.5, SEEDS)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.zeros(2, 3), "expected"),
        (torch.zeros(2, 0, 3, 3), "empty"),
        (torch.zeros(0, 2, 3, 3), "at least 1"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.int64), "floating point"),
    ],
)
def test_shapes_that_are_no_updates_are_refused(bad: Tensor, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        average(bad)


def test_linear_rules() -> None:
    x = dense()
    torch.testing.assert_close(average(x), x.mean(0))
    torch.testing.assert_close(task_arithmetic(x), 0.3 * x.sum(0))
    torch.testing.assert_close(task_arithmetic(x[:, :, 0], 2.0), 2 * x[:, :, 0].sum(0))


def test_fisher_weights_pick_experts_entry_by_entry() -> None:
    x = dense(2)
    f = torch.zeros_like(x)
    f[0, :, :6], f[1, :, 6:] = 1e-30, 5.0
    found = fisher_merge(x, f)
    assert torch.equal(found[:, :6], x[0, :, :6])
    assert torch.equal(found[:, 6:], x[1, :, 6:])
    assert torch.equal(fisher_merge(x, torch.zeros_like(x)), x.mean(0))
    weights = dense(2, seed=1).square()
    torch.testing.assert_close(fisher_merge(x, weights), (weights * x).sum(0) / weights.sum(0))
    with pytest.raises(ProblemError, match="negative"):
        fisher_merge(x, -f)
    with pytest.raises(ProblemError, match="Fisher weights have shape"):
        fisher_merge(x, f[:1])


def test_regmean_minimises_the_distance_of_outputs() -> None:
    x = dense(3, 2, 6, 5)
    inputs = dense(3, 2, 40, 5, seed=7)
    grams = inputs.mT @ inputs
    found = regmean(x, grams, off_diagonal=1.0)
    # Stacked least squares over all experts' inputs and outputs, layer by layer.
    for i in range(2):
        a = inputs[:, i].reshape(-1, 5)
        b = (inputs[:, i] @ x[:, i].mT).reshape(-1, 6)
        torch.testing.assert_close(found[i], torch.linalg.lstsq(a, b).solution.T)
    # Without correlations it is an average weighted by input energy.
    energy = torch.diagonal(grams, dim1=-2, dim2=-1).unsqueeze(-2)
    wanted = (x * energy).sum(0) / energy.sum(0)
    torch.testing.assert_close(regmean(x, grams, off_diagonal=0.0), wanted)
    assert relative(regmean(x, grams), found) > 1e-3


def test_regmean_edges() -> None:
    x = dense(3, 2, 6, 5)
    inputs = dense(3, 2, 40, 5, seed=7)
    inputs[..., 2] = 0
    found = regmean(x, inputs.mT @ inputs)
    torch.testing.assert_close(found[..., 2], x.mean(0)[..., 2])
    few = inputs[:, :, :1]
    with pytest.raises(ProblemError, match="singular"):
        regmean(x, few.mT @ few, off_diagonal=1.0)
    with pytest.raises(ProblemError, match="not symmetric"):
        regmean(x, dense(3, 2, 5, 5))
    with pytest.raises(ProblemError, match="Grams have shape"):
        regmean(x, dense(3, 2, 6, 6))
    with pytest.raises(ConfigError, match="off_diagonal"):
        regmean(x, inputs.mT @ inputs, off_diagonal=1.5)
