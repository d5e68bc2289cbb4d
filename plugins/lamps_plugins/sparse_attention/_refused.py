"""What the family must refuse: settings of problems, and tensors that cannot be attended to."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lamps_plugins.sparse_attention._attend import attention

Open = Callable[[str | None, Mapping[str, Any]], Any]


def bad_inputs(open_problem: Open) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise, and what the message must name."""
    yield "unknown_builtin", partial(open_problem, "topcis", {}), "topics"
    yield "nothing_named", partial(open_problem, None, {}), "--decoder"
    yield "meaningless_option", partial(open_problem, "toy", {"length": 256}), "length"
    yield "short", partial(open_problem, "topics", {"length": 64}), "--length is 64"
    yield "ragged_length", partial(open_problem, "topics", {"length": 1001}), "multiple of 8"
    yield "no_sequences", partial(open_problem, "topics", {"sequences": 0}), "--sequences is 0"
    yield "negative_seed", partial(open_problem, "topics", {"data_seed": -1}), "--data-seed"
    yield "no_model", partial(_own, open_problem, None, "text"), "config.json"
    yield "pickle", partial(_own, open_problem, "pytorch_model.bin", "text"), "pytorch_model.bin"
    yield "no_text", partial(_own, open_problem, "model.safetensors", None), "cannot be read"
    yield "no_export", _no_export, "no exported attention"
    yield "tau", partial(_params, {"tau": 1.5}), "tau=1.5"
    yield "group", partial(_params, {"group_q": 7}), "group_q=7"
    yield "block", partial(_params, {"block": 100}), "block=100"
    for name, change, culprit in _TENSORS:
        yield name, partial(_attend, change), culprit


def _own(open_problem: Open, weights: str | None, text: str | None) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if weights:
            (root / "config.json").write_text(json.dumps({"model_type": "llama"}))
            (root / weights).write_bytes(b"")
        if text:
            (root / "text.txt").write_text(text, encoding="utf-8")
        return open_problem(None, {"decoder": folder, "text_file": str(root / "text.txt")})


def _no_export() -> Any:
    from lamps_plugins.sparse_attention import load

    with tempfile.TemporaryDirectory() as folder:
        return load(folder)


def _params(values: Mapping[str, Any]) -> Any:
    from lamps_plugins.sparse_attention.unisparse import UniSparse

    return UniSparse.from_params(values)


def _attend(change: Callable[[dict[str, Any]], object]) -> Any:
    """Attention of 2 heads of 64 tokens after something was changed."""
    import torch

    from lamps_plugins.sparse_attention.unisparse import UniSparse

    tensors: dict[str, Any] = {name: torch.zeros(1, 2, 64, 8) for name in "qkv"}
    change(tensors)
    return attention(UniSparse.from_params({}), **tensors)


def _set(name: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any]], object]:
    return lambda tensors: tensors.update({name: make(tensors[name])})


_TENSORS: tuple[tuple[str, Callable[[dict[str, Any]], object], str], ...] = (
    ("heads", _set("q", lambda x: x.repeat(1, 2, 1, 1)[:, :3]), "3 heads"),
    ("future", _set("q", lambda x: x.repeat(1, 1, 2, 1)), "Q has 128 tokens"),
    ("width", _set("q", lambda x: x.repeat(1, 1, 1, 64)), "width 512"),
    (
        "nan",
        _set("k", lambda x: x.index_fill(2, x.new_tensor([3]).long(), float("nan"))),
        "K holds",
    ),
    ("infinite", _set("q", lambda x: x + float("inf")), "Q holds"),
    ("empty", _set("q", lambda x: x[:, :, :0]), "empty sequence"),
    ("dtype", _set("v", lambda x: x.half()), "V is torch.float16"),
    ("double", lambda t: t.update({k: x.double() for k, x in t.items()}), "Q is torch.float64"),
    ("device", _set("v", lambda x: x.to("meta")), "V is torch.float32 on meta"),
    ("strides", _set("k", lambda x: x.mT.contiguous().mT), "K has strides"),
    ("gradient", _set("q", lambda x: x.requires_grad_()), "Q wants a gradient"),
    ("axes", _set("q", lambda x: x[0]), "Q has shape [2, 64, 8]"),
    ("values", _set("v", lambda x: x[:, :, 1:]), "V as K"),
)
