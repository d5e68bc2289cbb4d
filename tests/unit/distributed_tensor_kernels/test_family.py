"""The family: pools of plans, landmarks that add up, exports that run again."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.distributed_tensor_kernels import _cost, _ir, load
from lamps_plugins.distributed_tensor_kernels._calibrate import Calibration, measure
from lamps_plugins.distributed_tensor_kernels._operators import OPERATORS, operator_class
from lamps_plugins.distributed_tensor_kernels._plan import (
    MODES,
    SWIZZLES,
    Plan,
    chunk_tiles,
    order,
    shards,
)
from lamps_plugins.distributed_tensor_kernels._planned import method_class
from lamps_plugins.distributed_tensor_kernels._problem import FAMILY, REPETITIONS
from lamps_plugins.distributed_tensor_kernels._threads import in_threads
from lamps_plugins.distributed_tensor_kernels._transports import Link
from lamps_plugins.distributed_tensor_kernels._transports.simlink import SimLink

from lamps.errors import ProblemError
from lamps.types import Candidate

pytestmark = pytest.mark.timeout(60)

METHODS = (
    "sequential", "ring", "push", "split", "ditron", "round-robin", "zigzag", "list-schedule",
    "torch-collective", "torch-single", "numpy-gemm",
)  # fmt: skip
CLASSES: dict[str, Any] = {name: method_class(name) for name in METHODS}


def pool(operator: str, per_method: int = 1, **options: Any) -> list[Candidate]:
    problem = FAMILY.open_problem(operator, options)
    return FAMILY.candidates(problem, CLASSES, (), given={}, per_method=per_method, seed=0)


def test_each_operator_gets_the_methods_that_can_do_it() -> None:
    found = {operator: {c.method for c in pool(operator)} for operator in OPERATORS}
    for operator in ("ag_gemm", "gemm_rs", "gemm_ar"):
        assert found[operator] == set(METHODS) - {"round-robin", "zigzag", "list-schedule"}
    assert "ring" not in found["a2a_grouped_gemm"]
    assert "push" not in found["sp_flash_decode"]
    assert found["decode_step"] == {
        "round-robin", "zigzag", "list-schedule", "ditron", "torch-collective", "torch-single",
    }  # fmt: skip
    simulated = {c.method for c in pool("ag_gemm", transport="simlink")}
    assert "torch-collective" not in simulated  # it would not cross the simulated link


def test_pools_hold_legal_and_different_plans() -> None:
    problem = FAMILY.open_problem("gemm_rs", {"ranks": 3})
    found = FAMILY.candidates(problem, CLASSES, (), given={}, per_method=12, seed=1)
    plans = [CLASSES[c.method].from_params(c.params).plan_for(problem, 1.0) for c in found]
    for plan in plans:
        if plan is not None:
            operator_class("gemm_rs").legal(problem.shape, 3, plan)
    keys = [(c.method, plan) for c, plan in zip(found, plans, strict=True)]
    assert len(set(keys)) == len(keys)
    assert any(plan is not None and plan.chunks == 2 for plan in plans)


def test_simulated_links_are_marked_everywhere(tmp_path: Path) -> None:
    options = {"transport": "simlink", "shape": "m=64,n=32,k=16", "link_beta": 50.0}
    problem = FAMILY.open_problem("ag_gemm", options)
    assert problem.name == "ag_gemm-simulated-link"
    assert "simulated_link" in problem.notes[0]
    assert problem.card()["simulated_link"] is True
    method = CLASSES["sequential"].from_params({"block_m": 16})
    method.partial_fit(problem, 0.1, rng=np.random.default_rng(0))
    assert method.evaluate(problem).signals["simulated_link"] == 1.0
    method.save(problem, tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text())["simulated_link"] is True
    assert "simulated link" in (tmp_path / "README.md").read_text()
    assert load(tmp_path).run(repetitions=2)["simulated_link"] is True


def test_landmarks_add_up_and_an_export_gives_the_same_bits(tmp_path: Path) -> None:
    problem = FAMILY.toy_problem()
    method = CLASSES["split"].from_params({"chunks": 2})
    for fidelity, n in REPETITIONS.items():
        before = method.times_.get("latencies_ms", np.zeros(0))
        method.partial_fit(problem, fidelity, rng=np.random.default_rng(0))
        times = method.times_["latencies_ms"]
        assert len(times) == n
        if fidelity > 0.1:
            assert np.array_equal(times[: len(before)], before)
    method.save(problem, tmp_path)
    exported = load(tmp_path)
    assert exported.plan == method.plan_for(problem, 1.0)
    assert exported.method == "split"
    found = exported.run(repetitions=2)
    assert found["digest"] == method.times_["digest"]
    assert found["buffer_bytes"] == method.evaluate(problem).objectives["buffer_bytes"]
    test = method.evaluate(problem, "test")
    assert set(test.objectives) == {"test_latency_ms", "test_exposed_ms", "test_buffer_bytes"}
    assert test.signals["answer"] != method.evaluate(problem).signals["answer"]


def test_collectives_run_over_gloo_where_plans_use_mapped_memory(tmp_path: Path) -> None:
    problem = FAMILY.open_problem("sp_flash_decode", {"shape": "s=64,d=8"})
    assert problem.transport == "shm"
    method = CLASSES["torch-collective"].from_params({})
    method.partial_fit(problem, 0.1, rng=np.random.default_rng(0))
    method.save(problem, tmp_path)
    exported = load(tmp_path)
    assert exported.plan is None
    assert exported.run(repetitions=1)["error_of_bound"] == 0  # judged by its norm alone


def test_methods_that_were_not_run_say_so(tmp_path: Path) -> None:
    problem, method = FAMILY.toy_problem(), CLASSES["push"].from_params({})
    with pytest.raises(ProblemError, match="call partial_fit first"):
        method.evaluate(problem)
    with pytest.raises(ProblemError, match="nothing to save"):
        method.save(problem, tmp_path)
    with pytest.raises(ProblemError, match=r"fidelity 0\.3 is no landmark"):
        method.partial_fit(problem, 0.3, rng=np.random.default_rng(0))


def test_halved_sizes_keep_plans_legal() -> None:
    for operator in OPERATORS:
        problem = FAMILY.open_problem(operator, {})
        for candidate in pool(operator, per_method=6):
            plan = CLASSES[candidate.method].from_params(candidate.params).plan_for(problem, 0.0)
            if plan is not None:
                operator_class(operator).legal(problem.sizes(0.0), problem.ranks, plan)
    tiny = FAMILY.open_problem("a2a_grouped_gemm", {"shape": "t=1,k=1,n=1,e=2,top=1"})
    assert tiny.sizes(0.0) == tiny.shape


def test_the_cost_model_prefers_overlap_on_a_slow_link_only() -> None:
    shape, cls = {"m": 512, "n": 512, "k": 512}, operator_class("ag_gemm")
    compute = cls.flops(shape) / 2 / 2e10
    even = Calibration(alpha_s=0.0, bytes_s=cls.wire_bytes(shape, 2) / compute)
    seq = _cost.expected_s("ag_gemm", shape, 2, Plan(), even)
    split = Plan(mode="split", chunks=4)
    assert _cost.expected_s("ag_gemm", shape, 2, split, even) < 0.75 * seq
    none = dataclasses.replace(split, swizzle="none")
    assert _cost.expected_s("ag_gemm", shape, 2, none, even) > _cost.expected_s(
        "ag_gemm", shape, 2, split, even
    )
    slow = Calibration(alpha_s=1.0, bytes_s=1e12)
    assert _cost.expected_s("ag_gemm", shape, 2, split, slow) > 3


def test_calibration_finds_the_link_it_is_given() -> None:
    link = Link(alpha_us=3000.0, beta_mb_s=20.0)
    found = in_threads(2, lambda t: measure(SimLink(t, link)))[0]
    assert found.alpha_s == pytest.approx(3e-3, rel=0.5)
    assert found.bytes_s == pytest.approx(2e7, rel=0.5)
    assert found.flops_s > 1e8


def test_a_single_rank_exposes_no_communication() -> None:
    problem = FAMILY.toy_problem()
    method = CLASSES["torch-single"].from_params({})
    method.partial_fit(problem, 0.1, rng=np.random.default_rng(0))
    found = method.evaluate(problem).objectives
    assert found["exposed_ms"] == 0
    # What the other rank would have held: half of both operands.
    assert found["buffer_bytes"] == 4 * (512 * 32 + 32 * 64) / 2


def test_every_candidate_has_an_expected_time() -> None:
    for operator in OPERATORS:
        problem = FAMILY.open_problem(operator, {})
        hints = [problem.size_hint(c) for c in pool(operator, per_method=3)]
        assert all(math.isfinite(h) and h > 0 for h in hints)


@given(st.integers(0, 50), st.integers(1, 9))
def test_shards_and_chunks_partition(length: int, parts: int) -> None:
    found = shards(length, parts)
    assert [i for a, b in found for i in range(a, b)] == list(range(length))
    assert max(b - a for a, b in found) - min(b - a for a, b in found) <= 1
    assert chunk_tiles(length, parts) == found


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from(SWIZZLES), st.booleans())
def test_orders_visit_every_shard_and_ranks_do_not_crowd(
    world: int, swizzle: str, own_first: bool
) -> None:
    orders = [order(r, world, swizzle, own_first=own_first) for r in range(world)]
    for rank, found in enumerate(orders):
        assert sorted(found) == list(range(world))
        if swizzle != "none":
            assert found[0 if own_first else -1] == rank
    if swizzle != "none":  # at every step the ranks work at different shards
        assert all(len({o[step] for o in orders}) == world for step in range(world))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mod": "seq"}, "Did you mean 'mode'"),
        ({"mode": "pull"}, "mode='pull'"),
        ({"swizzle": "zor"}, "Did you mean 'xor'"),
        ({"chunks": "2"}, "expected int"),
        ({"chunks": 0, "mode": "split"}, "chunks is 0"),
        ({"chunks": 2}, "sends shards whole"),
        ({"block_m": 48}, "block_m is 48, expected a power of two"),
        ({"block_n": 8}, "block_n is 8"),
        ({"workers": True}, "expected int"),
    ],
)
def test_plans_that_are_none(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Plan.from_json(values)


def test_plans_survive_json() -> None:
    for mode in MODES:
        plan = Plan(mode=mode, chunks=1, swizzle="none")
        assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


def test_products_lower_to_the_operators_they_name() -> None:
    for name, product in _ir.OPERATORS.items():
        assert _ir.fuse(_ir.lower(product)) == name


def test_placements_without_a_collective_are_refused() -> None:
    shard, whole = _ir.Shard, _ir.Replicate()
    assert _ir.lower(_ir.Product("mk", "kn", "mn", shard("m"), whole, shard("m"))) == ["gemm"]
    assert _ir.lower(_ir.Product("mk", "kn", "mn", whole, whole, whole)) == ["gemm"]
    assert _ir.lower(_ir.Product("mk", "kn", "mn", shard("k"), shard("k"), _ir.Partial())) == [
        "gemm"
    ]
    with pytest.raises(ProblemError, match="no single collective"):
        _ir.lower(_ir.Product("mk", "kn", "mn", shard("m"), shard("k"), whole))
    with pytest.raises(ProblemError, match="has no axis 'n'"):
        _ir.Product("mk", "kn", "mn", shard("n"), whole, whole)
    with pytest.raises(ProblemError, match="still to be summed"):
        _ir.Product("mk", "kn", "mn", _ir.Partial(), whole, whole)
    with pytest.raises(ProblemError, match="rows come back"):
        _ir.lower(_ir.Product("tk", "ekn", "tn", whole, shard("e"), whole, grouped=True))
