"""The fine-tuning loop: batches of similar length, landmarks that add up to one whole run.

A run of ``epochs`` passes over ``n`` training texts sees ``T = epochs * n`` examples, whatever the
number of landmarks. With prefixes ``n_1 < n_2 < ... < n_K = n``, block ``k`` sees ``epochs * (n_k
- n_(k-1))`` of them, drawn from the first ``n_k`` texts: first the texts that no earlier block
could see, then whole shuffled passes. The learning rate depends on the examples seen so far over
``T`` and on nothing else:

    rate(s) = lr * min(s / (0.06 T), (T - s) / (0.94 T)),    s = examples seen with this batch  (1)

Order and dropout of a block depend on the trial's seed and the number of the block, so a run that
was stopped and resumed gives the numbers of one that was not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lamps.errors import MethodFailed
from lamps_plugins.text_classification import _nets

if TYPE_CHECKING:
    import torch
    from torch import nn

WARM_UP = 0.06
"""Share of the run over which the learning rate rises."""

CLIP = 1.0
"""Largest norm of a gradient."""

BUCKETS = 24
"""Batches whose texts are sorted by length together: fewer shuffle better, more pad less."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train; the same words as the methods' params.

    Args:
        lr: Peak learning rate of the body.
        head_lr: Peak learning rate of the classification head.
        epochs: Passes over the training set in one whole run.
        batch_size: Examples a step of the optimiser.
        micro_batch: Examples a forward pass, whose gradients are summed up to a batch; 0 means the
            whole batch.
        weight_decay: Decoupled decay of matrices; biases and norms have none.
        balanced: Weigh labels by their inverse frequency.
    """

    lr: float
    head_lr: float
    epochs: int
    batch_size: int
    micro_batch: int = 0
    weight_decay: float = 0.01
    balanced: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a run between two landmarks.

    Args:
        number: 1 for the first.
        previous: Texts that earlier blocks could see.
        prefix: Texts that this one can see.
        start: Examples that the run has seen before it.
        count: Examples it sees.
        total: Examples of the whole run.
    """

    number: int
    previous: int
    prefix: int
    start: int
    count: int
    total: int


def plan(prefixes: Sequence[int], epochs: int) -> list[Block]:
    """The blocks of a run with these prefixes.

    Example:
        >>> [(b.start, b.count) for b in plan([2, 4, 8], epochs=3)]
        [(0, 6), (6, 6), (12, 12)]
    """
    ends = [0, *prefixes]
    return [
        Block(k, a, b, epochs * a, epochs * (b - a), epochs * prefixes[-1])
        for k, (a, b) in enumerate(itertools.pairwise(ends), start=1)
    ]


def draw(block: Block, rng: Generator) -> Indices:
    """Which texts a block sees, in order. Shape: [count] int64, all below ``block.prefix``."""
    whole, rest = divmod(block.count, block.prefix)
    parts: list[Indices] = []
    if rest:
        new = block.previous + rng.permutation(block.prefix - block.previous)
        old = rng.permutation(block.previous)
        parts.append(rng.permutation(np.concatenate([new, old])[:rest]))
    parts += [rng.permutation(block.prefix) for _ in range(whole)]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


def batches(
    order: Indices, lengths: NDArray[np.int64], size: int, rng: Generator
) -> list[Indices]:
    """Batches of similar length, in shuffled order; every entry of ``order`` lies in exactly one.

    Shape:
        order: [count] indices;  lengths: [n] tokens of each text.
    """
    result: list[Indices] = []
    for start in range(0, len(order), size * BUCKETS):
        window = order[start : start + size * BUCKETS]
        window = window[np.argsort(lengths[window], kind="stable")]
        # The one batch that is not full must not always hold the longest texts.
        cut = rng.permutation(math.ceil(len(window) / size))
        edges = np.full(len(cut), size)
        edges[cut[0]] = len(window) - size * (len(cut) - 1)
        pieces = np.split(window, np.cumsum(edges)[:-1])
        result += [pieces[i] for i in rng.permutation(len(pieces))]
    return result


def rate(seen: int, total: int) -> float:
    """Learning rate as a share of its peak; equation (1)."""
    done = seen / total
    return max(0.0, min(done / WARM_UP, (1 - done) / (1 - WARM_UP), 1.0))


@dataclass(slots=True)
class Examples:
    """Tokenised texts with their targets.

    Shape:
        rows: n times [length] int32;  targets: [n] int64 or [n, n_labels] float32.
    """

    rows: Sequence[np.ndarray]
    targets: np.ndarray
    pad_id: int
    lengths: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = np.array([len(r) for r in self.rows], dtype=np.int64)


def trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are learned, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def make_optimizer(net: nn.Module, rates: dict[str, float], recipe: Recipe) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; ``base_lr`` of a group is its peak rate.

    Args:
        net: The network.
        rates: Peak rate of the parameters that do not learn at ``recipe.lr``, by name.
        recipe: How to train.
    """
    import torch

    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trainable(net).items():
        decay = recipe.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rates.get(name, recipe.lr), decay), []).append(parameter)
    settings = [
        {"params": found, "lr": lr, "base_lr": lr, "weight_decay": decay}
        for (lr, decay), found in groups.items()
    ]
    return torch.optim.AdamW(settings, fused=True)


def moments(net: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
    """The optimiser's memory, by kind and name of the parameter."""
    result: dict[str, torch.Tensor] = {}
    for name, parameter in trainable(net).items():
        for kind, value in optimizer.state.get(parameter, {}).items():
            result[f"{kind}/{name}"] = value.detach().cpu().clone()
    return result


