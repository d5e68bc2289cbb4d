"""The learned policy's network: any number of trials and objectives, in any order.

Each objective of each trial goes through one small encoder; mean and maximum over objectives join
the trial's own features; mean and maximum over trials make the pool's context, which every trial
then sees. So permuting trials permutes the scores, permuting objectives changes nothing, and the
same ten thousand weights serve a pool of 5 and one of 2,000. The score begins as a rule of thumb
(``p x_i``: what is begun and cheap goes first), so training starts from a sound search and learns
where to depart from it.

    e_io = f(x_io)                                encoded objective o of trial i   (1)
    h_i = g(mean_o e_io, max_o e_io, x_i)         encoded trial   (2)
    c = u(mean_i h_i, max_i h_i, x_pool)          context   (3)
    h'_i = r(h_i, c),   c' = w(mean_i h'_i, max_i h'_i, c)   (4)
    score_i = s(h'_i, c') + p x_i,   value = v(c'),   regret = q(c')   (5)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lamps.policy.features import OBJECTIVE_FEATURES, POOL_FEATURES, TRIAL_FEATURES
from lamps.policy.weights import PRIOR, REGRET_LEVELS

_PRIOR_COLUMNS = [TRIAL_FEATURES.index(name) for name in PRIOR]


@dataclass(frozen=True, slots=True)
class Output:
    """What the network says.

    Args:
        scores: [B, n] logits of advancing each trial; -inf where it may not.
        value: [B] by how much the return will exceed that of the critic's rule.
        regret: [B, 4] logits that more than `REGRET_LEVELS` of the optimum is missing now.
    """

    scores: Tensor
    value: Tensor
    regret: Tensor


class PoolNetwork(nn.Module):
    """See the module's docstring.

    Args:
        width: Units per layer.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        half = width // 2
        self.objective = nn.Sequential(nn.Linear(len(OBJECTIVE_FEATURES), half), nn.ReLU())
        self.trial = nn.Sequential(
            nn.Linear(2 * half + len(TRIAL_FEATURES), width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.context = nn.Sequential(nn.Linear(2 * width + len(POOL_FEATURES), width), nn.ReLU())
        self.trial_in_context = nn.Linear(width, width)
        self.context_to_trial = nn.Linear(width, width)
        self.context_again = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU())
        self.score_trial = nn.Linear(width, half)
        self.score_context = nn.Linear(width, half)
        self.score = nn.Linear(half, 1)
        self.prior = nn.Linear(len(PRIOR), 1, bias=False)
        self.value = nn.Linear(width, 1)
        self.regret = nn.Linear(width, len(REGRET_LEVELS))
        with torch.no_grad():
            self.score.weight.mul_(0.1)
            self.prior.weight.copy_(torch.tensor([list(PRIOR.values())]))

    def forward(
        self, objectives: Tensor, trials: Tensor, pool: Tensor, present: Tensor, mask: Tensor
    ) -> Output:
        """Scores of trials.

        Args:
            objectives: [F, m, B, n] as in `lamps.policy.features.Features`.
            trials: [F, B, n].
            pool: [F, B].
            present: [B, n] bool.
            mask: [B, n] bool.
        """
        f, m, b, n = objectives.shape
        encoded = self.objective(objectives.reshape(f, -1).t()).view(m, b * n, -1)
        own = trials.reshape(len(trials), -1).t()
        h = self.trial(torch.cat([encoded.mean(0), encoded.amax(0), own], dim=1)).view(b, n, -1)
        there = present[..., None].to(h.dtype)
        count = there.sum(1).clamp(min=1)
        context = self.context(torch.cat([*_pooled(h, there, count), pool.t()], dim=1))
        h = torch.relu(self.trial_in_context(h) + self.context_to_trial(context)[:, None])
        context = self.context_again(torch.cat([*_pooled(h, there, count), context], dim=1))
        hidden = torch.relu(self.score_trial(h) + self.score_context(context)[:, None])
        scores = self.score(hidden)[..., 0] + self.prior(own[:, _PRIOR_COLUMNS]).view(b, n)
        scores = scores.masked_fill(~mask, -torch.inf)
        return Output(scores, self.value(context)[:, 0], self.regret(context))


def _pooled(h: Tensor, there: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and maximum over trials that exist; h is not negative, so 0 stands for none."""
    h = h * there
    return h.sum(1) / count, h.amax(1)
