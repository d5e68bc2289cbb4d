"""Trees, masks and positions: laws against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.lossless_decoding._ngrams import SuffixIndex
from lamps_plugins.lossless_decoding._tree import (
    Layout,
    best_first,
    chains,
    layout,
    static_shape,
    top1_expansion,
)


@st.composite
def parent_tuples(draw: st.DrawFn) -> tuple[int, ...]:
    n = draw(st.integers(0, 12))
    return tuple(draw(st.integers(0, row)) for row in range(n))


@given(parent_tuples())
def test_a_row_sees_its_ancestors_and_itself(parents: tuple[int, ...]) -> None:
    made = Layout(parents)
    for row in range(len(parents) + 1):
        seen, at = {row}, row
        while at:
            at = parents[at - 1]
            seen.add(at)
        assert set(np.flatnonzero(made.sees[row])) == seen
        assert made.depth[row] == len(seen) - 1


@given(parent_tuples(), st.lists(st.integers(0, 700), min_size=1, max_size=4))
def test_a_mask_opens_the_cache_and_repeats_the_template(
    parents: tuple[int, ...], lengths: list[int]
) -> None:
    made = Layout(parents)
    for cached in lengths:
        mask = made.mask(cached, torch.float32, torch.device("cpu"))
        assert mask.shape == (len(parents) + 1, cached + len(parents) + 1)
        assert bool((mask[:, :cached] == 0).all())
        assert np.array_equal(mask[:, cached:].numpy() == 0, made.sees)


def test_equal_trees_share_their_masks() -> None:
    first = layout((0, 1, 1)).mask(10, torch.float32, torch.device("cpu"))
    second = layout((0, 1, 1)).mask(20, torch.float32, torch.device("cpu"))
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


levels_of = st.lists(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=4), min_size=1, max_size=3
).map(
    lambda rows: [
        ([10 * i + j for j in range(len(row))], sorted(row, reverse=True))
        for i, row in enumerate(rows)
    ]
)


@given(levels_of, st.integers(1, 9))
def test_best_first_takes_the_likeliest_closed_set(
    levels: list[tuple[list[int], list[float]]], budget: int
) -> None:
    depth = len(levels)
    tree = best_first(budget, lambda path: levels[len(path)], depth=depth)
    every = sorted(
        (
            float(np.prod([p for _, p in path]))
            for n in range(1, depth + 1)
            for path in itertools.product(*(zip(*levels[d], strict=True) for d in range(n)))
        ),
        reverse=True,
    )
    chance = [1.0]
    for parent, token in zip(tree.parents, tree.tokens, strict=True):
        words, chances = levels[token // 10]
        chance.append(chance[parent] * chances[words.index(token)])
    assert sorted(chance[1:], reverse=True) == pytest.approx(every[:budget])
    assert len({*zip(tree.parents, tree.tokens, strict=True)}) == len(tree.tokens)


def test_a_child_never_repeats_its_parent() -> None:
    levels = [([3, 4, 5], [0.6, 0.3, 0.1]), ([4, 3, 5], [0.5, 0.4, 0.1])]
    dynamic = best_first(6, lambda path: levels[len(path)], depth=2, root=3)
    fixed = top1_expansion((2, 2), levels, root=3)
    for tree in (dynamic, fixed):
        words = [3, *tree.tokens]
        assert all(words[p] != t for p, t in zip(tree.parents, tree.tokens, strict=True))
    assert fixed.tokens == [4, 5, 3, 5]
    assert fixed.parents == [0, 0, 1, 1]


def test_unlikely_paths_are_left_out_but_one_node_stays() -> None:
    levels = [([1, 2], [0.02, 0.01]), ([3], [0.5])]
    assert best_first(4, lambda p: levels[len(p)], depth=2, p_min=0.5).tokens == [1]
    assert top1_expansion((2, 1), levels, p_min=0.5).tokens == [1]
    assert best_first(4, lambda p: levels[len(p)], depth=2, p_min=0.009).tokens == [1, 2, 3]


def test_given_children_have_their_place_once() -> None:
    levels = [([1, 2, 3], [0.5, 0.3, 0.2])]
    assert sorted(best_first(3, lambda p: levels[0], depth=1, given=[2, 9]).tokens) == [1, 2, 9]
    assert sorted(top1_expansion((3,), levels, given=[2, 9]).tokens) == [1, 2, 9]
    assert best_first(2, lambda p: levels[0], depth=1, root=9, given=[9]).tokens == [1, 2]


@given(st.integers(1, 3), st.integers(1, 40))
def test_a_static_shape_spends_its_budget(k: int, nodes: int) -> None:
    shape = static_shape(k, nodes)
    assert sum(shape) == nodes
    assert 1 <= len(shape) <= k
    assert min(shape) >= 1


def test_the_known_good_shapes_come_out() -> None:
    assert static_shape(1, 60 // 2 - 1) == (29,)
    assert static_shape(2, 60 // 3 - 1) == (15, 4)
    assert static_shape(3, 64 // 4 - 1) == (7, 5, 3)


def test_chains_share_their_beginnings() -> None:
    tree = chains([[1, 2, 3], [1, 2, 4], [5]])
    assert tree.tokens == [1, 2, 3, 4, 5]
    assert tree.parents == [0, 1, 2, 2, 0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 4))
def test_followers_are_what_followed(text: list[int], longest: int) -> None:
    index = SuffixIndex(longest)
    index.extend(text)
    found = index.followers(3, 2)
    best: list[int] | None = None
    for n in range(min(longest, len(text)), 0, -1):
        places = [i for i in range(n, len(text)) if text[i - n : i] == text[len(text) - n :]]
        if places:
            best = text[places[-1] : places[-1] + 3]
            break
    assert (found[0] if found else None) == best
    assert len(found) <= 2
