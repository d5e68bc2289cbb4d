"""Results that many candidates need and only the first one computes, kept on disk by content.

A sweep over the factor of a rule costs one decomposition: what the rule gives at factor 1 is
stored under the hash of the experts and of every other setting, and multiplied when it is used.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.method import cache_dir
from lamps.space import as_json
from lamps.types import Json, digest
from lamps_plugins.model_merging._experts import LoraExpert
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import Merger
from lamps_plugins.text_classification._features import cached

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._problem import MergeProblem
    from lamps_plugins.model_merging._rules.lowrank import LowRank

FORMAT = 1
"""Raised when a rule gives other numbers for the same settings; all results are then made anew."""

P = TypeVar("P")


def shared(
    problem: MergeProblem,
    what: str,
    settings: Sequence[Json],
    make: Callable[[], dict[str, torch.Tensor]],
) -> dict[str, torch.Tensor]:
    """Tensors that depend on the experts' weights and these settings alone.

    Args:
        problem: Whose experts.
        what: A word for the folder's name; part of the key.
        settings: Everything else that the tensors depend on; JSON.
        make: Computes them; called once for all processes that share the cache.

    Returns:
        Copies that the caller may write to.
    """
    key = digest([FORMAT, what, problem.experts.key, *settings])

    def arrays() -> dict[str, np.ndarray]:
        return {name: value.detach().cpu().numpy() for name, value in make().items()}

    return tensors_of(cached(cache_dir() / "merging" / f"{what}-{key}", arrays))


def tensors_of(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Copies of cached arrays as tensors."""
    import torch

    return {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}


def factors(problem: MergeProblem, group: Group) -> LowRank | None:
    """Low-rank factors of a group; None where some expert has none, so dense updates it is."""
    if problem.experts.kind != "lora":
        return None
    for expert in problem.experts.experts:
        assert isinstance(expert, LoraExpert)
        if any(name in expert.tensors and name not in expert.adapted for name in group.names):
            return None
    return problem.low_rank(group)


class ScaledMerger(Merger[P]):
    """A deterministic rule times the param ``scale``; the rule's own result is shared.

    A subclass gives `unit`. Vectors take ``scale`` times their mean update.
    """

    @abstractmethod
    def unit(self, problem: MergeProblem, group: Group) -> torch.Tensor:
        """What the rule makes of a group at factor 1. Shape: [L, m, n] float32."""

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> torch.Tensor:
        """``scale`` times `unit`."""
        settings = {k: v for k, v in as_json(self.params).items() if k != "scale"}

        def make() -> dict[str, torch.Tensor]:
            return {"update": self.unit(problem, group)}

        found = shared(problem, self.name(), [settings, list(group.names)], make)
        return self.scale * found["update"]

    @property
    def scale(self) -> float:
        """The factor."""
        return float(str(as_json(self.params)["scale"]))

    def vector_scale(self, problem: MergeProblem) -> float:
        """The factor on vectors too."""
        return self.scale
