"""Rules as attentions of transformers, so that any loaded decoder runs its prefill through one.

``register(rule)`` gives a name for ``attn_implementation``. Every layer then attends by the rule
wherever it has more queries than a block has tokens. Steps of decoding, and other calls with
fewer queries, run dense by the library's own attention: they read the cache once, so there is
little to save. A mask beyond plain causality (padding, sliding windows) is refused in prefill and
honoured in dense steps.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError
from lamps.types import Json, digest
from lamps_plugins.sparse_attention._attend import Attention, attention, check, dense
from lamps_plugins.sparse_attention._items import Heads

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.sparse_attention._rule import Rule

__all__ = ["recorded", "recording", "register"]

RECORDER = "lamps-recorder"
"""Dense attention that keeps what it was given; see `recording`."""

_calls: contextvars.ContextVar[list[Attention] | None] = contextvars.ContextVar(
    "calls", default=None
)
_heads: contextvars.ContextVar[dict[int, Heads] | None] = contextvars.ContextVar(
    "heads", default=None
)


def register(rule: Rule[Any]) -> str:
    """Make a rule an attention of transformers.

    Args:
        rule: What it selects must not change any more.

    Returns:
        Its name: the same for equal rules.
    """
    card: dict[str, Json] = rule.card()
    name = f"lamps-sparse-{rule.name()}-{digest([card['params'], card['seed']], length=8)}"

    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        if query.shape[2] <= rule.block:
            return _few(query, key, value, attention_mask, scaling), None
        _refuse(name, module, attention_mask, dropout, is_causal, kwargs)
        layer = int(getattr(module, "layer_idx", 0) or 0)
        check(query, key, value)
        found = attention(rule, query, key, value, scale=scaling, layer=layer, checked=True)
        if (calls := _calls.get()) is not None:
            calls.append(found._replace(out=found.out[:0], lse=None))  # numbers alone
        return found.out.transpose(1, 2).contiguous(), None

    _register(name, attend)
    return name


@contextlib.contextmanager
def recorded() -> Iterator[list[Attention]]:
    """What rules did in the layers of models that run meanwhile, without their outputs."""
    calls: list[Attention] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


@contextlib.contextmanager
def recording(*layers: int) -> Iterator[dict[int, Heads]]:
    """Queries, keys and values of some layers of a model that runs with `RECORDER` meanwhile."""

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        scaling: float | None = None, **kwargs: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        found = _heads.get()
        if found is not None and module.layer_idx in layers:
            q = query if scaling is None else query * (scaling * query.shape[3] ** 0.5)
            found[module.layer_idx] = Heads(
                module.layer_idx, *(x.contiguous() for x in (q, key, value))
            )
        return dense(query, key, value, scaling).transpose(1, 2).contiguous(), None

    _register(RECORDER, attend)
    kept: dict[int, Heads] = {}
    token = _heads.set(kept)
    try:
        yield kept
    finally:
        _heads.reset(token)


def _register(name: str, attend: Any) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, _mask)


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """No mask where queries are the last of the keys and see all before them."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    plain = mask_function is None or mask_function is causal_mask_function
    padded = attention_mask is not None and not bool(attention_mask.all())
    if plain and not padded and kv_offset == 0 and int(q_offset) + q_length == kv_length:
        return None
    found: Tensor | None = sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function or causal_mask_function,
        attention_mask=attention_mask, **kwargs,
    )  # fmt: skip
    return found


def _few(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Dense attention of a few queries, under whatever mask there is. [B, Lq, H, D]."""
    import torch

    if mask is None:
        return dense(q, k, v, scale).transpose(1, 2).contiguous()
    found: Tensor = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scale, enable_gqa=q.shape[1] > k.shape[1]
    )
    return found.transpose(1, 2).contiguous()


def _refuse(
    name: str, module: Any, mask: Tensor | None, dropout: float, is_causal: bool | None,
    kwargs: dict[str, Any],
) -> None:  # fmt: skip
    if mask is not None:
        raise ProblemError(
            f"{name} got a mask of shape {list(mask.shape)}; sparse prefill knows plain causality "
            "alone, so run sequences one by one without padding, and models without windows"
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if not causal:
        raise ProblemError(f"{name} is for decoders; this layer is not causal")
    if dropout:
        raise ProblemError(f"{name} has no dropout, got {dropout}; call model.eval()")
    for option in ("softcap", "position_bias", "s_aux"):
        if kwargs.get(option) is not None:
            raise ProblemError(f"{name} knows no {option}; use a model without it")
