"""Operators: the same bits for every way of cutting, sending and waiting, and right ones."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins.distributed_tensor_kernels._mesh import Conditions
from lamps_plugins.distributed_tensor_kernels._operators import OPERATORS, operator_class
from lamps_plugins.distributed_tensor_kernels._operators._base import Reference, judge
from lamps_plugins.distributed_tensor_kernels._operators.a2a_grouped_gemm import route
from lamps_plugins.distributed_tensor_kernels._plan import MODES, SWIZZLES, Plan

from lamps.errors import MethodFailed, ProblemError

from ._groups import SMALL, ShuffledTransport, answers, digests, reports, same

pytestmark = pytest.mark.timeout(60)

SHAPES = {
    "ag_gemm": {"m": 70, "n": 50, "k": 45},
    "gemm_rs": {"m": 70, "n": 50, "k": 45},
    "gemm_ar": {"m": 70, "n": 50, "k": 45},
    "a2a_grouped_gemm": {"t": 40, "k": 21, "n": 34, "e": 5, "top": 2},
    "sp_flash_decode": {"b": 3, "h": 4, "hkv": 2, "s": 100, "d": 20},
    "decode_step": {"layers": 2, "b": 2, "d": 48, "h": 6, "hkv": 3, "f": 50, "s": 40},
}


def plans(operator: str, shape: dict[str, int], world: int) -> list[Plan]:
    """All legal plans up to three chunks, tiles being what they are."""
    cls, found = operator_class(operator), []
    if operator == "decode_step":
        pairs = itertools.product(("rr", "zigzag", "list"), (1, 2))
        return [dataclasses.replace(SMALL, scheduler=s, workers=w) for s, w in pairs]
    for mode, chunks, swizzle in itertools.product(MODES, (1, 2, 3), SWIZZLES):
        plan = dataclasses.replace(SMALL, mode=mode, chunks=chunks, swizzle=swizzle)
        try:
            cls.legal(shape, world, plan)
        except ProblemError:
            continue
        found.append(plan)
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("operator", OPERATORS)
def test_bits_do_not_depend_on_the_plan(operator: str, world: int) -> None:
    shape = SHAPES[operator]
    tried = plans(operator, shape, world)
    assert len(tried) >= 6
    # A job refuses an answer that is not right, so all of these are.
    assert len({tuple(digests(operator, shape, plan, world)) for plan in tried}) == 1


@given(
    operator=st.sampled_from(["ag_gemm", "gemm_rs", "gemm_ar"]),
    world=st.integers(1, 3),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    data=st.data(),
)
@settings(max_examples=15, deadline=None)
def test_any_size_gives_right_and_equal_bits(
    operator: str, world: int, sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    shape = dict(zip(("m", "n", "k"), sizes, strict=True))
    plan = data.draw(st.sampled_from(plans(operator, shape, world)))
    assert digests(operator, shape, plan, world) == digests(operator, shape, SMALL, world)


def test_fewer_rows_than_ranks() -> None:
    for operator in ("ag_gemm", "gemm_rs", "gemm_ar"):
        shape = {"m": 1, "n": 2, "k": 1}
        assert len({tuple(digests(operator, shape, p, 3)) for p in plans(operator, shape, 3)}) == 1


def test_experts_without_a_token_and_all_tokens_at_one() -> None:
    shape = {"t": 30, "k": 8, "n": 6, "e": 4, "top": 1}
    cls = operator_class("a2a_grouped_gemm")
    full = cls.draw(shape, 0)
    for chosen in (0, 3):
        full["experts"] = torch.full_like(full["experts"], chosen)
        whole = cls.reference(full, shape)
        found = []
        for plan in plans("a2a_grouped_gemm", shape, 2):
            parts = answers("a2a_grouped_gemm", shape, plan, 2, full=full)
            assert judge(torch.cat(parts), whole).right
            found.append(parts)
        assert all(same(parts, found[0]) for parts in found)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_rank_that_is_late_changes_nothing(operator: str) -> None:
    shape, late = SHAPES[operator], Conditions(slow_rank=1, slow_s=0.2)
    plan = plans(operator, shape, 3)[-1]
    found = answers(operator, shape, plan, 3, conditions=late)
    assert same(found, answers(operator, shape, plan, 3))


@pytest.mark.parametrize("operator", OPERATORS)
def test_without_waiting_for_signals_a_late_rank_is_not_heard(operator: str) -> None:
    """The delayed-rank test must fail without `wait`: garbage is read, and seen to be garbage."""
    shape = SHAPES[operator]
    plan = plans(operator, shape, 2)[-1]
    deaf = Conditions(slow_rank=1, slow_s=0.2, heed=False)
    right = answers(operator, shape, plan, 2)
    if operator != "a2a_grouped_gemm":  # there the length of what did not come is garbage too
        found = answers(operator, shape, plan, 2, conditions=deaf)
        assert not torch.equal(found[0], right[0])
        whole = operator_class(operator).draw(shape, 0)
        wanted = operator_class(operator).reference(whole, shape)
        part = operator_class(operator).part_of(wanted, shape, 0, 2)
        assert judge(right[0], part).right
        assert not judge(found[0], part).right
    with pytest.raises((MethodFailed, ProblemError), match=r"wrong|rows"):
        reports(operator, shape, plan, 2, conditions=deaf)


@pytest.mark.parametrize("operator", OPERATORS)
def test_order_of_arrival_changes_nothing(operator: str) -> None:
    shape = SHAPES[operator]
    plan = plans(operator, shape, 3)[-1]
    found = answers(operator, shape, plan, 3, endpoint=ShuffledTransport)
    assert same(found, answers(operator, shape, plan, 3))


def test_repetitions_give_the_same_bits() -> None:
    for operator, shape in SHAPES.items():
        plan = plans(operator, shape, 2)[-1]
        again = answers(operator, shape, plan, 2, repetitions=5)
        assert same(again, answers(operator, shape, plan, 2))


def test_nan_in_a_query_spreads_and_hangs_nobody() -> None:
    shape = SHAPES["sp_flash_decode"]
    full = operator_class("sp_flash_decode").draw(shape, 0)
    full["q"][1, 2, 3] = torch.nan
    for plan in plans("sp_flash_decode", shape, 2):
        for found in answers("sp_flash_decode", shape, plan, 2, full=full):
            row = 1 * shape["h"] + 2
            assert found[row].isnan().all()
            assert not found[torch.arange(len(found)) != row].isnan().any()


def test_wrong_answers_are_failed_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = operator_class("ag_gemm")
    monkeypatch.setattr(
        cls, "reference", lambda full, shape: Reference(full["a"] @ full["b"] + 1.0, None, 1e-6)
    )
    with pytest.raises(MethodFailed, match=r"rank 0: ag_gemm .* is wrong: .* nothing was timed"):
        reports("ag_gemm", {"m": 8, "n": 9, "k": 7}, SMALL, 1, seed=99)


@pytest.mark.parametrize("bad", [-1, 5])
def test_expert_ids_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(ProblemError, match="there are 5 experts, 0 to 4"):
        route(torch.tensor([[0], [bad]]), 5)


def test_a_cache_that_is_too_short_is_refused() -> None:
    cls = operator_class("sp_flash_decode")
    full = cls.draw(SHAPES["sp_flash_decode"], 0)
    full["kv_len"][0] = 101
    with pytest.raises(ProblemError, match="only 100 keys are allocated"):
        cls.local(full, SHAPES["sp_flash_decode"], 0, 1)


def test_less_memory_is_held_when_chunks_leave_at_once() -> None:
    shape = {"m": 128, "n": 64, "k": 32}
    whole = reports("gemm_rs", shape, SMALL, 2)[0].held_bytes
    split = dataclasses.replace(SMALL, mode="split", chunks=4)
    assert reports("gemm_rs", shape, split, 2)[0].held_bytes < whole


def test_bytes_sent_are_those_of_the_formula() -> None:
    for operator in ("ag_gemm", "gemm_rs", "gemm_ar", "sp_flash_decode"):
        shape = SHAPES[operator] | ({"m": 72} if "m" in SHAPES[operator] else {})
        cls = operator_class(operator)
        for plan in plans(operator, shape, 2):
            if plan.mode == "ring":
                continue
            sent = sum(r.bytes_sent for r in reports(operator, shape, plan, 2))
            assert sent == 2 * cls.wire_bytes(shape, 2)