def set_moments(
    net: nn.Module, optimizer: torch.optim.AdamW, saved: dict[str, torch.Tensor]
) -> None:
    """The inverse of `moments` on a fresh optimiser."""
    for name, parameter in trainable(net).items():
        kinds = ("step", "exp_avg", "exp_avg_sq")
        if f"step/{name}" in saved:
            optimizer.state[parameter] = {
                k: saved[f"{k}/{name}"].to(parameter.device).clone() for k in kinds
            }


def loss_of(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss and the sum of weights to divide it by, in float32.

    Shape:
        logits: [b, n_labels];  targets: [b] int64 or [b, n_labels] float32;  weights: [n_labels].
    """
    from torch.nn import functional

    logits = logits.float()
    if targets.ndim == 2:
        loss = functional.binary_cross_entropy_with_logits(
            logits, targets, pos_weight=weights, reduction="sum"
        )
        return loss / logits.shape[1], loss.new_tensor(float(len(targets)))
    loss = functional.cross_entropy(logits, targets, weight=weights, reduction="sum")
    mass = loss.new_tensor(float(len(targets))) if weights is None else weights[targets].sum()
    return loss, mass


def train_block(
    net: nn.Module,
    optimizer: torch.optim.AdamW,
    examples: Examples,
    block: Block,
    recipe: Recipe,
    *,
    rng: Generator,
    weights: np.ndarray | None = None,
    check: Callable[[int], bool] | None = None,
    n_checks: int = 4,
) -> float:
    """Train through one block.

    Args:
        net: A classifier of transformers, possibly with adapters; its trainable parameters are
            changed.
        optimizer: As `make_optimizer` gives it.
        examples: At least ``block.prefix`` of them.
        block: Which part of the run this is.
        recipe: How to train.
        rng: The block's own stream.
        weights: Weight of each label in the loss, [n_labels], or None.
        check: Called with the examples seen after each of ``n_checks`` equal parts; True ends the
            block.
        n_checks: How often ``check`` is called.

    Returns:
        Mean training loss over the block.

    Raises:
        MethodFailed: A loss is not finite.
    """
    import torch

    device = _nets.device()
    order = draw(block, rng)
    todo = batches(order, examples.lengths, recipe.batch_size, rng)
    stops = {math.ceil(len(todo) * (i + 1) / n_checks) for i in range(n_checks)}
    weight = None if weights is None else torch.from_numpy(weights).to(device)
    parameters = list(trainable(net).values())
    seen, losses = block.start, 0.0
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(int(rng.integers(2**62)))
        net.train()
        for number, chosen in enumerate(todo, start=1):
            seen += len(chosen)
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * rate(seen, block.total)
            loss = _step(net, examples, chosen, recipe, weight)
            if not math.isfinite(loss):
                raise MethodFailed(
                    f"the training loss is {loss} after {seen} of {block.total} "
                    f"examples at learning rate {recipe.lr:g}; expected a finite number, so give "
                    "a smaller lr"
                )
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses += loss * len(chosen)
            if check is not None and number in stops:
                done = check(seen)
                net.train()
                if done:
                    break
    net.eval()
    return losses / max(1, seen - block.start)


def _step(
    net: nn.Module,
    examples: Examples,
    chosen: Indices,
    recipe: Recipe,
    weights: torch.Tensor | None,
) -> float:
    """Gradients of one batch, in micro batches if asked for; returns the batch's mean loss."""
    import torch

    device, dtype = _nets.device(), _nets.autocast_dtype()
    targets = torch.from_numpy(examples.targets[chosen]).to(device)
    mass = float(len(chosen))
    if weights is not None and targets.ndim == 1:
        mass = float(weights[targets].sum())
    size = recipe.micro_batch or len(chosen)
    total = 0.0
    for start in range(0, len(chosen), size):
        part = slice(start, start + size)
        ids, mask = _nets.pad_batch([examples.rows[i] for i in chosen[part]], examples.pad_id)
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = net(input_ids=ids, attention_mask=mask).logits
        loss = loss_of(logits, targets[part], weights)[0] / mass
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def mean_loss(net: nn.Module, examples: Examples) -> float:
    """Unweighted validation loss, without dropout."""
    import torch

    logits = torch.from_numpy(_nets.logits_of_tokens(net, examples.rows, examples.pad_id))
    loss, mass = loss_of(logits, torch.tensor(examples.targets), None)
    return float(loss / mass)


def snapshot(net: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the trainable parameters."""
    return {name: p.detach().clone() for name, p in trainable(net).items()}


def restore(net: nn.Module, saved: dict[str, Any]) -> None:
    """Put a `snapshot` back.

    Raises:
        MethodFailed: It belongs to another network.
    """
    import torch

    own = trainable(net)
    if set(own) != set(saved):
        odd = sorted(set(own) ^ set(saved))[0]
        raise MethodFailed(
            f"the checkpoint does not fit the network: {odd!r} is in only one of them"
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.as_tensor(saved[name]))
