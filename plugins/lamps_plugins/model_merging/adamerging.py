"""AdaMerging: coefficients that make the merged model sure of its answers.

Paper: Yang et al., AdaMerging: Adaptive model merging for multi-task learning, ICLR 2024, arXiv
2310.02575, section 3.

    theta(lambda) = theta_0 + sum_k lambda_k tau_k,  lambda per task, or per task and tensor    (1)
    min over lambda of sum_k mean_x H(p(y | x; theta(lambda), head_k))                          (2)

by Adam at 1e-3 from 0.3, on unlabelled calibration texts of each task. Ours: gradients through
dL/dlambda_k = <grad_theta L, tau_k>, so one backward pass serves all coefficients; landmarks take
the square of the fidelity as their share of the steps (the paper takes 500). Oracle: no step is
task arithmetic at 0.3; permuted labels change nothing, for none is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from numpy.random import Generator

from lamps import space as hp
from lamps.method import MethodSpec, Paper, State, substream
from lamps_plugins.model_merging._combination import Adam, Combination, classifiers, draw, like
from lamps_plugins.model_merging._merger import FAMILY, Merger
from lamps_plugins.text_classification import _nets

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._problem import MergeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of AdaMerging."""

    granularity: str = hp.choice(
        "tensor", ("task", "tensor"), doc="One coefficient a task, or a task and tensor; eq. (1)."
    )
    start: float = hp.real(0.3, low=0.05, high=1.0, log=True, doc="First value of lambda.")
    lr: float = hp.real(1e-3, low=3e-4, high=3e-2, log=True, doc="Rate of Adam, unitless.")
    steps: int = hp.integer(
        200, low=20, high=1000, log=True, doc="Steps of a full run; the paper takes 500."
    )
    batch: int = hp.choice(16, (8, 16, 32), doc="Texts of each task a step.")


class Adamerging(Merger[Params]):
    """Task arithmetic with learned coefficients."""

    spec = MethodSpec(
        family=FAMILY,
        summary="learns the coefficients of task arithmetic by minimising entropy",
        paper=Paper(
            title="AdaMerging: Adaptive model merging for multi-task learning",
            arxiv="2310.02575",
            venue="ICLR 2024",
            section="3",
        ),
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.optimizer_: Adam | None = None

    def partial_fit(self, problem: MergeProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; goes on with the steps, then merges what the landmark has."""
        import torch

        problem.check_fidelity(fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.seed_ = int(rng.integers(2**63))
        if fidelity > 0.0:
            combination = Combination(problem)
            coefficients = self._learn(problem, combination, fidelity)
            groups, vectors = problem.merged_at(fidelity)
            with torch.no_grad():
                for group in (*groups, *vectors):
                    self._take(group, combination.merged(group, coefficients))
        self.fidelity_ = fidelity
        return self

    def _learn(
        self, problem: MergeProblem, combination: Combination, fidelity: float
    ) -> torch.Tensor:
        import torch

        from lamps_plugins.model_merging._unlabelled import rows_of

        p = self.params
        if self.optimizer_ is None:
            n = (len(combination.names),) if p.granularity == "tensor" else ()
            self.optimizer_ = Adam(torch.full((problem.n_experts, *n), p.start), p.lr)
        learner = self.optimizer_
        nets = classifiers(problem)
        rows = {task: rows_of(problem, task) for task in problem.tasks}
        entropy = float("nan")
        for step in range(learner.step, math.ceil(p.steps * fidelity**2)):
            weights = combination.weights(learner.value)
            total, entropy = [torch.zeros_like(w) for w in weights.values()], 0.0
            for k, (task, net) in enumerate(nets.items()):
                some = draw(rows[task], p.batch, substream(self._stream(), step, k))
                loss = _entropy(net, weights, some, problem.pad_id)
                grads = torch.autograd.grad(loss, list(weights.values()))
                total = [a + b for a, b in zip(total, grads, strict=True)]
                entropy += float(loss.detach()) / len(nets)
            gradient = combination.gradient(dict(zip(weights, total, strict=True)))
            learner.update(like(gradient, learner.value))
        self.facts_["coefficient"] = (float(learner.value.mean()), 1.0)
        if not math.isnan(entropy):
            self.facts_["entropy"] = (entropy, 1.0)
        return learner.value

    def state_dict(self) -> State:
        """See `Method.state_dict`: coefficients and moments besides."""
        state = super().state_dict()
        if self.optimizer_ is not None:
            state |= {f"adam/{name}": value for name, value in self.optimizer_.state().items()}
        return state

    def load_state_dict(self, state: State, problem: MergeProblem) -> None:
        """See `Method.load_state_dict`."""
        import torch

        super().load_state_dict(state, problem)
        self.optimizer_ = None
        if "adam/value" in state:
            self.optimizer_ = Adam(torch.as_tensor(state["adam/value"]), self.params.lr)
            names = ("value", "first", "second", "step")
            self.optimizer_.load({name: state[f"adam/{name}"] for name in names})


def _entropy(net: Any, weights: dict[str, torch.Tensor], rows: Any, pad_id: int) -> torch.Tensor:
    """Mean entropy of a network's predictions in nats; equation (2)."""
    from torch.func import functional_call

    ids, mask = _nets.pad_batch(rows, pad_id)
    inputs = {"input_ids": ids, "attention_mask": mask}
    logs = (
        functional_call(net, weights, (), inputs, tie_weights=False).logits.float().log_softmax(-1)
    )
    loss: torch.Tensor = -(logs.exp() * logs).sum(-1).mean()
    return loss
