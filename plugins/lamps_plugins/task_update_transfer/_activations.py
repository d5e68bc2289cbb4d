"""Statistics of two networks' activations on the same tokens, as running sums.

For every module with weights of its own, the products ``X_A^T X_B`` of what it receives and of
what it returns in the two networks, in float64, without keeping activations beyond one batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError
from lamps_plugins.task_update_transfer import _networks
from lamps_plugins.task_update_transfer._networks import Rows

if TYPE_CHECKING:
    from torch import Tensor, nn

SIDES = ("in", "out")
LEAST_TOKENS = 2

Sums = dict[str, np.ndarray]
"""``MODULE/in/cross`` [d_a, d_b], ``/mean_a``, ``/mean_b`` (sums over tokens), ``/square_a`` and
``/square_b`` (sums of squares [1]), with Gram matrices ``/gram_a`` and ``/gram_b``; the same for
``out``; ``tokens`` [1]."""


def statistics(
    source: nn.Module,
    target: nn.Module,
    modules: Sequence[str],
    rows: Rows,
    pad_id: int,
    *,
    grams: bool,
    batch: int = 32,
) -> Sums:
    """Sums over all tokens that are no padding.

    Args:
        source: Classifier of the source base; activations are those of its encoder.
        target: Classifier of the target base.
        modules: Names of modules inside the encoder.
        rows: Tokens of the texts.
        pad_id: The padding token.
        grams: Whether to collect Gram matrices too, which whitening needs.
        batch: Texts at once.

    Raises:
        ProblemError: There are fewer than two tokens, or an activation is not finite.
    """
    import torch

    sums: dict[str, Any] = {}
    tokens = 0
    with torch.inference_mode(), _recorded(source, modules) as a, _recorded(target, modules) as b:
        for _, ids, mask in _networks.batches(rows, batch, pad_id):
            source(input_ids=ids, attention_mask=mask)
            target(input_ids=ids, attention_mask=mask)
            real = mask.bool()
            tokens += int(real.sum())
            for key in a:
                _add(sums, key, _rows_of(a[key], real), _rows_of(b[key], real), grams)
    if tokens < LEAST_TOKENS:
        raise ProblemError(
            f"{tokens} tokens to align by, expected at least {LEAST_TOKENS}; give more texts"
        )
    found = {key: np.atleast_1d(value.cpu().numpy()) for key, value in sums.items()}
    for key, value in found.items():
        if not np.isfinite(value).all():
            raise ProblemError(f"activations are not finite in {key!r}; check the weights")
    return found | {"tokens": np.array([float(tokens)])}


def added(parts: Sequence[Sums]) -> Sums:
    """Sums over several blocks of texts."""
    return {key: np.sum([part[key] for part in parts], axis=0) for key in parts[0]}


@contextlib.contextmanager
def _recorded(net: Any, modules: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """What each module received and returned in the last call, by ``MODULE/SIDE``."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_: Any, given: tuple[Tensor, ...], output: Tensor) -> None:
            if given[0].is_floating_point():
                seen[f"{name}/in"] = given[0]
            seen[f"{name}/out"] = output

        return hook

    encoder = net.base_model
    hooks = [encoder.get_submodule(name).register_forward_hook(keep(name)) for name in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _rows_of(value: Tensor, real: Tensor) -> Tensor:
    """Real tokens as rows, float64. Shape: [n, d]."""
    if value.shape[:-1] != real.shape:
        value = value.expand(*real.shape, value.shape[-1])  # positions are looked up once for all
    return value[real].double()


def _add(sums: dict[str, Any], key: str, a: Tensor, b: Tensor, grams: bool) -> None:
    new = {
        "cross": a.T @ b, "mean_a": a.sum(0), "mean_b": b.sum(0),
        "square_a": a.square().sum(), "square_b": b.square().sum(),
    }  # fmt: skip
    if grams:
        new |= {"gram_a": a.T @ a, "gram_b": b.T @ b}
    for name, value in new.items():
        place = f"{key}/{name}"
        sums[place] = sums[place] + value if place in sums else value
