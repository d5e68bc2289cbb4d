"""Problems: what is opened, shared, refused; networks and generic losses."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lamps_plugins.task_update_transfer import _activations, _fisher, _generic, _networks
from lamps_plugins.task_update_transfer._problem import FAMILY, TransferProblem
from lamps_plugins.task_update_transfer._readings import edges
from lamps_plugins.task_update_transfer._transfer import fits
from lamps_plugins.task_update_transfer.btransfer import BTransfer
from lamps_plugins.task_update_transfer.theseus import Theseus, all_modules

from lamps.errors import ProblemError

Open = Callable[..., TransferProblem]


def test_tracks_and_their_heads(toy: Open) -> None:
    same, width = toy(), toy("toy-width")
    assert (same.lineage.same_width, same.head) == (True, "old")
    assert (width.lineage.same_width, width.head) == (False, "ridge")
    assert toy(head="ridge").fingerprint() != same.fingerprint()
    assert fits(BTransfer, same)
    assert not fits(BTransfer, width)
    assert fits(Theseus, width)
    assert not FAMILY.candidates(
        width, {"btransfer": BTransfer}, (), given={}, per_method=3, seed=0
    )


def test_budgets_are_equal(toy: Open) -> None:
    pool = FAMILY.candidates(
        toy(), {"btransfer": BTransfer, "theseus": Theseus}, (), given={}, per_method=4, seed=0
    )
    assert [c.method for c in pool].count("btransfer") == 4
    assert [c.method for c in pool].count("theseus") == 4


def test_reopened_and_pickled_problems_are_equal(own: Open) -> None:
    problem = own(lambda at: None)
    again = FAMILY.reopen(json.loads(json.dumps(problem.reference())))
    assert again.fingerprint() == problem.fingerprint()
    twin = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(
        twin.logits(twin.network({}), "val"), problem.logits(problem.network({}), "val")
    )


def test_a_changed_model_is_noticed(own: Open, tmp_path: Path) -> None:
    from lamps_plugins.model_merging._refused import edit_weights

    reference = own(lambda at: None).reference()
    name = "bert.encoder.layer.0.attention.self.query.weight"
    file = tmp_path / "game" / "model.safetensors"
    edit_weights(file, lambda t: t.update({name: t[name] + 1e-3}))
    with pytest.raises(ProblemError, match="changed"):
        FAMILY.reopen(reference)


def test_labels_follow_the_fine_tuned_model(own: Open) -> None:
    problem = own(lambda at: None)
    names = [str(problem.texts.task.labels[int(t)]) for t in problem.texts.task.targets("val")]
    assert [problem.labels[int(t)] for t in problem.targets("val")] == names


def test_given_unlabelled_texts_must_not_be_held_out_ones(own: Open) -> None:
    from lamps_plugins.task_update_transfer._texts import Texts

    problem = own(lambda at: None)
    task = problem.texts.task
    with pytest.raises(ProblemError, match="val text"):
        Texts(task, (task.texts("val")[0],), ("a",))
    with pytest.raises(ProblemError, match="no generic texts"):
        Texts(task, (), ("a",))


def test_unlabelled_files_lose_what_is_held_out(own: Open, tmp_path: Path) -> None:
    file = tmp_path / "unlabelled.txt"

    def write(at: dict[str, Path]) -> None:
        texts = [json.loads(line)["text"] for line in at["dish.data"].read_text().splitlines()]
        file.write_text("".join(f'{{"text": "{t}"}}\n' for t in ["we talked long", *texts]))
        file.rename(file.with_suffix(".jsonl"))

    problem = own(write, domain_data=str(file.with_suffix(".jsonl")))
    assert "we talked long" in problem.texts.domain
    assert not set(problem.texts.domain) & set(problem.texts.task.texts("test"))
    assert "no --generic-data" in " ".join(problem.notes)


def test_blocks_end_where_landmarks_end() -> None:
    shares = (0.0, 0.25, 0.5, 1.0)
    assert edges(10, 1.0, shares) == [(0, 3), (3, 5), (5, 10)]
    assert edges(1, 1.0, shares) == [(0, 1)]
    assert edges(10, 0.0, shares) == []


def test_sums_of_blocks_are_the_sums_of_all(toy: Open) -> None:
    problem = toy("toy-width")
    modules = all_modules(problem)
    parts, n = problem.readings.alignment(modules, 40, 1.0, grams=True)
    whole = _activations.statistics(
        problem.classifier("source"), problem.classifier("target"), modules,
        problem.rows("train", 40), problem.pad_id, grams=True, batch=7,
    )  # fmt: skip
    assert n == 40
    for key, value in whole.items():
        np.testing.assert_allclose(parts[key], value, rtol=1e-4, atol=1e-3)
    assert parts["tokens"][0] == sum(len(row) for row in problem.rows("train", 40))


def test_alignment_needs_tokens_and_finite_weights(toy: Open) -> None:
    problem = toy("toy-width")
    nets = problem.classifier("source"), problem.classifier("target")
    modules, rows = all_modules(problem)[:2], problem.rows("train", 2)
    with pytest.raises(ProblemError, match="0 tokens"):
        _activations.statistics(*nets, modules, [], problem.pad_id, grams=False)
    with torch.no_grad():
        next(iter(_networks.encoder_parameters(nets[0]).values())).fill_(torch.nan)
    with pytest.raises(ProblemError, match="not finite"):
        _activations.statistics(*nets, modules, rows, problem.pad_id, grams=False)


def test_fisher_of_single_texts_is_the_sum_of_squares(toy: Open) -> None:
    problem = toy()
    net, rows, targets = (
        problem.classifier("tuned"),
        problem.rows("train", 5),
        problem.targets("train"),
    )
    name = problem.lineage.moved[-1]
    own = {name: _networks.encoder_parameters(net)[name]}
    losses = _fisher.task_losses(net, rows, targets[:5], problem.pad_id, 1, sampled=False)
    found = _fisher.added([_fisher.squared_gradients(own, losses)])[name]
    wanted = torch.zeros_like(found)
    for row, target in zip(rows, targets, strict=False):
        logits = net(input_ids=torch.tensor(row[None].astype(np.int64))).logits
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([target]))
        wanted += torch.autograd.grad(loss, own[name])[0].square() / 5
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-10)


def test_fishers_refuse_what_has_none(toy: Open) -> None:
    problem = toy()
    net = problem.classifier("tuned")
    parameter = {"w": torch.nn.Parameter(torch.ones(2))}
    rows, targets = problem.rows("train", 2), problem.targets("train")[:2]
    losses = _fisher.task_losses(net, rows, targets, problem.pad_id, 1, sampled=False)
    with pytest.raises(ProblemError, match="no gradient reaches 'w'"):
        _fisher.squared_gradients(parameter, losses)
    with pytest.raises(ProblemError, match="no valid target"):
        _fisher.squared_gradients(_networks.encoder_parameters(net), [])


def test_masks_depend_on_the_text_alone() -> None:
    rows = [np.arange(5, 45, dtype=np.int32), np.arange(5, 65, dtype=np.int32)]
    both = _generic.mask_words(rows, mask_id=4, n_words=100, special=frozenset({5}))
    alone = _generic.mask_words(rows[1:], mask_id=4, n_words=100, special=frozenset({5}))
    np.testing.assert_array_equal(both.rows[1], alone.rows[0])
    hidden = np.concatenate(both.targets) != -100
    assert 0.05 < hidden.mean() < 0.3
    assert all(row[0] == 5 for row in both.rows)
    kept = np.concatenate(both.rows)[~hidden]
    np.testing.assert_array_equal(kept, np.concatenate(rows)[~hidden])


def test_masked_words_are_the_generic_loss_where_both_bases_predict_them(own: Open) -> None:
    def with_heads(at: dict[str, Path]) -> None:
        for name in ("base", "game"):
            add_masked_head(at[name])

    problem = own(with_heads)
    assert problem.generic == "masked"
    method = BTransfer.from_params({"texts": 32})
    method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))
    found = method.evaluate(problem)
    assert np.isfinite(found.objectives["retention"])
    assert found.signals["generic_loss.untouched"] > 1.0


def add_masked_head(folder: Path) -> None:
    from lamps_plugins.text_classification._nets import quiet

    with quiet():
        from transformers import AutoTokenizer, BertForMaskedLM

        BertForMaskedLM.from_pretrained(folder).save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.mask_token = "[UNK]"  # the toy's vocabulary has no mask of its own
        tokenizer.save_pretrained(folder)


def test_no_masked_word_is_refused() -> None:
    given = _generic.Masked([np.array([1, 2], np.int32)], [np.array([-100, -100])])
    with pytest.raises(ProblemError, match="no word"):
        list(_generic.masked_losses(torch.nn.Identity(), given, 0, 1))


def test_retention_of_the_base_itself_is_zero(toy: Open) -> None:
    problem = toy()
    assert problem.readings.generic_loss(problem.network({})) == pytest.approx(0.0, abs=1e-6)
    moved = {name: torch.ones_like(w) for name, w in problem.lineage.weights("target").items()}
    assert problem.readings.generic_loss(problem.network(moved)) > 0.1
