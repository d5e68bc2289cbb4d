"""Permutations of hidden units that bring the source base nearest to the target base.

Feed-forward units, attention heads and the units inside a head may be permuted without changing
what a network computes, so an update is only meaningful up to them. Heads are matched by the
singular values of their blocks, which no change inside a head alters; then units by inner products
of weights, with the Hungarian method. The residual stream is left as it is: between bases of one
lineage its coordinates mean the same.

Source: Rinaldi et al., Update Your Transformer to the Latest Release: Re-Basin of Task Vectors,
2025, arXiv 2505.22697, section 3. Inner products as matching cost: Ainsworth et al., Git Re-Basin,
2023, arXiv 2209.04836, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lamps.errors import ProblemError

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
Orders = dict[str, tuple[int, "Tensor"]]
"""Axis and order of units by tensor: the target's unit i is the source's unit order[i]."""

_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
_OUT, _UP, _DOWN = "attention.output.dense", "intermediate.dense", "output.dense"


def blocks_of(names: Mapping[str, object]) -> list[str]:
    """Prefixes of the blocks of an encoder that is laid out like BERT.

    Raises:
        ProblemError: There are none, so units cannot be told apart by name.
    """
    end = f"{_UP}.weight"
    found = [name.removesuffix(end) for name in names if name.endswith(end)]
    if not found or any(f"{p}{_QKV[0]}.weight" not in names for p in found):
        raise ProblemError(
            "permutations of units are known for encoders laid out like BERT only "
            f"(...{_QKV[0]}.weight, ...{end}); use another method"
        )
    return found


def orders(source: Tensors, target: Tensors, n_heads: int) -> Orders:
    """How units of the source are to be reordered to match those of the target.

    Args:
        source: Weights of the source base by canonical name.
        target: Weights of the target base.
        n_heads: Attention heads of a block.
    """
    found: Orders = {}
    for prefix in blocks_of(source):
        hidden = match(_units(source, prefix, _UP, _DOWN), _units(target, prefix, _UP, _DOWN))
        found |= _placed(prefix, _UP, _DOWN, hidden)
        query, value = _attention(source, target, prefix, n_heads)
        for module in _QKV[:2]:
            found |= _placed(prefix, module, None, query)
        found |= _placed(prefix, _QKV[2], _OUT, value)
    return found


def reordered(name: str, update: Tensor, found: Orders) -> Tensor:
    """An update in the target's order of units."""
    if name not in found:
        return update
    axis, order = found[name]
    return update.index_select(axis, order)


def match(source: Tensor, target: Tensor) -> Tensor:
    """The order of source rows whose sum of inner products with the target's rows is largest.

    Shape:
        source, target: [n, k];  returns [n] int64.
    """
    import torch
    from scipy.optimize import linear_sum_assignment

    gain = (target.double() @ source.double().T).numpy()
    return torch.from_numpy(linear_sum_assignment(gain, maximize=True)[1].astype(np.int64))


def _units(weights: Tensors, prefix: str, into: str, out: str | None) -> Tensor:
    """One row a unit: what it reads, its bias, what it writes. Shape: [n, k]."""
    import torch

    parts = [weights[f"{prefix}{into}.weight"]]
    if f"{prefix}{into}.bias" in weights:
        parts.append(weights[f"{prefix}{into}.bias"][:, None])
    if out is not None:
        parts.append(weights[f"{prefix}{out}.weight"].T)
    return torch.cat(parts, dim=1)


def _placed(prefix: str, into: str, out: str | None, order: Tensor) -> Orders:
    found: Orders = {
        f"{prefix}{into}.weight": (0, order),
        f"{prefix}{into}.bias": (0, order),
    }
    if out is not None:
        found[f"{prefix}{out}.weight"] = (1, order)
    return found


def _attention(
    source: Tensors, target: Tensors, prefix: str, n_heads: int
) -> tuple[Tensor, Tensor]:
    """Orders of the query-and-key units and of the value units."""
    import torch
    from scipy.optimize import linear_sum_assignment

    sides = []
    for weights in (source, target):
        joint = torch.cat([_units(weights, prefix, m, None) for m in _QKV[:2]], dim=1)
        value = _units(weights, prefix, _QKV[2], _OUT)
        sides.append((joint.chunk(n_heads), value.chunk(n_heads)))
    marks = [
        torch.stack([torch.cat([_spectrum(q), _spectrum(v)]) for q, v in zip(*side, strict=True)])
        for side in sides
    ]
    heads = linear_sum_assignment(torch.cdist(marks[1], marks[0]).numpy())[1]
    (query_o, value_o), (query_n, value_n) = sides
    size = len(query_o[0])
    chosen = [(int(h) * size, query_o[h], value_o[h]) for h in heads]
    units_q = [s + match(q, query_n[i]) for i, (s, q, _) in enumerate(chosen)]
    units_v = [s + match(v, value_n[i]) for i, (s, _, v) in enumerate(chosen)]
    return torch.cat(units_q), torch.cat(units_v)


def _spectrum(block: Tensor) -> Tensor:
    import torch

    found: Tensor = torch.linalg.svdvals(block.double())
    return found
