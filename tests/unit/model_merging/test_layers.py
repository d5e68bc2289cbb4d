"""Which tensors are merged, and in which portions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.model_merging._checkpoints import TensorInfo
from lamps_plugins.model_merging._layers import (
    FIRST_LAYERS,
    block_of,
    is_embedding,
    matrix_groups,
    mergeable,
    vector_groups,
)

from lamps.errors import ProblemError


def info(*shape: int) -> TensorInfo:
    return TensorInfo(Path("model.safetensors"), "key", shape, "F32")


def bert(n_blocks: int, d: int = 8) -> dict[str, TensorInfo]:
    found = {
        "embeddings.word_embeddings.weight": info(50, d),
        "embeddings.position_embeddings.weight": info(16, d),
        "embeddings.LayerNorm.weight": info(d),
    }
    for i in range(n_blocks):
        block = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            found[f"{block}.attention.self.{part}.weight"] = info(d, d)
            found[f"{block}.attention.self.{part}.bias"] = info(d)
        found[f"{block}.intermediate.dense.weight"] = info(4 * d, d)
        found[f"{block}.output.dense.weight"] = info(d, 4 * d)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.word_embeddings.weight",
        "embeddings.token_type_embeddings.weight",
        "embed_tokens.weight",
        "wte.weight",
        "wpe.weight",
    ],
)
def test_embedding_tables_are_left_out(name: str) -> None:
    assert is_embedding(name, info(50, 8))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("embeddings.LayerNorm.weight", (8,)),
        ("layers.3.self_attn.q_proj.weight", (8, 8)),
        ("encoder.embedding_hidden_mapping_in.weight", (8, 4)),
    ],
)
def test_norms_and_projections_are_no_tables(name: str, shape: tuple[int, ...]) -> None:
    assert not is_embedding(name, info(*shape))


@given(st.integers(1, 12), st.integers(2, 9), st.integers(1, 4000))
def test_groups_hold_every_matrix_once_in_equal_shapes(
    n_blocks: int, n_experts: int, max_bytes: int
) -> None:
    tensors = bert(n_blocks)
    wanted = mergeable(tensors, set(tensors))
    groups = matrix_groups(wanted, n_experts, max_bytes=max_bytes)
    names = [name for group in groups for name in group.names]
    assert sorted(names) == sorted(n for n, i in wanted.items() if len(i.shape) == 2)
    assert [group.number for group in groups] == list(range(len(groups)))
    for group in groups:
        assert {tensors[name].shape for name in group.names} == {group.shape}
        size = 4 * n_experts * len(group.names) * group.shape[0] * group.shape[1]
        assert size <= max_bytes or len(group.names) == 1
    first = [name for group in groups if group.first for name in group.names]
    assert len(first) == FIRST_LAYERS
    assert {block_of(name) for name in first} == {n_blocks - 1}
    vectors = vector_groups(wanted, len(groups))
    assert sorted(n for g in vectors for n in g.names) == sorted(
        n for n, i in wanted.items() if len(i.shape) == 1
    )


def test_only_what_an_expert_moved_is_merged() -> None:
    tensors = bert(2)
    moved = {"encoder.layer.1.attention.self.query.weight"}
    assert set(mergeable(tensors, moved)) == moved


def test_nothing_moved_and_odd_shapes_are_refused() -> None:
    with pytest.raises(ProblemError, match="nothing to merge"):
        mergeable(bert(1), {"embeddings.word_embeddings.weight"})
    odd = bert(1) | {"encoder.layer.0.experts": info(4, 8, 8)}
    with pytest.raises(ProblemError, match=r"experts' has shape \[4, 8, 8\]"):
        mergeable(odd, set(odd))


def test_later_blocks_do_not_reorder_by_their_digits() -> None:
    groups = matrix_groups(bert(12), 2)
    square = next(g for g in groups if g.shape == (8, 8) and not g.first)
    assert [block_of(n) for n in square.names] == sorted(block_of(n) for n in square.names)
