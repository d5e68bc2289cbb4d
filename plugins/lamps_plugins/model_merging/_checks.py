"""What must be true before experts are merged; every refusal is one line that names the culprit.

`check_headers` looks at configs, vocabularies, names, shapes and types and reads no weight.
`check_weights` reads each weight once: finite, moved, and not too far from the base to stem from
it. Its verdict is remembered in the cache by the content of the files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError
from lamps_plugins.model_merging._checkpoints import Checkpoint, vocabulary_hash
from lamps_plugins.model_merging._experts import AdapterExpert, Expert
from lamps_plugins.model_merging._layers import Group, is_embedding

if TYPE_CHECKING:
    import torch

FARTHEST = 1.0
"""Norm of all updates over that of the base's weights above which an expert is no descendant.

Two unrelated networks lie at about 1.4; fine-tuning moves by a few hundredths, at most a third."""

_FREE = {
    "id2label", "label2id", "num_labels", "problem_type", "architectures", "dtype", "torch_dtype",
    "transformers_version", "_name_or_path", "name_or_path", "pad_token_id", "bos_token_id",
    "eos_token_id", "sep_token_id", "cls_token_id", "use_cache", "finetuning_task",
    "gradient_checkpointing", "tie_word_embeddings", "output_attentions", "output_hidden_states",
    "return_dict", "is_encoder_decoder", "_attn_implementation", "chunk_size_feed_forward",
}  # fmt: skip
"""Keys of a config that may differ between base and expert."""


def check_headers(base: Checkpoint, experts: Sequence[Expert]) -> None:
    """Refuse experts that do not fit the base or each other, without reading a weight.

    Raises:
        ProblemError: See the module docstring.
    """
    if len(experts) < 2:
        raise ProblemError(f"{len(experts)} expert given, expected at least 2 to merge")
    twice = [name for name, n in Counter(e.name for e in experts).items() if n > 1]
    if twice:
        raise ProblemError(f"two experts are named {twice[0]!r}; give each task its own name")
    places: dict[Path, str] = {}
    for expert in experts:
        other = places.setdefault(expert.folder.resolve(), expert.name)
        if other != expert.name:
            raise ProblemError(
                f"experts {other!r} and {expert.name!r} are the same folder {expert.folder}"
            )
    words = vocabulary_hash(base.folder)
    for expert in experts:
        _check_config(base, expert)
        own = vocabulary_hash(expert.folder)
        words = words or own
        if own and own != words:
            raise ProblemError(
                f"expert {expert.name!r} has another vocabulary than the base; all experts must "
                "share one tokenizer"
            )
        _check_adapter(expert) if isinstance(expert, AdapterExpert) else _check_whole(base, expert)
        _check_head(expert)


def _check_config(base: Checkpoint, expert: Expert) -> None:
    for key in ("model_type", "vocab_size", "hidden_size", "num_hidden_layers"):
        _same(base.config, expert, key)
    for key in sorted(base.config):
        if key not in _FREE and "dropout" not in key:
            _same(base.config, expert, key)


def _same(config: Mapping[str, Any], expert: Expert, key: str) -> None:
    ours, theirs = config.get(key), expert.config.get(key)
    if ours != theirs:
        raise ProblemError(
            f"expert {expert.name!r} has {key}={theirs!r}, the base has {ours!r}; all experts "
            "need the base's architecture"
        )


def _check_whole(base: Checkpoint, expert: Expert) -> None:
    odd = sorted(set(base.encoder) ^ set(expert.tensors))
    if odd:
        where = "base" if odd[0] in base.encoder else f"expert {expert.name!r}"
        raise ProblemError(
            f"{odd[0]!r} is only in the {where}; base and experts need the same tensors"
        )
    for name, info in base.encoder.items():
        found = expert.tensors[name]
        if found.shape != info.shape:
            raise ProblemError(
                f"expert {expert.name!r} has shape {list(found.shape)} for {name!r}, base has "
                f"{list(info.shape)}; all experts need the base's shapes"
            )
        if found.dtype != info.dtype:
            raise ProblemError(
                f"expert {expert.name!r} has type {found.dtype} for {name!r}, base has "
                f"{info.dtype}; save all in one type"
            )


def _check_adapter(expert: AdapterExpert) -> None:
    parts = {f"{module}.{part}" for module in expert.adapted.values() for part in expert.parts}
    for name in expert.adapted:
        if name not in expert.base.encoder:
            raise ProblemError(
                f"expert {expert.name!r} adapts {name!r}, which the base does not have"
            )
        if is_embedding(name, expert.base.encoder[name]):
            raise ProblemError(
                f"expert {expert.name!r} adapts the embedding {name!r}; embeddings are not merged"
            )
    for name in sorted(set(expert.tensors) - parts):
        if name not in expert.base.encoder:
            raise ProblemError(
                f"expert {expert.name!r} holds {name!r}, which belongs to no layer of the base"
            )
    for name in sorted(parts - set(expert.tensors)):
        raise ProblemError(f"expert {expert.name!r} lacks {name!r}; its adapter is incomplete")
    for name, module in expert.adapted.items():
        shapes = [expert.tensors[f"{module}.{part}"].shape for part in expert.parts]
        if not _fits(expert, shapes, expert.base.encoder[name].shape):
            raise ProblemError(
                f"expert {expert.name!r} has adapter shapes {[list(s) for s in shapes]} for "
                f"{name!r} of shape {list(expert.base.encoder[name].shape)}; they do not fit"
            )


def _fits(expert: AdapterExpert, shapes: list[tuple[int, ...]], base: tuple[int, ...]) -> bool:
    out, inner = base
    if expert.kind == "lora":
        (r, n), (m, k) = shapes
        wanted = (inner, out) if expert.adapter.get("fan_in_fan_out") else (out, inner)
        return r == k and (m, n) == wanted
    rows, entries = shapes[0]
    b = math.isqrt(8 * entries + 1) // 2 + 1
    return b * (b - 1) // 2 == entries and inner % b == 0 and rows in (1, inner // b)


def _check_head(expert: Expert) -> None:
    n = len(expert.labels)
    own = [info for key, info in expert.head_infos.items() if ".pooler." not in key]
    if not own:
        raise ProblemError(
            f"expert {expert.name!r} holds no classification head; save it with the adapter "
            "(modules_to_save) or as a model for sequence classification"
        )
    if not any(info.shape[:1] == (n,) for info in own):
        raise ProblemError(
            f"expert {expert.name!r} names {n} labels, but its head has shapes "
            f"{[list(info.shape) for info in own]}; expected {n} rows"
        )


def check_weights(base: Checkpoint, experts: Sequence[Expert], groups: Sequence[Group]) -> None:
    """Refuse experts whose weights are not finite, equal, or no descendants of the base.

    Raises:
        ProblemError: See the module docstring.
    """
    import torch

    moved = torch.zeros(len(experts), dtype=torch.float64)
    own = torch.zeros((), dtype=torch.float64)
    twins = {(i, j): True for j in range(len(experts)) for i in range(j)}
    for group in groups:
        reference = base.stack(group.names)
        _require_finite("the base", group, reference)
        own += torch.linalg.vector_norm(reference, dtype=torch.float64) ** 2
        deltas = [expert.delta(group.names) for expert in experts]
        for i, (expert, delta) in enumerate(zip(experts, deltas, strict=True)):
            _require_finite(f"expert {expert.name!r}", group, delta)
            moved[i] += torch.linalg.vector_norm(delta, dtype=torch.float64) ** 2
        for i, j in [pair for pair, equal in twins.items() if equal]:
            twins[i, j] = torch.equal(deltas[i], deltas[j])
    for i, expert in enumerate(experts):
        ratio = float((moved[i] / own).sqrt())
        if ratio == 0.0:
            raise ProblemError(f"expert {expert.name!r} is the base itself; nothing was moved")
        if ratio > FARTHEST:
            raise ProblemError(
                f"expert {expert.name!r} lies {ratio:.2f} times the base's norm away from it, "
                f"expected less than {FARTHEST:g}; it was not fine-tuned from this base"
            )
    for (i, j), equal in twins.items():
        if equal:
            raise ProblemError(
                f"experts {experts[i].name!r} and {experts[j].name!r} hold the same weights; "
                "leave one of them out"
            )
    for expert in experts:
        for name, tensor in expert.head().items():
            if not bool(torch.isfinite(tensor).all()):
                raise ProblemError(f"expert {expert.name!r} is not finite in its head {name!r}")


def _require_finite(who: str, group: Group, values: torch.Tensor) -> None:
    import torch

    if bool(torch.isfinite(values).all()):
        return
    for name, layer in zip(group.names, values, strict=True):
        if not bool(torch.isfinite(layer).all()):
            raise ProblemError(f"{who} is not finite in {name!r}; it cannot be merged")
