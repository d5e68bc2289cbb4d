"""Networks trained by epochs: any stops give the same numbers, and checkpoints hold everything."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from lamps_plugins._views.clusterer import Clustering
from lamps_plugins._views.epochs import EpochClusterer, one_thread, seeded
from lamps_plugins._views.linear import kmeans
from lamps_plugins.multi_view_clustering._problem import FAMILY
from torch import nn

from lamps import space as hp
from lamps.artifacts import decode_state, encode_state
from lamps.errors import MethodFailed, ProblemError
from lamps.method import MethodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    lr: float = hp.real(1e-2, low=1e-9, high=1e9, doc="Rate.")
    first: int = hp.integer(4, low=0, high=50, doc="Epochs of the first stage.")
    second: int = hp.integer(16, low=0, high=50, doc="Epochs of the second stage.")


def joined(data) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(data.arrays, 1))


class Small(EpochClusterer[Params]):
    """An autoencoder of the views side by side, with dropout and noise of its own."""

    spec = MethodSpec(family="multi-view-clustering", summary="For tests.")

    def stages(self):
        return ("first", self.params.first), ("second", self.params.second)

    def build(self, data, rng):
        width = sum(a.shape[1] for a in data.arrays)
        self.net_ = nn.Sequential(
            nn.Linear(width, 5), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5, width)
        )
        self.adam_ = torch.optim.Adam(self.net_.parameters(), lr=self.params.lr, fused=True)
        self.entered_: dict[str, int] = {}

    def modules(self):
        return {"net": self.net_}

    def optimizers(self):
        return {"adam": self.adam_}

    def more_state(self) -> dict[str, Any]:
        return {"entered": dict(self.entered_)}

    def load_more_state(self, state):
        self.entered_ = {str(k): int(v) for k, v in state["entered"].items()}

    def enter(self, stage, data, rng):
        self.entered_[stage] = self.entered_.get(stage, 0) + 1
        self.signals_["draw"] = float(rng.random() + torch.rand(()))

    def train_epoch(self, stage, epoch, data, rng):
        x = torch.from_numpy(joined(data))
        self.net_.train()
        loss = ((self.net_(x + 0.1 * torch.randn_like(x)) - x) ** 2).mean() * rng.uniform(0.9, 1.1)
        self.adam_.zero_grad()
        loss.backward()
        self.adam_.step()
        return {"loss": float(loss.detach()), "stage_epoch": float(epoch)}

    def result(self, data):
        self.net_.eval()
        with torch.no_grad():
            h = self.net_[:2](torch.from_numpy(joined(data))).numpy()
        labels, _ = kmeans(h, data.n_clusters, self.stream(9))
        return Clustering(labels=labels, embedding=h)


@pytest.fixture(scope="module")
def problem():
    return FAMILY.toy_problem()


def trained(problem, *fidelities: float, seed: int = 3, through=lambda m: m, **params) -> Small:
    method = Small(Params(**params))
    for fidelity in fidelities:
        method.partial_fit(problem, fidelity, rng=np.random.default_rng(seed))
        method = through(method)
    return method


def weights(method: Small) -> np.ndarray:
    return np.concatenate([w.detach().numpy().ravel() for w in method.net_.parameters()])


def through_checkpoint(problem, method: Small) -> Small:
    twin = Small(method.params)
    twin.load_state_dict(decode_state(encode_state(method.state_dict())), problem)
    return twin


def test_stops_do_not_show(problem):
    leap = trained(problem, 1.0)
    steps = trained(problem, *problem.fidelities)
    np.testing.assert_array_equal(weights(leap), weights(steps))
    assert leap.trace_ == steps.trace_
    assert [row["epoch"] for row in leap.trace_] == list(range(1, 21))
    assert [row["stage"] for row in leap.trace_] == [0.0] * 4 + [1.0] * 16


def test_a_checkpoint_after_every_landmark_does_not_show(problem):
    lived = trained(problem, 1.0)
    killed = trained(
        problem, *problem.fidelities, through=lambda m: through_checkpoint(problem, m)
    )
    np.testing.assert_array_equal(weights(lived), weights(killed))
    assert killed.trace_ == lived.trace_
    assert killed.signals() == lived.signals()
    assert killed.entered_ == {"first": 1, "second": 1}
    again = decode_state(encode_state(killed.state_dict()))
    assert set(again) == set(lived.state_dict())


def test_a_checkpoint_is_not_changed_by_training_on(problem):
    method = trained(problem, 0.25)
    state = method.state_dict()
    before = {k: v.numpy().copy() for k, v in state.items() if isinstance(v, torch.Tensor)}
    twin = Small(method.params)
    twin.load_state_dict(state, problem)
    twin.partial_fit(problem, 1.0, rng=np.random.default_rng(3))
    method.partial_fit(problem, 1.0, rng=np.random.default_rng(3))
    for key, value in before.items():
        np.testing.assert_array_equal(state[key].numpy(), value, err_msg=key)


def test_the_seed_shows(problem):
    assert (weights(trained(problem, 0.25)) != weights(trained(problem, 0.25, seed=4))).any()


def test_global_generators_and_threads_are_put_back(problem):
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    trained(problem, 0.25)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    with one_thread():
        assert torch.get_num_threads() == 1
    with seeded(np.random.default_rng(1)):
        first = torch.rand(())
    with seeded(np.random.default_rng(1)):
        assert torch.rand(()) == first


def test_fidelities_are_shares_of_the_epochs(problem):
    assert trained(problem, 0.0).epochs_ == 0
    assert trained(problem, 0.05).epochs_ == 1
    assert trained(problem, 0.25).epochs_ == 5
    method = trained(problem, 0.25)
    assert method.stage == "second"
    assert method.entered("second")
    assert not trained(problem, 0.05).entered("second")


def test_an_empty_stage_is_passed_over(problem):
    method = trained(problem, 1.0, first=0)
    assert method.entered_ == {"second": 1}
    assert not method.entered("first")


def test_networks_open_without_rows_and_assign_alike(problem):
    method = trained(problem, 1.0)
    alone = Small(method.params)
    alone.load_model_state(method.model_state())
    np.testing.assert_array_equal(
        alone.result(problem.data).labels, method.result(problem.data).labels
    )


def test_cluster_is_the_whole_training(problem):
    found = Small(Params()).cluster(problem.data, rng=np.random.default_rng(3))
    want = trained(problem, 1.0).result_
    np.testing.assert_array_equal(found.labels, want.labels)
    assert len(found.trace) == 20


def test_what_missing_cells_hold_does_not_show(problem):
    rng = np.random.default_rng(0)
    junk = tuple(
        np.where(shown[:, None], a, 1e6 * rng.normal(size=a.shape)).astype(np.float32)
        for a, shown in zip(problem.data.arrays, problem.data.mask.T, strict=True)
    )
    data = dataclasses.replace(problem.data, arrays=junk)
    found = Small(Params()).cluster(data, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(found.labels, trained(problem, 1.0).result_.labels)


def test_divergence_is_named(problem):
    with pytest.raises(MethodFailed, match=r"diverged: loss is .* epoch 2 of stage 'first'"):
        trained(problem, 1.0, lr=1e9)


def test_unknown_fidelity_is_refused(problem):
    with pytest.raises(ProblemError, match="no landmark"):
        trained(problem, 0.3)
