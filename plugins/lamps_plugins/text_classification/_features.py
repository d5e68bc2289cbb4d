"""What many candidates need and only the first one computes: tokens and frozen features, on disk.

Both are cached in blocks that end where landmarks end, so that an early landmark pays for its own
examples only, and a later one for the new ones only. An entry is a folder of ``.npy`` files that
appears by a rename, made under a file lock: of several workers that want it, one computes and the
others wait. Arrays come back memory-mapped and read-only.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from lamps.method import ModelInfo, cache_dir
from lamps.types import Split, digest
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._models import hash_files

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.text_classification._problem import TextProblem

FORMAT = 1
"""Raised when tokens or features of the same key would get other numbers."""

Arrays = dict[str, np.ndarray]


def cached(folder: Path, make: Callable[[], Arrays]) -> Arrays:
    """The arrays of a cache entry, made by the first process that asks.

    Args:
        folder: Where the entry lies; its name is the key.
        make: Computes the arrays; called at most once for all processes that share the cache.
    """
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
                try:
                    for name, array in make().items():
                        np.save(work / f"{name}.npy", array, allow_pickle=False)
                    work.chmod(0o755)
                    os.replace(work, folder)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
    return {
        f.stem: np.load(f, mmap_mode="r", allow_pickle=False) for f in sorted(folder.glob("*.npy"))
    }


@functools.lru_cache(maxsize=4)
def _tokenizer(path: str, stamp: int, info: ModelInfo) -> Any:
    return _nets.load_tokenizer(info)


def tokenizer_of(info: ModelInfo) -> Any:
    """The tokenizer of a model, kept for the next caller in this process; not to be changed."""
    path = Path(str(info.path))
    return _tokenizer(str(path), path.stat().st_mtime_ns, info)


def token_limit(info: ModelInfo, max_length: int) -> int:
    """Tokens after which a text is cut: the problem's bound, or the model's if smaller."""
    config = _nets.read_json(Path(str(info.path)) / "config.json")
    positions = int(config.get("max_position_embeddings") or max_length)
    # RoBERTa and its kin number positions from the padding token on.
    offset = (
        int(config.get("pad_token_id") or 0) + 1
        if "roberta" in str(config.get("model_type"))
        else 0
    )
    return max(4, min(max_length, positions - offset))


def encode(tokenizer: Any, texts: Sequence[str], limit: int) -> list[np.ndarray]:
    """Token ids of texts with special tokens, cut to ``limit``. Shape: n times [length] int32."""
    if not len(texts):
        return []
    found = tokenizer(
        list(texts), truncation=True, max_length=limit, padding=False,
        return_attention_mask=False, return_token_type_ids=False,
    )  # fmt: skip
    return [np.asarray(ids, dtype=np.int32) for ids in found["input_ids"]]


def blocks(problem: TextProblem, split: Split, n: int) -> list[tuple[int, int]]:
    """Where the cached blocks of the first ``n`` texts of a split start and end."""
    if split != "train":
        return [(0, n)]
    ends = sorted({problem.prefix(f) for f in problem.fidelities if f > 0} | {n})
    starts = [0, *ends]
    return [(a, b) for a, b in zip(starts, ends, strict=False) if a < b <= n]


def size_of(problem: TextProblem, split: Split) -> int:
    """Number of texts of a split."""
    return problem.n_train if split == "train" else len(problem.texts(split))


def tokens(
    problem: TextProblem, info: ModelInfo, split: Split, n: int | None = None
) -> list[np.ndarray]:
    """Token ids of the first ``n`` texts of a split; all of them if None.

    Shape:
        Returns n times [length] int32, read-only.
    """
    n = size_of(problem, split) if n is None else n
    limit = token_limit(info, problem.max_length)
    root = cache_dir() / "tokens"
    known = [FORMAT, _tokenizer_hash(info), info.kind, limit, problem.data_hash(split)]
    rows: list[np.ndarray] = []
    for start, end in blocks(problem, split, n):

        def make(start: int = start, end: int = end) -> Arrays:
            found = encode(tokenizer_of(info), problem.texts(split)[start:end], limit)
            ends = np.cumsum([0, *(len(r) for r in found)], dtype=np.int64)
            ids = np.concatenate(found) if found else np.empty(0, np.int32)
            return {"ids": ids, "ends": ends}

        entry = cached(root / digest([*known, start, end]), make)
        ids, ends = entry["ids"], entry["ends"]
        rows += [ids[a:b] for a, b in itertools.pairwise(ends.tolist())]
    return rows


def _tokenizer_hash(info: ModelInfo) -> str:
    folder = Path(str(info.path))
    names = (
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
        "tokenizer.model",
        "spiece.model",
    )
    return hash_files([folder / n for n in names if (folder / n).is_file()])


def features(
    problem: TextProblem, info: ModelInfo, split: Split, *, n_layers: int = 0, n: int | None = None
) -> Arrays:
    """What the frozen network says about the first ``n`` texts of a split.

    Returns:
        ``mean``, hidden states of the last layer averaged over a text's tokens; ``token``, that of
        its first token (encoder) or last (decoder); ``head``, what the last layer of the untouched
        classifier receives. Shape: [n, width] float32 each.
    """
    n = size_of(problem, split) if n is None else n
    limit = token_limit(info, problem.max_length)
    kept = _nets.depth(info, n_layers)
    made_by = [FORMAT, info.kind, info.sha256, _tokenizer_hash(info), _nets.GAIN, _nets.INIT_SEED]
    known = [*made_by, kept, limit, problem.data_hash(split)]
    net: list[nn.Module] = []  # loaded for the first block that is not cached
    parts: list[Arrays] = []
    for start, end in blocks(problem, split, n):

        def make(start: int = start, end: int = end) -> Arrays:
            pad = tokenizer_of(info).pad_token_id
            if not net:
                head = _nets.HeadSpec(names=("0", "1"), multi_label=False, max_length=limit)
                net.append(_nets.load_classifier(info, head, n_layers, pad_id=pad))
            return frozen(
                net[0], tokens(problem, info, split, end)[start:], pad, last=info.kind == "decoder"
            )

        key = digest([*known, start, end])
        parts.append(cached(cache_dir() / "features" / key, make))
    return {name: np.concatenate([p[name] for p in parts]) for name in ("mean", "token", "head")}


def frozen(
    net: nn.Module, rows: Sequence[np.ndarray], pad_id: int, *, last: bool, batch: int = 32
) -> Arrays:
    """Features of tokenised texts from a classifier, by one forward pass each; see `features`."""
    import torch

    seen: dict[str, torch.Tensor] = {}

    def keep_hidden(_: nn.Module, __: Any, output: Any) -> None:
        seen["hidden"] = output[0]

    def keep_input(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        seen["head"] = inputs[0]

    base: Any = net.base_model
    hooks = [
        base.register_forward_hook(keep_hidden),
        _nets.last_layer(net).register_forward_pre_hook(keep_input),
    ]
    result: Arrays = {}
    try:
        with torch.inference_mode():
            for chosen in _nets.by_length(rows, batch):
                ids, mask = _nets.pad_batch([rows[i] for i in chosen], pad_id)
                net(input_ids=ids, attention_mask=mask)
                for name, value in pooled(
                    seen["hidden"], mask, last=last, head=seen["head"]
                ).items():
                    if name not in result:
                        result[name] = np.empty((len(rows), value.shape[1]), dtype=np.float32)
                    result[name][chosen] = value.float().cpu().numpy()
    finally:
        for hook in hooks:
            hook.remove()
    return result


def pooled(
    hidden: torch.Tensor, mask: torch.Tensor, *, last: bool, head: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """One vector a text from the vectors of its tokens.

    Shape:
        hidden: [b, length, width];  mask: [b, length] int64, 1 for real tokens, which come first.
    """
    import torch

    rows = torch.arange(len(hidden), device=hidden.device)
    at = (mask.sum(1) - 1).clamp_min(0) if last else torch.zeros_like(rows)
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    result = {
        "mean": (hidden * weight).sum(1) / weight.sum(1).clamp_min(1),
        "token": hidden[rows, at],
    }
    if head is not None:
        result["head"] = head[rows, at] if head.ndim == 3 else head
    return result


def embedder(
    net: nn.Module, tokenizer: Any, *, limit: int, last: bool, pooling: str, batch: int = 32
) -> Callable[[Sequence[str]], np.ndarray]:
    """The function from texts to a vector each, ``[n, width] float32``, by a headless network."""
    import torch

    def embed(texts: Sequence[str]) -> np.ndarray:
        rows = encode(tokenizer, texts, limit)
        config: Any = net.config
        result = np.empty((len(rows), int(config.hidden_size)), dtype=np.float32)
        with torch.inference_mode():
            for chosen in _nets.by_length(rows, batch):
                ids, mask = _nets.pad_batch([rows[i] for i in chosen], tokenizer.pad_token_id)
                hidden = net(input_ids=ids, attention_mask=mask)[0]
                result[chosen] = pooled(hidden, mask, last=last)[pooling].float().cpu().numpy()
        return result

    return embed
