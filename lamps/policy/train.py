"""Training of the learned policy: masked PPO in replayed searches, with hindsight beside it.

The score starts as a rule of thumb (`lamps.policy.weights.PRIOR`); PPO (Schulman et al., 2017)
with the mask in the softmax (Huang and Ontanon, 2020) learns where to depart from it, from the
area under the regret. The critic knows more than the actor (Pinto et al., 2018): what going on by
a simple rule would return from here, on the true curves; the network adds how much better than
that the policy will do. Hindsight knows every curve and ranks trials by true gain over the
finished front per remaining cost; imitating it a little, on the states that the network itself
visits (DAgger, Ross et al., AISTATS 2011), teaches what a promising trial looks like. It cannot
teach when a cheap landmark is worth its price, since hindsight never needs one; a phase of
imitation alone made searches on families left out worse, so there is none. A last head learns by
cross-entropy how likely it is that much is still missing; it is the stop rule.

All randomness follows from the seed; environments begin anew every ``segment`` iterations, so a
training that was killed goes on from its last checkpoint with the same numbers.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lamps.errors import ConfigError
from lamps.policy import weights as files
from lamps.policy.corpus import Corpus
from lamps.policy.env import ReplayEnv
from lamps.policy.episodes import Episodes
from lamps.policy.features import Features, blinded
from lamps.policy.learned import forward
from lamps.policy.network import Output, PoolNetwork
from lamps.policy.recorded import Recorded
from lamps.policy.rollout import DOUBTS, Forward, Rollout, calibrated_doubt, rollout
from lamps.policy.synthetic import synthetic_episodes

Say = Callable[[str], None]

GROUPS = (
    # trials, landmarks, objectives, environments
    (16, 12, 2, 128),
    (32, 10, 2, 128),
    (32, 8, 3, 96),
    (16, 20, 2, 96),
    (48, 8, 2, 64),
    (32, 8, 1, 128),
    (24, 24, 2, 64),
    (24, 8, 4, 64),
    (96, 8, 2, 24),
)
"""Shapes of pools that are trained side by side, one after another."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a training depends on, besides the tables.

    Args:
        seed: Root of all randomness.
        iterations: Rollouts, each followed by its updates.
        width: Units per layer.
        steps: Decisions per rollout and environment.
        learning_rate: At the start; falls linearly.
        imitation: Weight of imitation.
        entropy: Weight of the entropy bonus.
        epochs: Passes over a rollout.
        clip: PPO's bound on the ratio of probabilities.
        trace: Lambda of the generalised advantage; returns are not discounted.
        sharpness: How much imitation prefers the best trial over good ones.
        synthetic: Share of episodes that are made up.
        blind: Features that the network never sees (an ablation).
        caution: Share of the rule of thumb that is added to the trained score in the end. Greedy
            decisions trust a trained score more than sampled ones, so it keeps searches whose
            landmarks say little close to the rule.
        average: Share of the old mean per update in the mean of weights that is kept in the end
            (Polyak and Juditsky, 1992); single iterates swing on tables they never saw.
        segment: Iterations between checkpoints.
    """

    seed: int = 0
    iterations: int = 600
    width: int = 32
    steps: int = 24
    learning_rate: float = 1e-3
    imitation: float = 0.05
    entropy: float = 0.001
    epochs: int = 3
    clip: float = 0.2
    trace: float = 0.9
    sharpness: float = 2.0
    synthetic: float = 0.5
    blind: tuple[str, ...] = ()
    caution: float = 0.3
    average: float = 0.998
    segment: int = 200


@dataclass(slots=True)
class _Step:
    """One decision of all environments of a group; ``rule``: `ReplayEnv.rule_to_go`."""

    inputs: tuple[Tensor, ...]
    expert: Tensor
    has_expert: Tensor
    missing: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    rule: Tensor
    reward: Tensor
    ended: Tensor


def train(
    tables: Sequence[Recorded],
    settings: Settings,
    *,
    folder: Path | None = None,
    metadata: Mapping[str, Any] | None = None,
    say: Say = lambda _: None,
) -> files.Weights:
    """Train a network on tables and made-up pools.

    Args:
        tables: What to learn from; may be empty if ``settings.synthetic`` is 1.
        settings: See `Settings`.
        folder: Where checkpoints are kept; a training that was begun there goes on. None keeps
            none.
        metadata: More that the weights should say about themselves.
        say: Told about progress, a line at a time.

    Raises:
        ConfigError: Nothing to learn from, or the folder holds another training.
    """
    if not tables and settings.synthetic < 1:
        raise ConfigError("no landmark tables to train on; import some, or train with synthetic=1")
    torch.manual_seed(settings.seed)
    network = PoolNetwork(settings.width)
    mean = PoolNetwork(settings.width)
    mean.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    corpus = Corpus(tables) if tables else None
    start = _restore(folder, settings, network, mean, optimizer) if folder else 0
    begin, spent = time.monotonic(), 0.0
    losses: list[dict[str, float]] = []
    envs: list[ReplayEnv] = []
    for iteration in range(start, settings.iterations):
        if not envs or iteration % settings.segment == 0:
            segment = iteration // settings.segment
            torch.manual_seed(settings.seed * 100_003 + segment)
            envs = [_environment(settings, corpus, segment, g) for g in range(len(GROUPS))]
        done = iteration / settings.iterations
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 - done) + 2e-5
        env = envs[iteration % len(envs)]
        steps, last = _collect(network, env, settings)
        losses.append(_update(network, mean, optimizer, steps, last, settings))
        if (iteration + 1) % settings.segment == 0 or iteration + 1 == settings.iterations:
            spent = time.monotonic() - begin
            recent = losses[-settings.segment :]
            means = {k: float(np.mean([x[k] for x in recent])) for k in recent[0]}
            say(
                f"{iteration + 1}/{settings.iterations} iterations, {spent:.0f} s: "
                + ", ".join(f"{k} {v:.3f}" for k, v in means.items())
            )
            if folder:
                _keep(folder, settings, network, mean, optimizer, iteration + 1)
    tensors = _tensors(mean)
    rule = np.array([list(files.PRIOR.values())], dtype=np.float32)
    tensors["prior.weight"] += settings.caution * rule
    result = files.Weights(tensors, {"blind": list(settings.blind)})
    results = [
        rollout(forward_of(result), _episodes(settings, corpus, 9_999, g, 48))
        for g in range(len(GROUPS))
    ]
    doubt = calibrated_doubt(results)
    said = {
        **(metadata or {}),
        "settings": dataclasses.asdict(settings),
        "blind": list(settings.blind),
        "doubt": doubt,
        "bounds": _bounds(),
        "training_score": _score(results, doubt),
    }
    return files.Weights(tensors, said)


def forward_of(weights: files.Weights) -> Forward:
    """The network as a rollout calls it."""
    return partial(forward, weights)


def _score(results: list[Rollout], doubt: float) -> dict[str, float]:
    at = DOUBTS.index(doubt)
    return {
        "area": float(np.concatenate([r.area for r in results]).mean()),
        "time_to_99": float(np.concatenate([r.time_to_99 for r in results]).mean()),
        "stop_value": float(np.concatenate([r.stop_value[:, at] for r in results]).mean()),
        "stop_time": float(np.concatenate([r.stop_time[:, at] for r in results]).mean()),
    }


def _bounds() -> dict[str, list[float]]:
    """Range of pools that were trained on, in units of the features."""
    most = {i: max(g[i] for g in GROUPS) for i in range(3)}
    return {
        # Somewhat larger ones still look alike: all features are shares of the pool.
        "n_trials": [0.0, float(np.log(2.7 * most[0]) / 4)],
        "n_landmarks": [0.0, float(np.log(4 * most[1]) / 3)],
        "n_objectives": [0.0, (most[2] + 2) / 4],
    }


def _episodes(
    settings: Settings, corpus: Corpus | None, segment: int, group: int, count: int
) -> Episodes:
    rng = np.random.default_rng([settings.seed, segment, group])
    return _source(settings, corpus, rng, group)(count)


def _source(
    settings: Settings, corpus: Corpus | None, rng: np.random.Generator, group: int
) -> Callable[[int], Episodes]:
    n, k, m, _ = GROUPS[group]

    def source(count: int) -> Episodes:
        if corpus is None or rng.random() < settings.synthetic:
            return synthetic_episodes(rng, count, n, k, m)
        return corpus.episodes(rng, count, n, k, m)

    return source


def _environment(settings: Settings, corpus: Corpus | None, segment: int, group: int) -> ReplayEnv:
    rng = np.random.default_rng([settings.seed, segment, group])
    source = _source(settings, corpus, rng, group)
    return ReplayEnv(source, GROUPS[group][3], block=32, seed=settings.seed + segment)


def _inputs(env: ReplayEnv, settings: Settings) -> tuple[Tensor, ...]:
    seen: Features = blinded(env.observe(), settings.blind)
    arrays = (seen.objectives, seen.trials, seen.pool, env.state.present.copy(), env.state.mask)
    return tuple(torch.from_numpy(a) for a in arrays)


def _collect(
    network: PoolNetwork, env: ReplayEnv, settings: Settings
) -> tuple[list[_Step], Tensor]:
    """A rollout of sampled decisions, and the value of where it ends."""
    steps = []
    every = torch.arange(env.n_envs)
    for _ in range(settings.steps):
        expert, has = env.expert(settings.sharpness)
        missing = env.regret_if_stopped()
        rule = torch.from_numpy(env.rule_to_go())
        inputs = _inputs(env, settings)
        with torch.no_grad():
            out: Output = network(*inputs)
        log_probs = torch.log_softmax(out.scores, dim=1)
        action = torch.multinomial(log_probs.exp(), 1)[:, 0]
        reward, ended, _ = env.step(action.numpy().astype(np.int64))
        steps.append(
            _Step(
                inputs,
                torch.from_numpy(expert),
                torch.from_numpy(has).float(),
                torch.from_numpy(missing),
                action,
                log_probs[every, action],
                out.value + rule,
                rule,
                torch.from_numpy(reward),
                torch.from_numpy(ended),
            )
        )
    with torch.no_grad():
        last: Output = network(*_inputs(env, settings))
    return steps, last.value + torch.from_numpy(env.rule_to_go())


def _advantages(steps: list[_Step], last: Tensor, trace: float) -> list[Tensor]:
    """Generalised advantages (Schulman et al., 2016) without discount, one per step."""
    run, after = torch.zeros_like(last), last
    found: list[Tensor] = []
    for step in reversed(steps):
        goes_on = (~step.ended).float()
        run = step.reward.clamp(min=-10) + after * goes_on - step.value + trace * goes_on * run
        found.append(run)
        after = step.value
    return found[::-1]


def _update(
    network: PoolNetwork,
    mean: PoolNetwork,
    optimizer: torch.optim.Optimizer,
    steps: list[_Step],
    last: Tensor,
    settings: Settings,
) -> dict[str, float]:
    """Gradient steps on one rollout; the last losses."""
    advantages = _advantages(steps, last, settings.trace)
    every = torch.stack(advantages)
    centre, scale = every.mean(), every.std() + 1e-6
    levels = torch.tensor(files.REGRET_LEVELS)
    found: dict[str, float] = {}
    for _ in range(settings.epochs):
        for chosen in torch.split(torch.randperm(len(steps)), max(len(steps) // 4, 1)):
            some = [steps[i] for i in chosen.tolist()]
            advantage = torch.cat([advantages[i] for i in chosen.tolist()])
            out: Output = network(*_joined(some))
            log_probs = torch.log_softmax(out.scores, dim=1)
            allowed = log_probs.masked_fill(~torch.isfinite(log_probs), 0.0)
            has = torch.cat([s.has_expert for s in some])
            expert = torch.cat([s.expert for s in some])
            imitate = -((expert * allowed).sum(1) * has).sum() / has.sum().clamp(min=1)
            missing = torch.cat([s.missing for s in some])
            doubt = nn.functional.binary_cross_entropy_with_logits(
                out.regret, (missing[:, None] > levels).float()
            )
            beyond = advantage + torch.cat([s.value - s.rule for s in some])
            value = nn.functional.smooth_l1_loss(out.value, beyond.clamp(-5, 5))
            loss = doubt + 0.1 * value
            loss = loss + settings.imitation * imitate
            action = torch.cat([s.action for s in some])
            before = torch.cat([s.log_prob for s in some])
            ratio = (log_probs[torch.arange(len(action)), action] - before).exp()
            good = (advantage - centre) / scale
            bounded = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            loss = loss - torch.minimum(ratio * good, bounded * good).mean()
            entropy = -(log_probs.exp() * allowed).sum(1).mean()
            loss = loss - settings.entropy * entropy
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
            _average(mean, network, settings.average)
            found = {"imitation": imitate.item(), "doubt": doubt.item(), "value": value.item()}
    found["reward"] = float(torch.stack([s.reward for s in steps]).mean())
    return found


@torch.no_grad()
def _average(mean: PoolNetwork, network: PoolNetwork, keep: float) -> None:
    for old, new in zip(mean.parameters(), network.parameters(), strict=True):
        old.lerp_(new, 1 - keep)


def _joined(steps: list[_Step]) -> tuple[Tensor, ...]:
    """Inputs of several steps as one batch."""
    axes = (2, 1, 1, 0, 0)
    return tuple(torch.cat([s.inputs[i] for s in steps], dim=axis) for i, axis in enumerate(axes))


def _tensors(network: PoolNetwork) -> dict[str, Any]:
    return {k: v.detach().numpy().copy() for k, v in network.state_dict().items()}


# --- checkpoints ---------------------------------------------------------------------------------


def _keep(
    folder: Path,
    settings: Settings,
    network: PoolNetwork,
    mean: PoolNetwork,
    optimizer: torch.optim.Optimizer,
    iteration: int,
) -> None:
    """Write network and optimizer, then rename: a kill leaves the one before."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"network.{k}": v.contiguous() for k, v in network.state_dict().items()}
    tensors |= {f"mean.{k}": v.contiguous() for k, v in mean.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            tensors[f"optimizer.{index}.{key}"] = torch.as_tensor(value).contiguous().clone()
    said = {
        "lamps": json.dumps({"settings": dataclasses.asdict(settings), "iteration": iteration})
    }
    partial = folder / "checkpoint.part"
    save_file(tensors, partial, metadata=said)
    os.replace(partial, folder / "checkpoint.safetensors")


def _restore(
    folder: Path,
    settings: Settings,
    network: PoolNetwork,
    mean: PoolNetwork,
    optimizer: torch.optim.Optimizer,
) -> int:
    """Load the last checkpoint; the iteration to go on from, 0 where there is none."""
    from safetensors import safe_open

    path = folder / "checkpoint.safetensors"
    if not path.is_file():
        return 0
    with safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()["lamps"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    expected = json.loads(json.dumps(dataclasses.asdict(settings)))
    if said["settings"] != expected:
        other = [k for k, v in expected.items() if said["settings"].get(k) != v]
        raise ConfigError(
            f"{folder} holds a training with other settings ({', '.join(other)}); "
            "give the same ones, or another folder"
        )
    for module, prefix in ((network, "network."), (mean, "mean.")):
        module.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
    state = optimizer.state_dict()
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state["state"].setdefault(int(index), {})[key] = value
    optimizer.load_state_dict(state)
    return int(said["iteration"])
