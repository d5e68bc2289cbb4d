"""OrthoMerge: Cayley maps, Procrustes with its safety fixes, the skew merge, decoupling."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.model_merging._rules.linear import average, task_arithmetic
from lamps_plugins.model_merging._rules.orthomerge import (
    decouple,
    hyperspherical_energy,
    magnitude_correction,
    merge_skew,
    naive_rotation_mean,
    oft_update,
    recouple,
    targets,
)
from lamps_plugins.model_merging._rules.rotation import (
    angles,
    cayley,
    inverse_cayley,
    procrustes,
    skew_to_triangle,
    triangle_to_skew,
)
from lamps_plugins.model_merging._rules.ties import ties_layer
from lamps_plugins.model_merging._rules.tsv import tsv_merge
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from _updates import dense, relative

from lamps.errors import ConfigError, ProblemError

F64 = torch.float64


def skew(*shape: int, seed: int = 0, size: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = size * torch.randn(*shape, generator=generator, dtype=F64)
    return x - x.mT


def rows(m: int, n: int, layers: int = 1, seed: int = 50) -> Tensor:
    return dense(1, layers, m, n, seed=seed)[0]


@given(st.integers(1, 9), st.integers(0, 5), st.floats(0.01, 3))
def test_cayley_gives_rotations_and_comes_back(n: int, seed: int, size: float) -> None:
    a = skew(2, n, n, seed=seed, size=size)
    r = cayley(a)
    torch.testing.assert_close(r.mT @ r, torch.eye(n, dtype=F64).expand(2, n, n))
    torch.testing.assert_close(torch.linalg.det(r), torch.ones(2, dtype=F64))
    torch.testing.assert_close(inverse_cayley(r), a, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(cayley(-a), r.mT)


def test_angles_of_a_plane_rotation() -> None:
    for angle in (0.3, 1.5, 3.0):
        t = math.tan(angle / 2)
        a = torch.tensor([[0, -t, 0], [t, 0, 0], [0, 0, 0]], dtype=F64)
        torch.testing.assert_close(angles(a), torch.tensor([0, angle, angle], dtype=F64))
        assert cayley(a)[0, 0].item() == pytest.approx(math.cos(angle))


def test_triangles_and_skew_matrices() -> None:
    x = torch.arange(1.0, 7.0).expand(2, 6)
    q = triangle_to_skew(x, 4)
    assert q[0, 0].tolist() == [0, 1, 2, 3]
    assert q[0, 1].tolist() == [-1, 0, 4, 5]
    assert torch.equal(skew_to_triangle(q), x)
    with pytest.raises(ProblemError, match="blocks of size 5 have 10"):
        triangle_to_skew(x, 5)
    with pytest.raises(ProblemError, match="not skew"):
        skew_to_triangle(q + 0.01)
    with pytest.raises(ProblemError, match="expected square ones"):
        skew_to_triangle(q[:, :3])


def test_procrustes_finds_a_rotation() -> None:
    base = rows(20, 8, 2)
    r = cayley(skew(3, 2, 8, 8))
    found = procrustes(base, base @ r, ridge=1e-12)
    torch.testing.assert_close(found, r, atol=1e-6, rtol=0)


def test_the_ridge_leaves_untouched_wide_layers_alone() -> None:
    base = rows(64, 256).float()
    eye = torch.eye(256, dtype=F64)
    assert float((procrustes(base, base.unsqueeze(0), 1e-3) - eye).abs().max()) < 1e-3
    assert float((procrustes(base, base.unsqueeze(0), 0.0) - eye).abs().max()) > 0.3


def test_the_ridge_keeps_small_changes_small_on_wide_layers() -> None:
    base = rows(64, 256)
    change = rows(64, 256, seed=1)
    change *= 0.05 * torch.linalg.norm(base) / torch.linalg.norm(change)
    goal = (base + change).unsqueeze(0)
    eye = torch.eye(256, dtype=F64)
    found = {}
    for ridge in (0.0, 1e-3):
        r = procrustes(base, goal, ridge)[0, 0]
        away = float((1 + torch.linalg.eigvals(r)).abs().min())
        gap = float(torch.linalg.norm(base[0] @ r - goal[0, 0]))
        found[ridge] = (float(torch.linalg.norm(r - eye)), away, gap)
    assert found[0.0][0] > 10
    assert found[0.0][1] < 0.1
    assert found[1e-3][0] < 2
    assert found[1e-3][1] > 1.9
    assert found[1e-3][2] <= 1.05 * found[0.0][2]


def test_the_ridge_keeps_logarithms_of_ill_conditioned_square_layers() -> None:
    # A condition near 7e3, as pretrained attention weights have it, and experts close to the base.
    n, k = 64, 8
    u, v = (torch.linalg.qr(dense(1, 1, n, n, seed=s)[0, 0])[0] for s in (1, 2))
    base = ((u * torch.logspace(0, -3.85, n, dtype=F64)) @ v.T).unsqueeze(0)
    x = dense(k, 1, n, n, seed=3)
    x *= 0.1 * torch.linalg.norm(base) / torch.linalg.matrix_norm(x)[..., None, None]
    product = base.mT @ (base + x)
    p, _, q = torch.linalg.svd(product)
    mirrored = int((torch.linalg.det(p @ q) < 0).sum())
    assert 0 < mirrored < k
    explained = {}
    for ridge in (1e-6, 1e-5, 1e-4, 1e-3):
        parts = decouple(base, x, variant="G", ridge=ridge)
        assert not bool(parts.refused.any())
        r = cayley(parts.skew)
        assert float((1 + torch.linalg.eigvals(r)).abs().min()) > 1e-3
        explained[ridge] = float(parts.explained.mean())
    assert max(explained.values()) - min(explained.values()) < 0.1
    assert min(explained.values()) > 0.2


@pytest.mark.parametrize("how", ["svd", "newton-schulz"])
def test_reflections_become_rotations(how: str) -> None:
    base = rows(20, 6)
    mirror = torch.diag(torch.tensor([1, 1, 1, 1, 1, -1], dtype=F64))
    found = procrustes(base, (base @ mirror).unsqueeze(0), 0.0, how=how)
    assert float(torch.linalg.det(found)) == pytest.approx(1)
    torch.testing.assert_close(found.mT @ found, torch.eye(6, dtype=F64).expand_as(found))


def test_procrustes_refuses_a_base_of_zeros_and_missing_rank_without_a_ridge() -> None:
    base = rows(20, 6, 2)
    base[1] = 0
    with pytest.raises(ProblemError, match="all zero"):
        procrustes(base, base.unsqueeze(0))
    with pytest.raises(ProblemError, match="gave no orthogonal matrix"):
        procrustes(rows(2, 6), torch.zeros(1, 1, 2, 6, dtype=F64), 0.0)


@pytest.mark.parametrize("shape", [(3, 2, 5, 5), (4, 2, 6, 3, 3)])
def test_the_merged_rotation_has_the_mean_length(shape: tuple[int, ...]) -> None:
    a = skew(*shape)
    found = merge_skew(a)
    lengths = a.flatten(2).norm(dim=2)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), lengths.mean(0))
    c = magnitude_correction(a)
    wanted = c.view(-1, *(1,) * (a.ndim - 2)) / len(a) * a.sum(0)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(found, -found.mT)


def test_merged_rotations_of_one_kind() -> None:
    a = skew(1, 2, 5, 5).expand(3, -1, -1, -1)
    torch.testing.assert_close(merge_skew(a), a[0])
    torch.testing.assert_close(merge_skew(a, strength=0.5), a[0] / 2)
    opposed = torch.stack([a[0], -a[0]])
    assert float(merge_skew(opposed).abs().max()) == 0
    b = skew(3, 2, 5, 5)
    torch.testing.assert_close(merge_skew(b[[2, 0, 1]]), merge_skew(b))
    torch.testing.assert_close(merge_skew(b[:, 1:]), merge_skew(b)[1:])


def test_the_correction_is_bounded_where_experts_nearly_cancel() -> None:
    a = skew(1, 1, 5, 5)[0]
    nearly = torch.stack([a, -a * (1 - 1e-4)])
    plain = nearly.sum(0) / 2
    assert float(magnitude_correction(nearly)) > 1e4
    assert relative(merge_skew(nearly), 20 * plain) < 1e-9


def test_length_and_direction_rules() -> None:
    a = skew(3, 1, 5, 5) * torch.tensor([1.0, 2.0, 9.0]).view(3, 1, 1, 1)
    theta = a.flatten(2).norm(dim=2)[:, 0]
    for length, wanted in (
        ("mean", theta.mean()),
        ("median", theta.median()),
        ("max", theta.max()),
    ):
        for directions in ("theta", "uniform"):
            found = merge_skew(a, length=length, directions=directions)
            torch.testing.assert_close(found.norm(), wanted)
    units = (a / theta.view(3, 1, 1, 1)).sum(0)
    found = merge_skew(a, directions="uniform")
    torch.testing.assert_close(found / found.norm(), units / units.norm())


@pytest.mark.parametrize(
    ("bad", "options", "error", "message"),
    [
        (skew(1, 2, 4, 4), {}, ProblemError, "at least two experts"),
        (skew(3, 4, 4), {}, ProblemError, r"expected \[K, L"),
        (skew(3, 1, 4, 4) + 0.1, {}, ProblemError, "not skew"),
        (skew(3, 1, 4, 4) * float("nan"), {}, ProblemError, "NaN"),
        (skew(3, 1, 4, 4), {"length": "sum"}, ConfigError, "known: mean, median, max"),
        (skew(3, 1, 4, 4), {"directions": "none"}, ConfigError, "known: theta, uniform"),
    ],
)
def test_skew_merges_that_make_no_sense_are_refused(
    bad: Tensor, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        merge_skew(bad, **options)  # type: ignore[arg-type]


def test_oft_updates_by_hand() -> None:
    base = rows(7, 12, 2).float()
    q = skew(3, 2, 4, 3, 3).float()
    found = oft_update(base, q)
    assert found.shape == (3, 2, 7, 12)
    whole = torch.block_diag(*cayley(q[1, 0]))
    torch.testing.assert_close(found[1, 0], base[0] @ whole - base[0], rtol=1e-4, atol=1e-5)
    assert float(oft_update(base, 0 * q).abs().max()) == 0
    with pytest.raises(ProblemError, match="have to cover the inputs"):
        oft_update(base, q[:, :, :3])


def test_targets() -> None:
    base, x = rows(6, 5), dense(3, 1, 6, 5)
    assert torch.equal(targets(base, x, variant="G"), base + x)
    inclusive = targets(base, x)
    mean = x.mean(0)
    for k in range(3):
        for r in range(6):
            cosine = torch.cosine_similarity(x[k, 0, r], mean[0, r], dim=0)
            wanted = base[0, r] + (x[k, 0, r] if cosine < 0 else 0)
            torch.testing.assert_close(inclusive[k, 0, r], wanted)
    changed = [int((targets(base, x, **o) != base).any(-1).sum()) for o in
               ({"threshold": -0.5}, {}, {"threshold": 0.5}, {"reference": "others"})]  # fmt: skip
    assert changed[0] <= changed[1] <= changed[2]
    assert changed[3] >= changed[1]  # an expert agrees with a mean that holds itself
    assert torch.equal(targets(base, x, threshold=1.1), base + x)


def test_experts_that_only_rotate_are_explained_fully() -> None:
    base = rows(20, 6, 2)
    a = skew(3, 2, 6, 6, size=0.1)
    x = base @ cayley(a) - base
    parts = decouple(base, x, variant="G", ridge=1e-12)
    torch.testing.assert_close(parts.skew, a, atol=1e-6, rtol=0)
    assert float(parts.explained.min()) > 1 - 1e-9
    assert not bool(parts.refused.any())
    wanted = base @ cayley(merge_skew(a)) - base
    assert relative(recouple(parts, average), wanted) < 1e-6
    torch.testing.assert_close(parts.mean_angle(), angles(a).mean(-1), atol=1e-6, rtol=0)


def test_residuals_belong_to_the_rotations_that_are_merged() -> None:
    base, x = rows(16, 8), 0.2 * dense(3, 1, 16, 8)
    parts = decouple(base, x, variant="G")
    again = base @ cayley(parts.skew) + parts.residuals
    torch.testing.assert_close(again, (base + x).expand_as(again))
    assert bool(((parts.explained > 0) & (parts.explained < 1)).all())


@pytest.mark.parametrize(
    "rule", [average, lambda x: task_arithmetic(x, 0.2), ties_layer, tsv_merge]
)
@pytest.mark.parametrize("variant", ["G", "C"])
def test_without_strength_the_rule_is_alone(rule: object, variant: str) -> None:
    base, x = rows(16, 8), 0.2 * dense(3, 1, 16, 8)
    parts = decouple(base, x, variant=variant)
    found = recouple(parts, rule, strength=0.0)  # type: ignore[arg-type]
    assert relative(found, rule(x)) < 1e-9  # type: ignore[operator]


def test_equal_experts_come_back() -> None:
    base, x = rows(16, 8), 0.2 * dense(1, 1, 16, 8).expand(3, -1, -1, -1)
    for variant in ("G", "C"):
        assert relative(recouple(decouple(base, x, variant=variant), average), x[0]) < 1e-9


@pytest.mark.parametrize("shape", [(20, 8), (8, 20), (12, 12)])
def test_a_rotated_base_keeps_its_angles_sizes_and_energy(shape: tuple[int, int]) -> None:
    base, x = rows(*shape).float(), 0.2 * dense(3, 1, *shape).float()
    parts = decouple(base, x, variant="G")
    turn = recouple(parts, lambda e: torch.zeros_like(e[0]))
    turned = base + turn
    assert float(turn.abs().max()) > 1e-2
    torch.testing.assert_close(turned @ turned.mT, base @ base.mT, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        torch.linalg.svdvals(turned), torch.linalg.svdvals(base), rtol=0, atol=1e-4
    )
    torch.testing.assert_close(hyperspherical_energy(turned), hyperspherical_energy(base))
    moved = base + task_arithmetic(x)
    assert float((moved @ moved.mT - base @ base.mT).abs().max()) > 0.1
    assert float((hyperspherical_energy(moved) / hyperspherical_energy(base) - 1).abs()) > 1e-4


def test_a_mean_of_rotations_is_none() -> None:
    base, x = rows(16, 8), 0.5 * dense(3, 1, 16, 8)
    parts = decouple(base, x, variant="G")
    found = base + naive_rotation_mean(parts)
    assert relative(found, base @ cayley(parts.skew).mean(0)) < 1e-12
    sizes = torch.linalg.svdvals(found).sum(), torch.linalg.svdvals(base).sum()
    assert float(sizes[0]) < 0.99 * float(sizes[1])


def test_a_rotation_without_a_logarithm_is_left_out() -> None:
    base = rows(20, 6)
    half_turn = torch.diag(torch.tensor([-1, -1, 1, 1, 1, 1], dtype=F64))
    x = torch.stack([base @ half_turn - base, 0.1 * rows(20, 6, seed=1)])
    parts = decouple(base, x, variant="G", ridge=0.0)
    assert parts.refused.tolist() == [[True], [False]]
    assert torch.equal(parts.residuals[0], x[0])
    assert float(parts.skew[0].abs().max()) == 0
    assert parts.explained[0].item() == 0


def test_experts_that_change_nothing_give_nothing() -> None:
    base = rows(6, 20)
    parts = decouple(base, torch.zeros(2, 1, 6, 20, dtype=F64), variant="G")
    assert parts.explained.tolist() == [[0], [0]]
    assert float(recouple(parts, average).abs().max()) < 1e-9


def test_what_does_not_fit_is_refused() -> None:
    base, x = rows(6, 5), dense(3, 1, 6, 5)
    with pytest.raises(ProblemError, match="the base has shape"):
        decouple(base[:, :4], x)
    with pytest.raises(ProblemError, match="at least 2"):
        decouple(base, x[:1])
    with pytest.raises(ProblemError, match=r"expected \[K, L, m, n\]"):
        decouple(base[:, 0], x[:, :, 0])
    with pytest.raises(ConfigError, match="known: G, C"):
        decouple(base, x, variant="OFT")
    with pytest.raises(ConfigError, match="known: inclusive, others"):
        decouple(base, x, reference="all")
    with pytest.raises(ProblemError, match="no direction"):
        hyperspherical_energy(torch.zeros(1, 3, 4))
