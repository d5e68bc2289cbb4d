"""What methods read off a problem's networks: Fishers, alignments, generic losses; all cached.

Texts are read in blocks that end where landmarks end, each block's sums are kept in the cache by
the content of what made them, and an estimate is the sum of its blocks. So a landmark pays for its
new texts only, numbers do not depend on the stops before, and Fishers and alignments of two bases
serve every task and every scale.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.method import cache_dir
from lamps.types import digest
from lamps_plugins._zoo._domains import teacher_vectors
from lamps_plugins._zoo._students import TEACHER
from lamps_plugins.task_update_transfer import _activations, _fisher, _generic, _networks
from lamps_plugins.task_update_transfer._networks import Rows
from lamps_plugins.text_classification import _features
from lamps_plugins.text_classification._models import CATALOGUE

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lamps_plugins.task_update_transfer._problem import TransferProblem

FORMAT = 1
"""Raised when a reading gets other numbers."""


def edges(n: int, fidelity: float, shares: Sequence[float]) -> list[tuple[int, int]]:
    """Where the blocks of the first ``fidelity`` of ``n`` texts start and end.

    Example:
        >>> edges(100, 0.5, (0.25, 0.5, 1.0))
        [(0, 25), (25, 50)]
    """
    ends = sorted({math.ceil(share * n) for share in shares if 0 < share <= fidelity})
    return [(a, b) for a, b in zip([0, *ends], ends, strict=False) if a < b]


class Readings:
    """The readings of one problem.

    Args:
        problem: Whose.
    """

    def __init__(self, problem: TransferProblem) -> None:
        self.problem = problem

    # --- Fishers -------------------------------------------------------------------------------

    def generic_fisher(
        self, which: str, names: Sequence[str], n: int, fidelity: float, batch: int
    ) -> tuple[dict[str, Tensor], int]:
        """Fisher of a base on the generic texts, and the number of texts read.

        Args:
            which: ``source`` or ``target``.
            names: Tensors that it is wanted for.
            n: Texts at full fidelity, at most all there are.
            fidelity: Share of them.
            batch: Texts whose gradients are summed before they are squared.
        """
        problem = self.problem
        texts = problem.texts.generic[:n]
        base = problem.lineage.source if which == "source" else problem.lineage.target
        known = [problem.generic, base.sha256, problem.limit, problem.reader]
        made: list[nn.Module] = []

        def make(start: int, end: int) -> dict[str, np.ndarray]:
            if not made:
                made.append(self._generic_net(which))
            net, part = made[0], texts[start:end]
            losses = self._losses(net, which, part, batch)
            parameters = _networks.encoder_parameters(net)
            return _fisher.squared_gradients({k: parameters[k] for k in names}, losses)

        return self._summed(known, texts, names, batch, len(texts), fidelity, make)

    def task_fisher(
        self, names: Sequence[str], n: int, fidelity: float, batch: int, *, sampled: bool
    ) -> tuple[dict[str, Tensor], int]:
        """Fisher of the fine-tuned source on its task, and the number of texts read."""
        problem = self.problem
        n = min(n, problem.texts.task.n_train)
        rows, targets = problem.rows("train", n), problem.targets("train")[:n]
        known = ["task", problem.lineage.tuned.sha256, problem.lineage.source.sha256, sampled]
        made: list[nn.Module] = []

        def make(start: int, end: int) -> dict[str, np.ndarray]:
            if not made:
                made.append(problem.classifier("tuned"))
            losses = _fisher.task_losses(
                made[0],
                rows[start:end],
                targets[start:end],
                problem.pad_id,
                batch,
                sampled=sampled,
            )
            parameters = _networks.encoder_parameters(made[0])
            return _fisher.squared_gradients({k: parameters[k] for k in names}, losses)

        texts = problem.texts.task.texts("train")[:n]
        return self._summed(
            [*known, targets.tolist(), problem.limit], texts, names, batch, n, fidelity, make
        )

    def _summed(
        self,
        known: Sequence[Any],
        texts: Sequence[str],
        names: Sequence[str],
        batch: int,
        n: int,
        fidelity: float,
        make: Callable[[int, int], dict[str, np.ndarray]],
    ) -> tuple[dict[str, Tensor], int]:
        parts, end = [], 0
        for start, end in edges(n, fidelity, self.problem.fidelities):
            key = digest([FORMAT, *known, list(texts[start:end]), list(names), batch])
            folder = cache_dir() / "transfer" / f"fisher-{key}"
            parts.append(_features.cached(folder, functools.partial(make, start, end)))
        return _fisher.added(parts), end

    # --- alignments ----------------------------------------------------------------------------

    def alignment(
        self, modules: Sequence[str], n: int, fidelity: float, *, grams: bool
    ) -> tuple[_activations.Sums, int]:
        """Sums over both bases' activations on unlabelled training texts of the task.

        Args:
            modules: Modules of the encoder.
            n: Texts at full fidelity.
            fidelity: Share of them.
            grams: Whether to collect Gram matrices too.

        Returns:
            See `_activations`, and the number of texts read.
        """
        problem = self.problem
        rows = problem.rows("train", min(n, problem.texts.task.n_train))
        texts = problem.texts.task.texts("train")[: len(rows)]
        bases = [problem.lineage.source.sha256, problem.lineage.target.sha256, problem.limit]
        nets: list[nn.Module] = []
        parts, end = [], 0
        for start, end in edges(len(rows), fidelity, problem.fidelities):

            def make(start: int = start, end: int = end) -> _activations.Sums:
                if not nets:
                    nets.extend([problem.classifier("source"), problem.classifier("target")])
                return _flat(
                    _activations.statistics(
                        nets[0], nets[1], modules, rows[start:end], problem.pad_id, grams=grams
                    )
                )

            key = digest([FORMAT, *bases, list(texts[start:end]), list(modules), grams])
            parts.append(_features.cached(cache_dir() / "transfer" / f"align-{key}", make))
        return _activations.added([_nested(part) for part in parts]), end

    # --- generic losses ------------------------------------------------------------------------

    def generic_loss(self, net: nn.Module) -> float:
        """Generic loss of a classifier on the target base's own texts; see `_generic`."""
        problem = self.problem
        texts, batch = problem.texts.domain, 32
        if problem.generic == "masked":
            whole = _generic.masked_net(problem.lineage.target)
            _copy_encoder(net, whole)
            return _generic.mean_loss(self._losses(whole, "target", texts, batch))
        if problem.generic == "teacher":
            losses = self._losses(net, "target", texts, batch)
            return _generic.mean_loss(losses) / _generic.CONCENTRATION
        found = _unit(_networks.features(net, problem.encode(texts), problem.pad_id))
        return float(1.0 - (found * self._own_features()).sum(axis=1).mean())

    def _own_features(self) -> np.ndarray:
        """Directions of the target base's features of the domain texts. Shape: [n, d]."""
        problem = self.problem
        known = [FORMAT, problem.lineage.target.sha256, problem.reader, problem.limit]
        key = digest([*known, list(problem.texts.domain)])

        def make() -> dict[str, np.ndarray]:
            rows = problem.encode(problem.texts.domain)
            net = problem.classifier("target")
            return {"own": _unit(_networks.features(net, rows, problem.pad_id))}

        return _features.cached(cache_dir() / "transfer" / f"own-{key}", make)["own"]

    def _generic_net(self, which: str) -> nn.Module:
        problem = self.problem
        if problem.generic != "masked":
            return problem.classifier(which)
        lineage = problem.lineage
        return _generic.masked_net(lineage.source if which == "source" else lineage.target)

    def _losses(
        self, net: nn.Module, which: str, texts: Sequence[str], batch: int
    ) -> _generic.Losses:
        problem = self.problem
        rows: Rows = problem.encode(texts)
        if problem.generic == "masked":
            tokenizer = _features.tokenizer_of(problem.tokenizer_info)
            given = _generic.mask_words(
                rows, mask_id=tokenizer.mask_token_id, n_words=len(tokenizer),
                special=frozenset(tokenizer.all_special_ids),
            )  # fmt: skip
            return _generic.masked_losses(net, given, problem.pad_id, batch)
        if problem.generic == "teacher":
            import torch

            base = problem.lineage.source if which == "source" else problem.lineage.target
            found = teacher_vectors(CATALOGUE.resolve(TEACHER), tuple(texts))
            return _generic.teacher_losses(
                net, rows, torch.from_numpy(np.array(found)), _generic.teacher_map(base.folder),
                problem.pad_id, batch,
            )  # fmt: skip
        return _generic.own_losses(net, rows, problem.pad_id, batch)


def _unit(found: np.ndarray) -> np.ndarray:
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True).clip(1e-12))


def _flat(sums: _activations.Sums) -> dict[str, np.ndarray]:
    """Names that are file names."""
    return {key.replace("/", "@"): value for key, value in sums.items()}


def _nested(sums: dict[str, np.ndarray]) -> _activations.Sums:
    return {key.replace("@", "/"): value for key, value in sums.items()}


def _copy_encoder(net: nn.Module, into: nn.Module) -> None:
    import torch

    given, own = _networks.encoder_parameters(net), _networks.encoder_parameters(into)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(given[name])
