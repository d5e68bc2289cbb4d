"""Experts seen with other updates: dropped at random, or what a rotation left of them.

A rule that works on the view works on the replaced updates, global thresholds and shared results
included, and need not know.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from lamps.errors import ProblemError
from lamps.types import Json, digest
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._sets import ExpertSet

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._problem import MergeProblem
    from lamps_plugins.model_merging._rules.lowrank import LowRank

Updates = Callable[[Group], "torch.Tensor"]


class ViewedSet(ExpertSet):
    """A set of experts whose matrices have other updates; vectors stay.

    Args:
        of: The set.
        updates: Updates of a group of matrices, [K, L, m, n] float32.
        what: Everything that ``updates`` depends on besides the experts; JSON.
    """

    def __init__(self, of: ExpertSet, updates: Updates, what: Json) -> None:
        self.__dict__.update(of.__dict__)
        self._updates, self._key = updates, digest([of.key, what])

    @property
    def kind(self) -> str:
        """``viewed``: whatever the experts were, their updates are dense now."""
        return "viewed"

    @property
    def key(self) -> str:
        """Hash of the experts and of what was done to them."""
        return self._key

    def deltas(self, group: Group) -> torch.Tensor:
        """See `ExpertSet.deltas`."""
        return self._updates(group) if len(group.shape) == 2 else super().deltas(group)

    def low_rank(self, group: Group) -> LowRank:
        """There are no factors.

        Raises:
            ProblemError: Always.
        """
        raise ProblemError("updates that were replaced have no low-rank factors")


def with_updates(problem: MergeProblem, updates: Updates, what: Json) -> MergeProblem:
    """The problem with other updates of its experts' matrices; see `ViewedSet`."""
    seen = copy.copy(problem)
    seen.experts = ViewedSet(problem.experts, updates, what)
    return seen


def update_of(experts: ExpertSet, k: int, group: Group) -> torch.Tensor:
    """The update of one expert alone. Shape: [L, m, n] float32."""
    if isinstance(experts, ViewedSet):
        return experts.deltas(group)[k]
    return experts.experts[k].delta(group.names)
