"""Losses on assignments, against their formulas written out, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.image_clustering import _losses as losses
from lamps_plugins.image_clustering._nets import Adapter, Fusion, Head, Reduction, attention_heads


def soft(seed: int, rows: int = 12, k: int = 4) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.dirichlet(np.ones(k), rows))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), tau=st.sampled_from([0.5, 1.1, 5.0]))
def test_column_contrast_is_its_formula(seed: int, tau: float) -> None:
    a, b = soft(seed), soft(seed + 1)
    columns = np.concatenate([a.numpy().T, b.numpy().T])
    columns /= np.linalg.norm(columns, axis=1, keepdims=True)
    k, total = 4, 0.0
    for i in range(2 * k):
        sims = columns @ columns[i] / tau
        others = [math.exp(sims[j]) for j in range(2 * k) if j != i]
        total -= math.log(math.exp(sims[(i + k) % (2 * k)]) / sum(others))
    assert float(losses.column_contrast(a, b, tau)) == pytest.approx(total / (2 * k), rel=1e-6)


def test_column_contrast_is_lowest_where_both_agree_on_separate_clusters() -> None:
    hard = torch.eye(4, dtype=torch.float64).repeat(3, 1)
    same = losses.column_contrast(hard, hard, 0.5)
    assert same < losses.column_contrast(hard, soft(0), 0.5)
    assert same < losses.column_contrast(hard, hard.roll(1, dims=1), 0.5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_names_of_clusters_and_order_of_rows_do_not_matter(seed: int) -> None:
    a, b = soft(seed), soft(seed + 1)
    rng = np.random.default_rng(seed)
    rows, names = torch.from_numpy(rng.permutation(12)), torch.from_numpy(rng.permutation(4))
    a2, b2 = a[rows][:, names], b[rows][:, names]
    for loss in (
        lambda x, y: losses.column_contrast(x, y, 1.1),
        losses.alignment,
        losses.pair_consistency,
    ):
        assert float(loss(a, b)) == pytest.approx(float(loss(a2, b2)), rel=1e-9)


def test_dead_clusters_give_finite_losses_and_gradients() -> None:
    logits = torch.randn(10, 4, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    logits[:, 3] = -200.0  # underflows: nobody is in this cluster
    logits.requires_grad_(True)
    p = torch.softmax(logits, dim=1)
    total = losses.column_contrast(p, p, 1.1) + losses.alignment(p, p)
    total = total + losses.pair_consistency(p, p) + losses.entropy_of_mean(p)
    total.backward()
    assert torch.isfinite(total)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_entropy_of_mean_knows_even_and_collapsed() -> None:
    assert float(losses.entropy_of_mean(torch.eye(5))) == pytest.approx(math.log(5), abs=1e-5)
    collapsed = torch.zeros(6, 5)
    collapsed[:, 2] = 1.0
    assert float(losses.entropy_of_mean(collapsed)) == pytest.approx(0.0, abs=1e-6)


def test_alignment_is_lowest_for_the_teachers_own_columns() -> None:
    teacher = soft(3)
    own = losses.alignment(teacher, teacher)
    assert all(own < losses.alignment(soft(seed), teacher) for seed in range(4, 12))


@pytest.mark.parametrize(("width", "heads"), [(384, 8), (24, 8), (12, 6), (7, 7), (11, 1)])
def test_heads_divide_the_width(width: int, heads: int) -> None:
    assert attention_heads(width) == heads


def test_reduction_is_principal_components() -> None:
    from sklearn.decomposition import PCA

    x = np.random.default_rng(0).normal(size=(60, 9)) * np.arange(1, 10)
    net = Reduction(9, 4)
    net.fit(torch.from_numpy(x).float())
    ours = net(torch.from_numpy(x).float()).numpy()
    theirs = PCA(4).fit_transform(x)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs((ours * theirs).sum(0)), (theirs**2).sum(0), rtol=1e-3)


def test_reduction_leaves_narrow_features_alone() -> None:
    x = torch.randn(5, 3)
    net = Reduction(3, 4)
    net.fit(x)
    assert torch.equal(net(x), x)


def test_networks_have_the_shapes_they_say() -> None:
    texts = (torch.randn(6, 10), torch.randn(6, 16))
    fused = Fusion((10, 16), 16)(*texts)
    torch.testing.assert_close(fused.norm(dim=1), torch.ones(6))
    assert Adapter(16, 0.25)(fused).shape == (6, 16)
    head = Head(16, 8, 3)
    assert head.hidden(fused).shape == (6, 8)
    torch.testing.assert_close(head(fused).sum(dim=1), torch.ones(6))
