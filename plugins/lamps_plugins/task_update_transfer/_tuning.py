"""Fine-tuning the target base itself, which is what a transfer saves: the marks on both ends.

Embeddings and pooler stay frozen. Under the old head, that head stays as it is and the encoder
adapts to it; else a head of zeros is trained along and thrown away, because the common one is
fitted afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.method import State, substream
from lamps_plugins.task_update_transfer import _networks
from lamps_plugins.task_update_transfer._transfer import Transfer
from lamps_plugins.text_classification import _nets, _training

if TYPE_CHECKING:
    from torch import nn

    from lamps_plugins.task_update_transfer._problem import TransferProblem

P = TypeVar("P")


class Tuning(Transfer[P]):
    """Gradient steps on the target base.

    Attributes:
        trained_: Trained parameters by name, and the optimiser's memory.
    """

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.trained_: dict[str, Any] = {}

    def seen(self, problem: TransferProblem) -> int:
        """Texts that the whole run trains on, each pass counted."""
        raise NotImplementedError

    def n_texts(self, problem: TransferProblem) -> int:
        """Different training texts that it may draw from."""
        return problem.texts.task.n_train

    def recipe(self) -> _training.Recipe:
        """How to train."""
        raise NotImplementedError

    def partial_fit(self, problem: TransferProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; trains through the parts that are missing."""
        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        reached = self.fidelity_ or 0.0
        stops = [0.0, *(f for f in problem.fidelities if f > 0.0)]
        todo = [k for k, f in enumerate(stops) if reached < f <= fidelity]
        if todo:
            self._train(problem, todo, stops, rng)
        self.fidelity_ = fidelity
        return self

    def _train(
        self, problem: TransferProblem, todo: list[int], stops: list[float], rng: Generator
    ) -> None:
        net, optimizer = self.start(problem)
        if self.trained_:
            _training.restore(net, _part(self.trained_, "net/"))
            _training.set_moments(net, optimizer, _part(self.trained_, "moments/"))
        n, total = self.n_texts(problem), self.seen(problem)
        examples = _training.Examples(
            problem.rows("train", n), problem.targets("train")[:n], problem.pad_id
        )
        for k in todo:
            block = block_of(k, stops, n, total)
            _training.train_block(
                net, optimizer, examples, block, self.recipe(), rng=substream(rng, k)
            )
            self.texts_ = block.start + block.count
            self.labels_ = block.prefix
        self.trained_ = {f"net/{k}": v for k, v in _training.snapshot(net).items()}
        self.trained_ |= {f"moments/{k}": v for k, v in _training.moments(net, optimizer).items()}
        target = problem.lineage.weights("target")
        own = _networks.encoder_parameters(net)
        self._take({k: p.detach().cpu() - target[k] for k, p in own.items() if p.requires_grad})

    def start(self, problem: TransferProblem) -> tuple[nn.Module, Any]:
        """The network with the right parameters free, and an optimiser on them."""
        net = self.untrained(problem)
        return net, _training.make_optimizer(net, self.free(problem, net), self.recipe())

    def free(self, problem: TransferProblem, net: Any) -> dict[str, float]:
        """Let the right parameters of a classifier learn; returns the peak rates of the head."""
        last = {id(p) for p in _nets.last_layer(net).parameters()}
        inside = _networks.encoder_parameters(net)
        free = {k for k in inside if not k.startswith("embeddings.") and not problem.is_table(k)}
        rates: dict[str, float] = {}
        for name, parameter in net.named_parameters():
            head = id(parameter) in last and problem.head == "ridge"
            canonical = name.removeprefix(f"{net.base_model_prefix}.")
            parameter.requires_grad_(head or canonical in free)
            if head:
                rates[name] = self.recipe().head_lr
        return rates

    def untrained(self, problem: TransferProblem) -> nn.Module:
        """Where training starts; the head of zeros is that of the ridge protocol."""
        return problem.classifier("target")

    def state_dict(self) -> State:
        """See `Method.state_dict`; with parameters and the optimiser's memory."""
        return super().state_dict() | {f"trained/{k}": v for k, v in self.trained_.items()}

    def load_state_dict(self, state: State, problem: TransferProblem) -> None:
        """See `Method.load_state_dict`."""
        import torch

        super().load_state_dict(state, problem)
        found = _part(state, "trained/")
        self.trained_ = {k: torch.as_tensor(np.asarray(v)) for k, v in found.items()}


def block_of(k: int, stops: list[float], n: int, total: int) -> _training.Block:
    """The part of a run between two landmarks: ``total`` texts seen out of ``n`` different ones.

    Example:
        >>> b = block_of(2, [0.0, 0.25, 0.5, 1.0], 100, 40)
        >>> b.previous, b.prefix, b.start, b.count
        (25, 50, 10, 10)
    """
    ends = [round(f * total) for f in stops]
    prefixes = [math.ceil(f * n) for f in stops]
    return _training.Block(
        k, prefixes[k - 1], prefixes[k], ends[k - 1], ends[k] - ends[k - 1], total
    )


def _part(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
