"""The learned policy: its weights, its network, its fallback, its training."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from lamps import policy as policies  # noqa: E402
from lamps.errors import ConfigError, LampsWarning  # noqa: E402
from lamps.policy import STOP, Observation, learned, weights  # noqa: E402
from lamps.policy import train as training  # noqa: E402
from lamps.policy.features import EXTRAPOLATION, FEATURE_VERSION, blinded, features  # noqa: E402
from lamps.policy.network import PoolNetwork  # noqa: E402
from lamps.policy.recorded import Recorded  # noqa: E402
from lamps.policy.rollout import DOUBTS, Rollout, calibrated_doubt, rollout  # noqa: E402
from lamps.policy.simulate import simulate  # noqa: E402
from lamps.policy.synthetic import synthetic_episodes  # noqa: E402
from lamps.policy.weights import Weights  # noqa: E402
from lamps.testing.pools import Curves  # noqa: E402
from tests.unit.test_policy_env import any_action, environment  # noqa: E402

QUICK = training.Settings(iterations=4, segment=2, steps=4)
GROUPS = ((6, 4, 2, 8), (8, 4, 3, 8))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "GROUPS", GROUPS)


def curves(n: int = 12, seed: int = 0) -> Recorded:
    made = Curves.falling(n, 5, 2, seed=seed)
    return Recorded(
        f"made-up-{seed}",
        "made-up",
        ("a", "b"),
        made.values,
        made.cost_s,
        np.ones(made.cost_s.shape, dtype=bool),
        np.linspace(0, 1, 5),
        made.size,
        tuple(f"c{i}" for i in range(n)),
    )


@pytest.mark.parametrize("m", [1, 2, 4])
def test_numpy_and_torch_say_the_same(m: int) -> None:
    torch.manual_seed(m)
    network = PoolNetwork(16)
    env, rng = environment(m, 10, m), np.random.default_rng(0)
    for _ in range(25):
        env.step(any_action(env, rng))
    seen, present, mask = env.observe(), env.state.present, env.state.mask
    ours = Weights({k: v.numpy() for k, v in network.state_dict().items()}, {})
    scores, missing = ours.forward(seen, present, mask)
    with torch.no_grad():
        out = network(
            *(torch.from_numpy(x) for x in (seen.objectives, seen.trials, seen.pool)),
            torch.from_numpy(present.copy()),
            torch.from_numpy(mask),
        )
    np.testing.assert_allclose(scores, out.scores.numpy(), atol=1e-4)
    np.testing.assert_allclose(missing, torch.sigmoid(out.regret).numpy(), atol=1e-5)


def test_absent_trials_have_no_say() -> None:
    torch.manual_seed(0)
    network = Weights({k: v.numpy() for k, v in PoolNetwork(16).state_dict().items()}, {})
    env, rng = environment(1, 12, 2), np.random.default_rng(0)
    for _ in range(25):
        env.step(any_action(env, rng))
    seen, present, mask = env.observe(), env.state.present, env.state.mask
    scores, _ = network.forward(seen, present, mask)
    noisy = dataclasses.replace(seen, trials=seen.trials.copy())
    noisy.trials[:, ~present] = 3.0
    again, _ = network.forward(noisy, present, mask)
    np.testing.assert_allclose(scores[mask], again[mask], atol=1e-5)


def test_training_repeats_itself_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [curves(12, s) for s in range(3)]
    whole = training.train(tables, QUICK)
    again = training.train(tables, QUICK, folder=tmp_path / "whole")
    assert whole.sha256 == again.sha256
    assert set(whole.metadata["training_score"]) >= {"area", "time_to_99", "stop_value"}

    class Killed(Exception):
        pass

    keep = training._keep

    def kill(*arguments: object) -> None:
        keep(*arguments)  # type: ignore[arg-type]
        if arguments[-1] == 2:
            raise Killed

    monkeypatch.setattr(training, "_keep", kill)
    with pytest.raises(Killed):
        training.train(tables, QUICK, folder=tmp_path / "killed")
    monkeypatch.setattr(training, "_keep", keep)
    resumed = training.train(tables, QUICK, folder=tmp_path / "killed")
    assert resumed.sha256 == whole.sha256


def test_a_folder_of_another_training_is_refused(tmp_path: Path) -> None:
    training.train([curves()], QUICK, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"other settings \(seed\)"):
        training.train([curves()], dataclasses.replace(QUICK, seed=1), folder=tmp_path)
    with pytest.raises(ConfigError, match="no landmark tables"):
        training.train([], QUICK)


def test_training_on_made_up_pools_alone_needs_no_tables() -> None:
    found = training.train([], dataclasses.replace(QUICK, synthetic=1.0))
    assert found.metadata["doubt"] in DOUBTS


def test_blind_training_never_sees_what_it_is_blind_to(tmp_path: Path) -> None:
    found = training.train(
        [curves()], dataclasses.replace(QUICK, blind=EXTRAPOLATION), folder=tmp_path
    )
    file = tmp_path / "blind.safetensors"
    weights.save(file, found.tensors, found.metadata)
    rule = policies.make(f"lamps(weights={file})") if str(file).isidentifier() else None
    rule = rule or learned.Lamps(weights=str(file))
    env, rng = environment(2, 8, 2), np.random.default_rng(0)
    for _ in range(20):
        env.step(any_action(env, rng))
    seen = env.observe()
    other = dataclasses.replace(seen, trials=seen.trials.copy())
    other.trials[-5:] += 1.0
    args = (env.state.present, env.state.mask)
    assert rule.weights is not None
    a, _ = learned.forward(rule.weights, seen, *args)
    b, _ = learned.forward(rule.weights, other, *args)
    np.testing.assert_array_equal(a, b)
    assert not blinded(seen, EXTRAPOLATION).trials[-5:].any()


def test_weights_round_trip_and_name_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = training.train([curves()], QUICK)
    file = tmp_path / "w.safetensors"
    weights.save(file, found.tensors, found.metadata)
    assert weights.load(file).sha256 == found.sha256
    monkeypatch.setattr(weights, "FEATURE_VERSION", "99")
    with pytest.raises(ConfigError, match=f"version {FEATURE_VERSION}, .* version 99"):
        weights.load(file)


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\x08\0\0\0\0\0\0\0{}      "])
def test_damaged_weights_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "w.safetensors"
    with pytest.raises(ConfigError, match="no policy weights at"):
        weights.load(file)
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        weights.load(file)
    assert "\n" not in str(caught.value)


def test_shipped_weights_say_what_they_are() -> None:
    shipped = weights.load(weights.SHIPPED)
    assert weights.SHIPPED.stat().st_size < 5_000_000
    assert shipped.metadata["features"] == FEATURE_VERSION
    assert 0 < shipped.metadata["doubt"] < 1
    assert {"settings", "tables", "training_score"} <= set(shipped.metadata)
    assert all(len(t["fingerprint"]) == 64 for t in shipped.metadata["tables"])


def test_a_search_goes_on_without_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(learned, "SHIPPED", tmp_path / "gone.safetensors")
    with pytest.warns(LampsWarning, match="front-racing decides instead"):
        rule = policies.make("lamps")
    pool = curves()
    plain = simulate(policies.make("front-racing"), pool)
    np.testing.assert_array_equal(simulate(rule, pool).trial, plain.trial)
    with pytest.raises(ConfigError, match="no policy weights"):
        learned.Lamps(weights=str(tmp_path / "gone.safetensors"))


def test_a_pool_out_of_range_is_left_to_front_racing_and_said_once() -> None:
    seen = Observation.empty(5, np.linspace(0, 1, 4), 12)  # twelve objectives
    rule = policies.make("lamps")
    with pytest.warns(LampsWarning, match="n_objectives .* front-racing decides"):
        action = rule.propose(seen, seen.mask)
    assert action == policies.make("front-racing").propose(seen, seen.mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.propose(seen, seen.mask)


def test_it_stops_by_itself_and_goes_on_with_a_budget() -> None:
    pool = curves(24, seed=3)
    rule = learned.Lamps(doubt=0.999)  # as little patience as there can be
    stopped = simulate(rule, pool)
    spent = simulate(rule, pool, spend=True)
    assert stopped.stopped
    assert len(stopped.trial) < len(spent.trial) == 24 * 5
    seen = Observation.empty(3, np.linspace(0, 1, 3), 2)
    assert rule.propose(seen, seen.mask) != STOP, "it stopped before anything was finished"


def test_a_rollout_agrees_with_the_simulator() -> None:
    """The vectorised environment and one search at a time: same weights, same decisions."""
    block = synthetic_episodes(np.random.default_rng(3), 12, 8, 5, 2)
    block.n_workers[:] = 1
    shipped = weights.load(weights.SHIPPED)
    found = rollout(training.forward_of(shipped), block)
    assert found.area.shape == (12,)
    assert ((found.time_to_99 > 0) & (found.time_to_99 <= 1)).all()
    assert (np.diff(found.stop_time, axis=1) <= 1e-6).all(), "more doubt stops earlier"


def test_doubt_is_calibrated_to_what_may_be_missed() -> None:
    values = np.ones((100, len(DOUBTS)), dtype=np.float32)
    values[:, 6:] = 0.9
    values[:50, 4] = 0.994
    time = np.zeros_like(values)
    result = Rollout(values[:, 0], values[:, 0], values, time)
    assert calibrated_doubt([result]) == DOUBTS[5]
    assert calibrated_doubt([Rollout(values[:, 0], values[:, 0], values * 0.5, time)]) == DOUBTS[0]


def test_features_of_an_untouched_pool_are_finite() -> None:
    for n in (1, 2, 50):
        seen = Observation.empty(n, np.array([1.0]), 1)
        from lamps.policy.features import state_of

        found = features(state_of(seen))
        assert np.isfinite(found.trials).all()
