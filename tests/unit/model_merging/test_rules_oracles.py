"""Merging rules against other people's implementations, on random modules: peft, fusion-bench."""

from __future__ import annotations

import copy
import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lamps_plugins.model_merging._rules.iso import iso_c, iso_cts
from lamps_plugins.model_merging._rules.linear import average, task_arithmetic
from lamps_plugins.model_merging._rules.lora import lora_cat, lora_linear, lora_svd
from lamps_plugins.model_merging._rules.lowrank import LowRank
from lamps_plugins.model_merging._rules.orthomerge import oft_update
from lamps_plugins.model_merging._rules.rotation import triangle_to_skew
from lamps_plugins.model_merging._rules.svc import svc
from lamps_plugins.model_merging._rules.ties import ties_model
from lamps_plugins.model_merging._rules.tsv import tsv_merge
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

from _updates import relative

K, M, N = 4, 24, 20


class Net(nn.Module):
    """Two layers of one shape, one of another, with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(N, M)
        self.second = nn.Linear(N, M)
        self.third = nn.Linear(M, N)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.first(x) + self.second(x))  # type: ignore[no-any-return]


def networks() -> tuple[Net, list[Net]]:
    torch.manual_seed(0)
    # In double: of two polar factors of a nearly singular basis in single precision neither is
    # right to 1e-5.
    return Net().double(), [Net().double() for _ in range(K)]


def groups(base: Net, experts: list[Net]) -> list[tuple[list[str], Tensor]]:
    """Names and updates of the parameters, grouped by shape. Updates: [K, L, ...]."""
    start = dict(base.named_parameters())
    shapes: dict[tuple[int, ...], list[str]] = {}
    for name, p in start.items():
        shapes.setdefault(tuple(p.shape), []).append(name)
    ends = [dict(e.named_parameters()) for e in experts]
    return [
        (
            names,
            torch.stack([torch.stack([e[n] - start[n] for n in names]) for e in ends]).detach(),
        )
        for names in shapes.values()
    ]


def fusion_bench(module: str, name: str) -> Any:
    """A class of fusion-bench; its packages warn when imported, which is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("fusion_bench")
        return getattr(importlib.import_module(f"fusion_bench.method.{module}"), name)


