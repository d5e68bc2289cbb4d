"""MetaMerging: coefficients learned so that small label-free adapters, trained after, fit best.

Paper: Learn to Merge: Meta-Learning for Adaptive Multi-Task Model Merging, ICML 2026.

    theta(lambda) = theta_0 + sum_k lambda_k tau_k,   lambda = softplus(rho), from 1 / K        (1)
    L_k(phi) = mean over real tokens of (f(x; theta, phi) - f(x; theta_k))^2                    (2)
    inner, S steps:  phi_k <- phi_k - beta grad L_k(phi_k)  from the same start each time       (3)
    outer: Adam on rho against sum_k L_k(phi_k) on other texts                                  (4)

then lambda stays and each task trains its adapters by (2). Adapters follow every block,
x - W_up ReLU(W_down x + b) - b', so the result is one encoder and K small sets of weights, and a
task has to be named to be answered: the track is *merge + adapters*, and ``extra_params`` counts
them. No label is read. Ours: pools of training texts for (3), (4) and early stopping that have no
text in common; gradients to lambda through <grad_theta L, tau_k>; a bottleneck of width / 12, as
64 is at width 768. Landmarks take the square of the fidelity as their share of the meta-steps and
the fidelity as that of the adapters' steps. Oracles: lambda starts at 1 / K; the first gradient to
rho is not zero; permuted labels change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.random import Generator

from lamps import space as hp
from lamps.errors import MethodFailed, ProblemError
from lamps.method import MethodSpec, Paper, State, substream
from lamps_plugins.model_merging import _adapters
from lamps_plugins.model_merging._adapters import Adapters
from lamps_plugins.model_merging._combination import (
    Adam,
    Combination,
    Weights,
    classifiers,
    draw,
    like,
)
from lamps_plugins.model_merging._merger import FAMILY, Merger
from lamps_plugins.text_classification import _nets

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._problem import MergeProblem

CHECK = 10
"""Meta-steps between two looks at the texts kept for early stopping."""

PATIENCE = 50
"""Meta-steps without a gain there after which lambda stays."""

ADAPTER_BATCH = 8
_INNER, _OUTER, _STOP = (0, 9), (9, 18), (18, 20)
"""Which of every twenty texts belong to the pools: 45 %, 45 %, 10 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of MetaMerging."""

    inner_steps: int = hp.choice(1, (0, 1, 5), doc="S of eq. (3); 0 learns lambda directly.")
    order: str = hp.choice("second", ("second", "first"), doc="Whether (4) looks through (3).")
    inner_lr: float = hp.real(0.1, low=1e-3, high=3.0, log=True, doc="beta of eq. (3).")
    meta_lr: float = hp.real(0.01, low=1e-3, high=0.1, log=True, doc="Rate of Adam in eq. (4).")
    meta_steps: int = hp.integer(
        200, low=10, high=3000, log=True, doc="Steps of (4) in a full run, at most."
    )
    inner_batch: int = hp.choice(8, (4, 8, 16), doc="Texts of each task in a step of (3).")
    outer_batch: int = hp.choice(4, (4, 8, 16), doc="Texts of each task in a step of (4).")
    reduction: int = hp.choice(
        12, (6, 12, 24, 48), doc="Width of the encoder over the bottleneck of an adapter."
    )
    adapter_lr: float = hp.real(
        1e-3, low=3e-4, high=3e-3, log=True, doc="Rate of Adam on the adapters."
    )
    epochs: int = hp.integer(
        3, low=1, high=30, log=True, doc="Passes over the texts of a task for its adapters."
    )
    granularity: str = hp.choice(
        "task", ("task", "tensor"), doc="One coefficient a task, or a task and tensor; eq. (1)."
    )
    level: str = hp.choice(
        "hidden", ("hidden", "pooled", "logits"),
        doc="What (2) compares: states of all tokens, their mean, or answers (by KL).",
    )  # fmt: skip
    start: float = hp.fixed(0.0, doc="First value of every lambda; 0 takes 1 / K.")
    learn: bool = hp.fixed(True, doc="Whether lambda is learned; else it stays at its start.")


class Metamerging(Merger[Params]):
    """One encoder, and adapters for each task."""

    spec = MethodSpec(
        family=FAMILY,
        summary="learns coefficients such that small label-free adapters for each task fit best",
        paper=Paper(
            title="Learn to Merge: Meta-Learning for Adaptive Multi-Task Model Merging",
            venue="ICML 2026",
        ),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.optimizer_: Adam | None = None
        self.best_: dict[str, Any] = {}
        self.adapters_: dict[str, Adapters] = {}

    # --- landmarks -----------------------------------------------------------------------------

    def partial_fit(self, problem: MergeProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; goes on with lambda, then trains adapters from their start."""
        import torch

        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.seed_ = int(rng.integers(2**63))
        if fidelity > 0.0:
            work = Work(problem, self.params, self._stream())
            self._learn(work, fidelity)
            coefficients = self.coefficients()
            weights = work.combination.weights(coefficients)
            with torch.no_grad():
                for group in (*problem.groups, *problem.vectors):
                    self._take(group, work.combination.merged(group, coefficients))
            for task in problem.tasks:
                self.adapters_[task] = work.trained(task, weights, fidelity)
            self.note_once("coefficient", float(coefficients.mean()))
            self.note_once("coefficient_spread", float(coefficients.max() - coefficients.min()))
        self.fidelity_ = fidelity
        return self

    def note_once(self, name: str, value: float) -> None:
        """A diagnostic that a later landmark replaces."""
        self.facts_[name] = (value, 1.0)

    def coefficients(self) -> torch.Tensor:
        """lambda: the best that early stopping saw, the present one before its first look."""
        import torch

        assert self.optimizer_ is not None
        rho = self.best_.get("rho", self.optimizer_.value)
        return torch.nn.functional.softplus(torch.as_tensor(rho))

    def _learn(self, work: Work, fidelity: float) -> None:
        """Equations (3) and (4) up to the landmark's share of the steps."""
        import torch

        p = self.params
        if self.optimizer_ is None:
            first = p.start or 1.0 / work.problem.n_experts
            n = (len(work.combination.names),) if p.granularity == "tensor" else ()
            rho = torch.full((work.problem.n_experts, *n), math.log(math.expm1(first)))
            self.optimizer_ = Adam(rho, p.meta_lr)
        if not p.learn:
            return
        learner = self.optimizer_
        for step in range(learner.step, math.ceil(p.meta_steps * fidelity**2)):
            if step - int(self.best_.get("step", step)) >= PATIENCE:
                break
            gradient = work.gradient(learner.value, step)
            if step == 0 and not bool(gradient.any()):
                raise MethodFailed("metamerging: the first gradient to the coefficients is zero")
            learner.update(gradient)
            if learner.step % CHECK == 0:
                loss = work.held_out(learner.value)
                if loss < float(self.best_.get("loss", math.inf)):
                    self.best_ = {"rho": learner.value, "loss": loss, "step": learner.step}
        if self.best_:
            self.note_once("held_out_loss", float(self.best_["loss"]))

    # --- what the result is ----------------------------------------------------------------------

    def network(self, problem: MergeProblem, task: str) -> nn.Module:
        """The merged classifier with the task's adapters."""
        from lamps_plugins.model_merging._load_adapters import attach

        net = problem.network(task, self.updates_)
        if task in self.adapters_:
            attach(
                net, _adapters.blocks_of(net, _adapters.place_of(problem)), self.adapters_[task]
            )
        return net

    def extra_params(self, problem: MergeProblem) -> int:
        """All weights of all adapters."""
        return sum(_adapters.count(adapters) for adapters in self.adapters_.values())

    def save(self, problem: MergeProblem, directory: Path) -> None:
        """One folder a task, with its adapters and a file that loads them; see `_adapters`."""
        super().save(problem, directory)
        for task, adapters in self.adapters_.items():
            _adapters.write(directory / task, adapters, _adapters.place_of(problem))

    def state_dict(self) -> State:
        """See `Method.state_dict`: coefficients, their optimiser, and all adapters besides."""
        state = super().state_dict()
        if self.optimizer_ is not None:
            state |= {f"adam/{name}": value for name, value in self.optimizer_.state().items()}
        state |= {f"best/{name}": value for name, value in self.best_.items()}
        for task, adapters in self.adapters_.items():
            state |= {f"adapter/{task}/{name}": value for name, value in adapters.items()}
        return state

    def load_state_dict(self, state: State, problem: MergeProblem) -> None:
        """See `Method.load_state_dict`."""
        import torch

        super().load_state_dict(state, problem)
        self.optimizer_, self.best_, self.adapters_ = None, {}, {}
        if "adam/value" in state:
            self.optimizer_ = Adam(torch.as_tensor(state["adam/value"]), self.params.meta_lr)
            names = ("value", "first", "second", "step")
            self.optimizer_.load({name: state[f"adam/{name}"] for name in names})
        for key, value in state.items():
            kind, _, name = key.partition("/")
            if kind == "best":
                self.best_[name] = torch.as_tensor(value) if name == "rho" else value
            elif kind == "adapter":
                task, _, part = name.rpartition("/")
                self.adapters_.setdefault(task, {})[part] = torch.as_tensor(value)


