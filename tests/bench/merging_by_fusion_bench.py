"""The same dense merges by fusion-bench, as calls for `bench_merging`: models in, a model out.

fusion-bench merges whole modules, so the updates are put into plain linear layers once, outside of
what is timed, and so is the copy of the modules that each run consumes.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

ALGORITHMS = {
    "task-arithmetic": ("task_arithmetic.task_arithmetic", "TaskArithmeticAlgorithm", {}),
    "ties": (
        "ties_merging.ties_merging",
        "TiesMergingAlgorithm",
        {"threshold": 20, "remove_keys": [], "merge_func": "sum"},
    ),
    "tsv-m": ("task_singular_vector.TSVM", "TaskSingularVectorMerging", {}),
    "iso-c": ("isotropic_merging.iso", "IsotropicMergingInCommonSubspace", {}),
    "iso-cts": (
        "isotropic_merging.iso",
        "IsotropicMergingInCommonAndTaskSubspace",
        {"common_space_fraction": 0.8},
    ),
}
"""Ours, by the name of its row, and theirs: module, class, parameters."""


def network(layers: Sequence[Tensor]) -> nn.ModuleList:
    """Linear layers with these weights."""
    made = nn.ModuleList()
    for weight in layers:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        with torch.no_grad():
            layer.weight.copy_(weight)
        made.append(layer)
    return made


def pool_of(updates: Sequence[Tensor]) -> dict[str, nn.Module]:
    """Base and experts whose updates these are.

    Args:
        updates: Per group of layers, ``[K, L, m, n]``.
    """
    base = [torch.randn_like(u[0, j]) * 0.02 for u in updates for j in range(u.shape[1])]
    n_experts = updates[0].shape[0]
    pool: dict[str, nn.Module] = {"_pretrained_": network(base)}
    for k in range(n_experts):
        deltas = [u[k, j] for u in updates for j in range(u.shape[1])]
        pool[f"expert_{k}"] = network([b + d for b, d in zip(base, deltas, strict=True)])
    return pool


def calls(updates: Sequence[Tensor]) -> dict[str, Callable[[], float]]:
    """One call per algorithm, by the name of our row; each gives the milliseconds of the merge."""
    from fusion_bench.modelpool import BaseModelPool

    pool = pool_of(updates)
    found: dict[str, Callable[[], float]] = {}
    for row, (module, name, more) in ALGORITHMS.items():
        algorithm = getattr(importlib.import_module(f"fusion_bench.method.{module}"), name)
        scale = {"alpha": 0.9} if row == "tsv-m" else {"scaling_factor": 0.3}

        def merge(algorithm: Any = algorithm, arguments: dict[str, Any] = scale | more) -> float:
            models = BaseModelPool(copy.deepcopy(pool))
            start = perf_counter()
            algorithm(**arguments).run(models)
            return (perf_counter() - start) * 1000

        found[row] = merge
    return found


def times(updates: Sequence[Tensor], repeats: int) -> dict[str, list[float]]:
    """Milliseconds per algorithm and repetition, after one that warms up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            row: [call() for _ in range(repeats + 1)][1:] for row, call in calls(updates).items()
        }
