"""Methods on real, tiny networks: exact oracles from end to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lamps_plugins.task_update_transfer import _networks
from lamps_plugins.task_update_transfer._problem import TransferProblem
from lamps_plugins.task_update_transfer._replications import _permuted
from lamps_plugins.task_update_transfer._transfer import Transfer
from lamps_plugins.task_update_transfer.btransfer import BTransfer
from lamps_plugins.task_update_transfer.finetune_budget import FinetuneBudget
from lamps_plugins.task_update_transfer.fisher_average import FisherAverage
from lamps_plugins.task_update_transfer.gradfix import GradFix, masked
from lamps_plugins.task_update_transfer.naive_width import NaiveWidth
from lamps_plugins.task_update_transfer.param_delta import ParamDelta
from lamps_plugins.task_update_transfer.random_isometry import RandomIsometry
from lamps_plugins.task_update_transfer.source_unchanged import SourceUnchanged
from lamps_plugins.task_update_transfer.target_untouched import TargetUntouched
from lamps_plugins.task_update_transfer.theseus import Theseus
from lamps_plugins.task_update_transfer.transfusion import TransFusion

from lamps.errors import ProblemError

Open = Callable[..., TransferProblem]
Kind = type[Transfer[Any]]


def fitted(
    kind: Kind, problem: TransferProblem, fidelity: float = 1.0, **params: Any
) -> Transfer[Any]:
    method = kind.from_params(params)
    return method.partial_fit(problem, fidelity, rng=np.random.default_rng(0))


def logits(problem: TransferProblem, method: Transfer[Any]) -> np.ndarray:
    return problem.logits(problem.network(method.updates_), "val")


def tuned_logits(problem: TransferProblem) -> np.ndarray:
    return problem.logits(problem.classifier("tuned"), "val")


def same_base(places: dict[str, Path]) -> None:
    places["game"] = places["base"]


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (ParamDelta, {}), (BTransfer, {}), (BTransfer, {"kappa": 30.0, "batch": 4}),
        (SourceUnchanged, {}), (TransFusion, {}), (Theseus, {"ridge": 1e-6}), (NaiveWidth, {}),
        (FisherAverage, {"weight": 1.0}),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else "",
)  # fmt: skip
def test_an_unchanged_base_gets_the_fine_tuned_model_back(
    own: Open, kind: Kind, params: dict[str, Any]
) -> None:
    problem = own(same_base)
    found = logits(problem, fitted(kind, problem, **params))
    np.testing.assert_allclose(found, tuned_logits(problem), atol=2e-4)


def test_theseus_needs_no_ridge_where_activations_fill_the_space(own: Open) -> None:
    def edit(places: dict[str, Path]) -> None:
        _permuted.roughen(places)
        same_base(places)

    problem = own(edit)
    found = logits(problem, fitted(Theseus, problem, texts=1000, hidden="after"))
    np.testing.assert_allclose(found, tuned_logits(problem), atol=2e-4)


def test_theseus_finds_permuted_units_of_all_kinds(transfer_cache: Path, tmp_path: Path) -> None:
    problem = _permuted.problem(tmp_path, 3, residual=True)
    source = _permuted.tuned_network(problem)
    wanted = _networks.features(source, problem.rows("val"), problem.pad_id)
    method = fitted(Theseus, problem, texts=1000, hidden="after")
    net = problem.network(method.updates_)
    found = _networks.features(net, problem.rows("val"), problem.pad_id)
    assert _permuted.same_up_to_order(wanted, found, 1e-4)
    # And so the refitted head says the same.
    problem.fit_head(source)
    np.testing.assert_allclose(
        problem.logits(net, "val"), problem.logits(source, "val"), atol=1e-3
    )
    # Random maps find nothing.
    lost = problem.network(fitted(RandomIsometry, problem).updates_)
    other = _networks.features(lost, problem.rows("val"), problem.pad_id)
    assert not _permuted.same_up_to_order(wanted, other, 1e-2)


def test_transfusion_finds_permuted_hidden_units_and_the_plain_update_does_not(
    transfer_cache: Path, tmp_path: Path
) -> None:
    problem = _permuted.problem(tmp_path, 3, residual=False)
    wanted = tuned_logits(problem)
    found = logits(problem, fitted(TransFusion, problem))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.abs(logits(problem, fitted(ParamDelta, problem)) - wanted).max() > 0.1


@pytest.mark.parametrize("kind", [ParamDelta, Theseus, RandomIsometry, NaiveWidth, TransFusion])
def test_a_factor_of_zero_leaves_the_target(toy: Open, kind: Kind) -> None:
    problem = toy()
    assert fitted(kind, problem, alpha=0.0).updates_ == {}


def test_the_target_untouched_is_the_base_under_either_head(toy: Open) -> None:
    problem = toy()
    plain, refitted = (fitted(TargetUntouched, problem, head=h) for h in ("problem", "refitted"))
    np.testing.assert_array_equal(
        problem.logits(plain.network(problem), "val"), logits(problem, plain)
    )
    assert plain.evaluate(problem).objectives["retention"] == 0.0
    seen = refitted.evaluate(problem)
    assert seen.objectives["labels"] == 3 * problem.shots
    assert seen.objectives["val_error"] < plain.evaluate(problem).objectives["val_error"]


def test_first_landmark_moves_the_upper_half_only(toy: Open) -> None:
    problem = toy()
    for kind in (ParamDelta, Theseus, RandomIsometry):
        names = fitted(kind, problem, 0.25).updates_
        assert names
        assert all(problem.lineage.upper(name) for name in names)


def test_random_maps_keep_the_norm_of_every_update(toy: Open) -> None:
    problem = toy("toy-width")
    for name, value in fitted(RandomIsometry, problem).updates_.items():
        own = problem.lineage.task_update(name)
        assert float(value.norm()) == pytest.approx(float(own.norm()), rel=1e-4)


def test_theseus_keeps_norms_towards_wider_targets_and_aligns_twins(toy: Open) -> None:
    problem = toy("toy-width")
    method = fitted(Theseus, problem)
    for name, value in method.updates_.items():
        own = problem.lineage.task_update(name)
        assert float(value.norm()) == pytest.approx(float(own.norm()), rel=1e-4)
    assert method.found_["alignment_mean"] > 0.99
    assert method.texts_ == 2 * 128


def test_data_free_maps_read_no_text(toy: Open) -> None:
    method = fitted(Theseus, toy("toy-width"), maps="weights")
    assert method.texts_ == 0
    assert method.updates_


def test_gradfix_keeps_what_goes_downhill(toy: Open) -> None:
    update = torch.tensor([1.0, -1.0, 2.0, -2.0])
    slope = torch.tensor([-3.0, -3.0, 0.0, 1.0])
    assert masked(update, slope).tolist() == [1.0, 0.0, 0.0, -2.0]
    problem = toy()
    for signs in ("mean", "vote"):
        method = fitted(GradFix, problem, signs=signs)
        assert 0.2 < method.found_["kept_share"] < 0.8


def test_fishers_cost_what_they_say_and_are_sums_over_landmarks(toy: Open) -> None:
    problem = toy()
    method = BTransfer.from_params({"texts": 64})
    whole, n = problem.readings.task_fisher(problem.names(1.0), 64, 1.0, 16, sampled=False)
    assert n == 64
    half, n_half = problem.readings.task_fisher(problem.names(1.0), 64, 0.5, 16, sampled=False)
    assert n_half == 32
    assert all(bool((2 * whole[k] * 1.001 + 1e-12 >= half[k]).all()) for k in whole)
    method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))
    assert (method.texts_, method.labels_) == (192, 64)


def test_a_kept_factor_replaces_the_task(toy: Open, tmp_path: Path) -> None:
    problem = toy()
    params = {"texts": 64, "cap": 0.0, "floor": 0.0}
    method = BTransfer.from_params(params)
    method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))
    factor = method.factor(problem)
    names = problem.lineage.moved
    f_n, _ = problem.readings.generic_fisher("target", names, 64, 1.0, 16)
    new = problem.lineage.weights("target")
    found = factor.on({n: new[n] for n in names}, f_n)
    for name in names:
        moved = found[name].float() - new[name]
        if not problem.is_table(name) and bool(torch.isfinite(moved).all()):
            torch.testing.assert_close(
                moved, method.updates_.get(name, torch.zeros_like(moved)), atol=1e-3, rtol=1e-3
            )


def test_sampled_labels_need_no_labels(toy: Open) -> None:
    assert fitted(BTransfer, toy(), labels="sampled", texts=32).labels_ == 0


def test_budget_of_the_control_is_that_of_three_fishers(toy: Open) -> None:
    problem = toy()
    method = fitted(FinetuneBudget, problem, texts=48)
    assert method.texts_ == fitted(BTransfer, problem, texts=48).texts_ == 144


@pytest.mark.parametrize("kind", [ParamDelta, BTransfer, TransFusion, GradFix, SourceUnchanged])
def test_methods_for_equal_widths_refuse_another(toy: Open, kind: Kind) -> None:
    problem = toy("toy-width")
    with pytest.raises(ProblemError, match="equal widths"):
        fitted(kind, problem)


def test_permutations_need_an_encoder_laid_out_like_bert() -> None:
    from lamps_plugins.task_update_transfer._rebasin import blocks_of

    with pytest.raises(ProblemError, match="laid out like BERT"):
        blocks_of({"layers.0.mlp.up_proj.weight": 0})