class Work:
    """Networks, texts and targets of a call of `Metamerging.partial_fit`."""

    def __init__(self, problem: MergeProblem, params: Params, stream: Generator) -> None:
        from lamps_plugins.model_merging._unlabelled import rows_of

        self.problem, self.params, self.stream = problem, params, stream
        self.combination = Combination(problem)
        self.place = _adapters.place_of(problem)
        self.nets = classifiers(problem)
        self.rows = {task: rows_of(problem, task) for task in problem.tasks}
        self.pools = {task: pools(len(rows), task) for task, rows in self.rows.items()}
        self.wanted = {task: self._answers_of_expert(task) for task in problem.tasks}
        width = int(problem.experts.base.config["hidden_size"])
        bottleneck = max(1, width // params.reduction)
        first = next(iter(self.nets.values()))
        n_blocks = len(_adapters.blocks_of(first, self.place))
        self.start = {
            task: _adapters.start(
                n_blocks, width, bottleneck, int(substream(stream, 0, k).integers(2**63))
            )
            for k, task in enumerate(problem.tasks)
        }

    def _answers_of_expert(self, task: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """States [length, width] and logits [n_labels] of each text, by the frozen expert."""
        import torch

        net, rows = self.problem.expert_network(task), self.rows[task]
        found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for chosen in _nets.by_length(rows, 32):
            ids, mask = _nets.pad_batch([rows[i] for i in chosen], self.problem.pad_id)
            with torch.no_grad():
                states, logits = self._run(net, None, None, ids, mask)
            for i, state, logit in zip(chosen.tolist(), states, logits, strict=True):
                found[i] = state[: len(rows[i])].clone(), logit
        return [found[i] for i in range(len(rows))]

    def loss(
        self, task: str, weights: Weights, adapters: Adapters, chosen: Sequence[int]
    ) -> torch.Tensor:
        """Equation (2) on some texts."""
        import torch
        from torch.nn.functional import kl_div
        from torch.nn.utils.rnn import pad_sequence

        ids, mask = _nets.pad_batch([self.rows[task][i] for i in chosen], self.problem.pad_id)
        wanted = pad_sequence([self.wanted[task][i][0] for i in chosen], batch_first=True)
        found, logits = self._run(self.nets[task], weights, adapters, ids, mask)
        if self.params.level == "logits":
            sure = torch.stack([self.wanted[task][i][1] for i in chosen])
            return kl_div(
                logits.log_softmax(-1), sure.log_softmax(-1), reduction="batchmean",
                log_target=True,
            )  # fmt: skip
        real = mask.unsqueeze(-1).float()
        gap = (found - wanted) * real
        if self.params.level == "pooled":
            return (gap.sum(1) / real.sum(1)).square().mean()
        return gap.square().sum() / (real.sum() * found.shape[-1])

    def _run(
        self, net: Any, weights: Weights | None, adapters: Adapters | None, ids: Any, mask: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States that leave the top block, and logits."""
        from torch.func import functional_call
        from torch.nn.attention import SDPBackend, sdpa_kernel

        inputs = {"input_ids": ids, "attention_mask": mask}
        # Fused attention has no second derivative.
        with _adapters.attached(net, self.place, adapters) as seen, sdpa_kernel(SDPBackend.MATH):
            made = (
                net(**inputs)
                if weights is None
                else functional_call(net, weights, (), inputs, tie_weights=False)
            )
        return seen[-1], made.logits.float()

    def adapted(
        self, task: str, weights: Weights, inner: list[list[int]], *, second: bool
    ) -> Adapters:
        """Equation (3) from the start; one batch a step."""
        import torch

        adapters = {name: v.clone().requires_grad_() for name, v in self.start[task].items()}
        for chosen in inner:
            loss = self.loss(task, weights, adapters, chosen)
            grads = torch.autograd.grad(loss, list(adapters.values()), create_graph=second)
            adapters = {
                name: value - self.params.inner_lr * grad
                for (name, value), grad in zip(adapters.items(), grads, strict=True)
            }
            if not second:
                adapters = {name: v.detach().requires_grad_() for name, v in adapters.items()}
        return adapters

    def gradient(self, rho: torch.Tensor, step: int) -> torch.Tensor:
        """Gradient of (4) to rho, summed over tasks."""
        import torch

        p = self.params
        weights = self.combination.weights(torch.nn.functional.softplus(rho))
        total = [torch.zeros_like(w) for w in weights.values()]
        for k, task in enumerate(self.problem.tasks):
            rng = substream(self.stream, 1, step, k)
            inner, outer, _ = self.pools[task]
            batches = [draw(inner, p.inner_batch, rng) for _ in range(p.inner_steps)]
            adapters = self.adapted(task, weights, batches, second=p.order == "second")
            loss = self.loss(task, weights, adapters, draw(outer, p.outer_batch, rng))
            grads = torch.autograd.grad(loss, list(weights.values()))
            total = [a + b for a, b in zip(total, grads, strict=True)]
        gradient = self.combination.gradient(dict(zip(weights, total, strict=True)))
        return like(gradient, rho) * torch.sigmoid(rho)

    def held_out(self, rho: torch.Tensor) -> float:
        """The outer loss on the texts for early stopping, adapters after the inner steps."""
        import torch

        p = self.params
        weights = self.combination.weights(torch.nn.functional.softplus(rho))
        total = 0.0
        for task in self.problem.tasks:
            inner, _, stop = self.pools[task]
            batches = [inner[i :: p.inner_steps][: p.inner_batch] for i in range(p.inner_steps)]
            adapters = self.adapted(task, weights, batches, second=False)
            with torch.no_grad():
                total += float(self.loss(task, weights, adapters, stop))
        return total

    def trained(self, task: str, weights: Weights, fidelity: float) -> Adapters:
        """Adapters of a task for weights that stay, from their start."""
        import torch

        p, k = self.params, self.problem.tasks.index(task)
        inner, outer, _ = self.pools[task]
        texts = [*inner, *outer]
        a_pass = math.ceil(len(texts) / ADAPTER_BATCH)
        learners = {name: Adam(v.clone(), p.adapter_lr) for name, v in self.start[task].items()}
        fixed = {name: w.detach() for name, w in weights.items()}
        for step in range(math.ceil(p.epochs * a_pass * fidelity)):
            order = substream(self.stream, 2, k, step // a_pass).permutation(len(texts))
            at = (step % a_pass) * ADAPTER_BATCH
            adapters = {name: a.value.detach().requires_grad_() for name, a in learners.items()}
            some = [texts[i] for i in order[at : at + ADAPTER_BATCH]]
            loss = self.loss(task, fixed, adapters, some)
            grads = torch.autograd.grad(loss, list(adapters.values()))
            for learner, grad in zip(learners.values(), grads, strict=True):
                learner.update(grad)
        return {name: a.value for name, a in learners.items()}


def pools(n: int, task: str) -> tuple[list[int], ...]:
    """Which of a task's texts are for inner steps, outer steps and early stopping, no two alike.

    Raises:
        ProblemError: There are too few texts for a batch in each.

    Example:
        >>> [len(pool) for pool in pools(200, "r8")]
        [90, 90, 20]
    """
    found = tuple(
        [i for i in range(n) if low <= i % 20 < high] for low, high in (_INNER, _OUTER, _STOP)
    )
    if min(len(pool) for pool in found) < 4:
        raise ProblemError(
            f"task {task!r} has {n} training texts; metamerging needs 40 or more without labels"
        )
    return found
