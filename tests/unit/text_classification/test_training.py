"""The training loop: laws of the plan, equality of equal computations, refusals."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamps_plugins.text_classification import _heads, _nets, _training
from lamps_plugins.text_classification._models import CATALOGUE

from lamps.errors import MethodFailed

PREFIXES = st.lists(st.integers(1, 400), min_size=1, max_size=6, unique=True).map(sorted)


@given(PREFIXES, st.integers(1, 6))
def test_all_blocks_together_are_exactly_one_run(prefixes: list[int], epochs: int) -> None:
    blocks = _training.plan(prefixes, epochs)
    assert sum(b.count for b in blocks) == epochs * prefixes[-1]
    assert all(b.start + b.count == c.start for b, c in itertools.pairwise(blocks))


@given(PREFIXES, st.integers(1, 6), st.integers(0, 9))
def test_a_block_sees_its_prefix_alone_and_evenly(
    prefixes: list[int], epochs: int, seed: int
) -> None:
    for block in _training.plan(prefixes, epochs):
        order = _training.draw(block, np.random.default_rng(seed))
        seen = np.bincount(order, minlength=block.prefix)
        assert len(order) == block.count
        assert len(seen) == block.prefix
        assert seen.max() - seen.min() <= 1


@given(PREFIXES)
def test_one_epoch_sees_each_text_once(prefixes: list[int]) -> None:
    blocks = _training.plan(prefixes, 1)
    order = np.concatenate([_training.draw(b, np.random.default_rng(0)) for b in blocks])
    assert sorted(order.tolist()) == list(range(prefixes[-1]))


@given(st.integers(0, 700), st.integers(1, 40), st.integers(0, 9))
def test_batches_are_a_partition_with_one_short_batch_a_window(
    n: int, size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    order, lengths = rng.permutation(n), rng.integers(1, 100, n)
    found = _training.batches(order, lengths, size, rng)
    assert sorted(i for b in found for i in b.tolist()) == list(range(n))
    assert all(0 < len(b) <= size for b in found)
    windows = -(-n // (size * _training.BUCKETS))
    assert sum(len(b) < size for b in found) <= windows


def test_batches_of_similar_length_pad_little() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 128, 1_000)
    found = _training.batches(rng.permutation(1_000), lengths, 16, rng)
    padded = sum(int(lengths[b].max()) * len(b) for b in found)
    assert padded < 1.1 * lengths.sum()


@given(st.integers(1, 10_000))
def test_the_rate_rises_falls_and_ends_at_zero(total: int) -> None:
    values = [_training.rate(s, total) for s in range(0, total + 1, max(1, total // 50))]
    assert all(0 <= v <= 1 for v in values)
    assert _training.rate(total, total) == 0
    peak = int(np.argmax(values))
    assert values[: peak + 1] == sorted(values[: peak + 1])
    assert values[peak:] == sorted(values[peak:], reverse=True)


def _classifier(folder: str, *, n_labels: int = 3, multi: bool = False) -> Any:
    info = CATALOGUE.resolve(folder)
    names = tuple(str(i) for i in range(n_labels))
    head = _nets.HeadSpec(names=names, multi_label=multi, max_length=32)
    pad = _nets.load_tokenizer(info).pad_token_id
    net = _nets.load_classifier(info, head, pad_id=pad)
    for module in net.modules():  # no dropout, so that equal computations are equal
        if hasattr(module, "p"):
            module.p = 0.0
    return net


def _examples(n: int = 40, *, multi: bool = False) -> _training.Examples:
    rng = np.random.default_rng(1)
    rows = [rng.integers(4, 30, rng.integers(3, 12)).astype(np.int32) for _ in range(n)]
    labels = np.array([int(r[0]) % 3 for r in rows], dtype=np.int64)
    targets = np.eye(3, dtype=np.float32)[labels] if multi else labels
    return _training.Examples(rows, targets, pad_id=0)


RECIPE = _training.Recipe(lr=3e-3, head_lr=3e-3, epochs=2, batch_size=8)


def _run(net: Any, examples: _training.Examples, recipe: _training.Recipe, **options: Any) -> Any:
    optimizer = _training.make_optimizer(net, {}, recipe)
    (block,) = _training.plan([len(examples.rows)], recipe.epochs)
    loss = _training.train_block(
        net, optimizer, examples, block, recipe, rng=np.random.default_rng(5), **options
    )
    return loss, _training.snapshot(net)


@pytest.mark.parametrize("multi", [False, True])
def test_training_lowers_the_loss(encoder: str, multi: bool) -> None:
    net, examples = _classifier(encoder, multi=multi), _examples(multi=multi)
    before = _training.mean_loss(net, examples)
    _run(net, examples, dataclasses.replace(RECIPE, epochs=10))
    assert _training.mean_loss(net, examples) < 0.8 * before


@pytest.mark.parametrize("balanced", [False, True])
def test_micro_batches_add_up_to_the_batch(encoder: str, balanced: bool) -> None:
    examples = _examples()
    weights = _heads.class_weights(examples.targets, 3) if balanced else None
    whole = _run(_classifier(encoder), examples, RECIPE, weights=weights)
    parts = dataclasses.replace(RECIPE, micro_batch=3)
    split = _run(_classifier(encoder), examples, parts, weights=weights)
    assert split[0] == pytest.approx(whole[0], rel=1e-4)
    for name, value in whole[1].items():
        np.testing.assert_allclose(split[1][name].numpy(), value.numpy(), atol=5e-4, err_msg=name)


def test_padding_of_decoders_does_not_change_logits(decoder: str) -> None:
    net, rows = _classifier(decoder), _examples().rows
    import torch

    with torch.no_grad():
        _nets.last_layer(net).weight.normal_()
    pad = int(net.config.pad_token_id)
    together = _nets.logits_of_tokens(net, rows, pad, batch=40)
    alone = np.concatenate([_nets.logits_of_tokens(net, [r], pad) for r in rows])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_balanced_weights_give_rare_labels_an_equal_say() -> None:
    targets = np.array([0] * 90 + [1] * 10)
    weights = _heads.class_weights(targets, 3)
    assert weights[0] * 90 == pytest.approx(weights[1] * 10)
    assert weights[2] == 1


def test_a_loss_that_is_not_finite_fails_with_the_reason(encoder: str) -> None:
    import torch

    net = _classifier(encoder)
    with torch.no_grad():
        next(iter(_training.trainable(net).values())).fill_(float("nan"))
    with pytest.raises(MethodFailed, match=r"loss is nan after 8 of 80 examples.*smaller lr"):
        _run(net, _examples(), RECIPE)


def test_looks_end_a_block_when_they_say_so(encoder: str) -> None:
    seen: list[int] = []

    def look(examples: int) -> bool:
        seen.append(examples)
        return len(seen) == 2

    _run(_classifier(encoder), _examples(), RECIPE, check=look, n_checks=4)
    assert len(seen) == 2
    assert seen[-1] < 80


def test_global_random_states_stay_where_they_were(encoder: str) -> None:
    import torch

    net = _classifier(encoder)
    before, legacy = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    _run(net, _examples(), RECIPE)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(legacy, np.random.get_state()[1])  # noqa: NPY002


def test_a_checkpoint_of_another_network_is_refused(encoder: str) -> None:
    net = _classifier(encoder)
    saved = _training.snapshot(net)
    saved["made.up"] = saved.pop(sorted(saved)[0])
    with pytest.raises(MethodFailed, match="does not fit"):
        _training.restore(net, saved)


def test_a_head_for_one_label_or_no_feature_is_the_prior() -> None:
    (weight, bias), fine = _heads.fit_logistic(
        np.ones((5, 2)), np.zeros(5, np.int64), 3, c=1.0, balanced=False
    )
    assert fine
    assert not weight.any()
    assert bias.argmax() == 0
    (weight, _), _ = _heads.fit_logistic(
        np.empty((4, 0)), np.array([0, 1, 1, 0]), 2, c=1.0, balanced=False
    )
    assert weight.shape == (2, 0)


def test_the_head_is_scikit_learns() -> None:
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 5))
    for n_labels in (2, 4):
        y = draw.integers(0, n_labels, 80)
        (weight, bias), fine = _heads.fit_logistic(x, y, n_labels, c=0.7, balanced=False)
        model = LogisticRegression(C=0.7, max_iter=1000).fit(x, y)
        z = x @ weight.T + bias
        ours = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        assert fine
        np.testing.assert_allclose(ours, model.predict_proba(x), atol=1e-5)


def test_a_head_without_bias_says_the_same_where_features_have_a_mean() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 8)).astype(np.float32) * 0.1 + draw.normal(size=8).astype(np.float32)
    y = (x[:, 0] > x[:, 0].mean()).astype(np.int64)
    head, _ = _heads.frozen_head(x, y, 2, c=1.0)
    folded = _heads.without_bias(head, x)
    same = (x @ head[0].T + head[1]).argmax(1) == (x @ folded.T).argmax(1)
    assert same.mean() > 0.9