def merged_by(algorithm: Any, base: Net, experts: list[Net], **more: Net) -> dict[str, Tensor]:
    """What fusion-bench's algorithm adds to the base, by parameter name."""
    from fusion_bench.modelpool import BaseModelPool

    models = {"_pretrained_": base, **{f"expert_{i}": e for i, e in enumerate(experts)}, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = algorithm.run(BaseModelPool(copy.deepcopy(models)))
    start = dict(base.named_parameters())
    return {n: (p - start[n]).detach() for n, p in found.named_parameters()}


def assert_same(found: dict[str, Tensor], ours: list[tuple[list[str], Tensor]]) -> None:
    names = [n for group, _ in ours for n in group]
    assert sorted(names) == sorted(found)
    for group, update in ours:
        for name, one in zip(group, update, strict=True):
            torch.testing.assert_close(one, found[name], rtol=1e-4, atol=1e-5, msg=name)


def by_shape(rule: Any, base: Net, experts: list[Net], scale: float) -> list[Any]:
    """Matrices by a rule, the rest by their mean; all times a scale."""
    return [
        (names, scale * (rule(x) if x.ndim == 4 else average(x)))
        for names, x in groups(base, experts)
    ]


def test_task_arithmetic_agrees_with_fusion_bench() -> None:
    algorithm = fusion_bench("task_arithmetic.task_arithmetic", "TaskArithmeticAlgorithm")
    base, experts = networks()
    found = merged_by(algorithm(scaling_factor=0.3), base, experts)
    assert_same(found, [(n, task_arithmetic(x, 0.3)) for n, x in groups(base, experts)])


@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_ties_agrees_with_fusion_bench(combine: str) -> None:
    algorithm = fusion_bench("ties_merging.ties_merging", "TiesMergingAlgorithm")
    base, experts = networks()
    found = merged_by(
        algorithm(scaling_factor=0.7, threshold=20, remove_keys=[], merge_func=combine),
        base,
        experts,
    )
    known = groups(base, experts)
    n = sum(x[0].numel() for _, x in known)
    # It keeps one entry more than the share it is told.
    keep = (int(0.2 * n) + 1) / n
    ours = ties_model([x for _, x in known], keep, combine=combine, scale=0.7)
    assert_same(found, [(names, u) for (names, _), u in zip(known, ours, strict=True)])


def test_tsv_merge_agrees_with_fusion_bench() -> None:
    algorithm = fusion_bench("task_singular_vector.TSVM", "TaskSingularVectorMerging")
    base, experts = networks()
    found = merged_by(algorithm(alpha=0.9), base, experts)
    assert_same(found, by_shape(tsv_merge, base, experts, 0.9))


def test_iso_c_agrees_with_fusion_bench() -> None:
    algorithm = fusion_bench("isotropic_merging.iso", "IsotropicMergingInCommonSubspace")
    base, experts = networks()
    found = merged_by(algorithm(scaling_factor=0.6), base, experts)
    assert_same(found, by_shape(iso_c, base, experts, 0.6))


@pytest.mark.parametrize("common", [0.0, 0.5, 0.8])
def test_iso_cts_agrees_with_fusion_bench(common: float) -> None:
    algorithm = fusion_bench("isotropic_merging.iso", "IsotropicMergingInCommonAndTaskSubspace")
    base, experts = networks()
    found = merged_by(algorithm(scaling_factor=0.6, common_space_fraction=common), base, experts)
    assert_same(found, by_shape(lambda x: iso_cts(x, common), base, experts, 0.6))


@pytest.mark.parametrize("alpha", [1.0, 0.25])
@pytest.mark.parametrize("form", ["accelerated", "original"])
def test_svc_agrees_with_fusion_bench(
    alpha: float, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = fusion_bench("singular_value_calibration.svc", "SingularValueCalibration")
    monkeypatch.setenv("FUSION_BENCH_SVC_IMPL", form)
    base, experts = networks()
    child = copy.deepcopy(base)
    known = groups(base, experts)
    with torch.no_grad():
        for names, x in known:
            for name, one in zip(names, task_arithmetic(x, 0.4), strict=True):
                child.get_parameter(name).add_(one)
    found = merged_by(algorithm(alpha=alpha), base, experts, _merged_=child)
    ours = [
        (n, svc(x, task_arithmetic(x, 0.4), alpha=alpha).update if x.ndim == 4 else 0.4 * x.sum(0))
        for n, x in known
    ]
    assert_same(found, ours)


@pytest.fixture(scope="module")
def adapters() -> tuple[Any, LowRank]:
    """Three LoRA adapters of one layer with alpha != r, and their factors with scale."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    settings = [(4, 16), (4, 3), (4, 8)]
    configs = [
        peft.LoraConfig(r=r, lora_alpha=alpha, target_modules=["first"], use_rslora=rs)
        for (r, alpha), rs in zip(settings, (False, False, True), strict=True)
    ]
    model = peft.get_peft_model(Net(), configs[0], adapter_name="a0")
    for i, config in enumerate(configs[1:], 1):
        model.add_adapter(f"a{i}", config)
    layer = model.base_model.model.first
    for i in range(3):
        nn.init.normal_(layer.lora_B[f"a{i}"].weight)
    low = LowRank.from_lora(
        [layer.lora_B[f"a{i}"].weight.detach()[None] for i in range(3)],
        [layer.lora_A[f"a{i}"].weight.detach()[None] for i in range(3)],
        [
            alpha / (r**0.5 if rs else r)
            for (r, alpha), rs in zip(settings, (0, 0, 1), strict=True)
        ],
    )
    return model, low


WEIGHTS = [0.5, 0.7, 0.2]


def by_peft(model: Any, how: str, **more: Any) -> Tensor:
    name = f"{how}_{len(model.peft_config)}"
    model.add_weighted_adapter(["a0", "a1", "a2"], WEIGHTS, name, combination_type=how, **more)
    found: Tensor = model.base_model.model.first.get_delta_weight(name).detach()
    return found


def test_factors_with_scale_are_the_adapters(adapters: tuple[Any, LowRank]) -> None:
    model, low = adapters
    for i in range(3):
        wanted = model.base_model.model.first.get_delta_weight(f"a{i}")
        torch.testing.assert_close(low.dense()[i, 0], wanted)


def test_cat_and_svd_agree_with_peft(adapters: tuple[Any, LowRank]) -> None:
    model, low = adapters
    exact = torch.einsum("k,kmn->mn", torch.tensor(WEIGHTS), low.dense()[:, 0])
    assert relative(by_peft(model, "cat"), exact) < 1e-6
    assert relative(lora_cat(low, WEIGHTS).merged()[0], exact) < 1e-6
    assert relative(by_peft(model, "svd", svd_rank=12), exact) < 1e-5
    assert relative(lora_svd(low, 12, WEIGHTS).merged()[0], exact) < 1e-5
    cut = by_peft(model, "svd", svd_rank=5)
    assert relative(lora_svd(low, 5, WEIGHTS).merged()[0], cut) < 1e-5
    assert relative(cut, exact) > 0.05


def test_adding_factors_agrees_with_peft_and_is_wrong(adapters: tuple[Any, LowRank]) -> None:
    model, low = adapters
    exact = torch.einsum("k,kmn->mn", torch.tensor(WEIGHTS), low.dense()[:, 0])
    found = by_peft(model, "linear")
    assert relative(found, exact) > 0.5
    layer = model.base_model.model.first
    scales = [layer.scaling[f"a{i}"] for i in range(3)]
    raw = LowRank.from_lora(
        [b / s for b, s in zip(low.b, scales, strict=True)], low.a, [1.0, 1.0, 1.0]
    )
    weights = [w * s for w, s in zip(WEIGHTS, scales, strict=True)]
    assert relative(lora_linear(raw, weights).merged()[0], found) < 1e-5


def test_oft_updates_agree_with_peft() -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    net = Net()
    base = net.first.weight.detach().clone()
    config = peft.OFTConfig(
        r=0, oft_block_size=5, use_cayley_neumann=False, target_modules=["first"]
    )
    model = peft.get_peft_model(net, config)
    triangles = model.base_model.model.first.oft_R["default"].weight
    nn.init.normal_(triangles, std=0.3)
    found = base + oft_update(base[None], triangle_to_skew(triangles.detach()[None], 5))[0]
    merged = model.merge_and_unload().first.weight.detach()
    torch.testing.assert_close(found, merged, rtol=1e-4, atol=1e-5)
