"""Checkpoints on disk, opened lazily: names, shapes and types at once, weights one at a time.

Names are *canonical*: those of the encoder without the prefix that classes with a head put before
them (``bert.encoder.layer.0...`` is ``encoder.layer.0...``), so a headless base and an expert with
a head speak of the same tensors. A file is open only while something is read from it, so that the
resident memory of a merge is what it works on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError
from lamps.types import canonical_json
from lamps_plugins.text_classification._models import hash_files, weight_files
from lamps_plugins.text_classification._nets import quiet

if TYPE_CHECKING:
    import torch

FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of tensors that can be merged; others are look-up tables or quantized weights."""

_TABLES = ("I64", "I32", "BOOL")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and what it looks like.

    Args:
        file: The safetensors file.
        key: Its name there.
        shape: Its shape.
        dtype: Its type in the words of safetensors, such as ``F32``.
    """

    file: Path
    key: str
    shape: tuple[int, ...]
    dtype: str


def read_tensors(folder: Path, files: list[Path]) -> dict[str, TensorInfo]:
    """The tensors of safetensors files by key, from the headers alone.

    Raises:
        ProblemError: A file is damaged, or a tensor is quantized.
    """
    from safetensors import SafetensorError, safe_open

    found: dict[str, TensorInfo] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                for key in opened.keys():  # noqa: SIM118
                    part = opened.get_slice(key)
                    shape, dtype = tuple(part.get_shape()), str(part.get_dtype())
                    found[key] = TensorInfo(file, key, shape, dtype)
        except (SafetensorError, OSError) as error:
            raise ProblemError(f"{file} is no safetensors file: {error}") from error
    for key, info in found.items():
        if info.dtype not in FLOATS + _TABLES:
            raise ProblemError(
                f"{folder}: {key!r} has type {info.dtype}, expected float weights; load the model "
                "without quantization and save it again"
            )
    return {key: info for key, info in found.items() if info.dtype in FLOATS}


def load_tensor(info: TensorInfo) -> torch.Tensor:
    """A copy of one tensor in float32."""
    import torch
    from safetensors import safe_open

    with safe_open(info.file, framework="pt") as opened:
        # The reader maps the file; a copy lets go of it.
        return opened.get_tensor(info.key).to(torch.float32, copy=True)  # type: ignore[no-any-return]


def checkpoint_files(folder: Path) -> list[Path]:
    """The weight files of a folder in hub layout, those of the index where it is sharded.

    Raises:
        ProblemError: There is none, a shard is missing, or only pickles are there.
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return weight_files(folder)
    names = sorted(set(read_json(index).get("weight_map", {}).values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        lost = missing[0] if missing else "weight_map"
        raise ProblemError(f"{index} names {lost!r}, which is not there; copy all shards")
    return [folder / name for name in names]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ProblemError: The file is missing, no JSON, or no object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ProblemError(f"{path.parent} has no {path.name}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ProblemError(f"{path} holds a {type(found).__name__}, expected a JSON object")
    return found


@functools.lru_cache(maxsize=32)
def _architecture(text: str, where: str) -> tuple[str, str]:
    """Defaults filled in: the config as canonical JSON, and the prefix of its encoder."""
    with quiet():
        from transformers import AutoConfig
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as MAPPING,
        )

        values = json.loads(text)
        kind = values.pop("model_type", None)
        try:
            config = AutoConfig.for_model(kind, **values)
            prefix = MAPPING[type(config)].base_model_prefix
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProblemError(
                f"{where} has model_type {kind!r}, expected one that transformers classifies with"
            ) from error
        return canonical_json(config.to_dict()), prefix


@dataclass(frozen=True)
class Checkpoint:
    """A model folder in Hugging Face layout.

    Args:
        folder: Where it lies.
        config: Its ``config.json`` with all defaults filled in.
        prefix: What classes with a head put before the encoder's names.
        encoder: Tensors of the encoder by canonical name.
        head: Everything else, pooler included, by the name that a class with a head gives it.
    """

    folder: Path
    config: Mapping[str, Any]
    prefix: str
    encoder: Mapping[str, TensorInfo]
    head: Mapping[str, TensorInfo]
    files: tuple[Path, ...] = field(repr=False)

    @property
    def sha256(self) -> str:
        """Hash of the weight files; remembered in this process while the files stay the same."""
        return hash_files(self.files)

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor of the encoder in float32."""
        return load_tensor(self.encoder[name])

    def stack(self, names: tuple[str, ...]) -> torch.Tensor:
        """Tensors of equal shape as one, ``[L, ...] float32``."""
        import torch

        return torch.stack([self.tensor(name) for name in names])

    def full_name(self, name: str) -> str:
        """The name that classes with a head give a tensor of the encoder."""
        return f"{self.prefix}.{name}"


def open_config(folder: Path) -> tuple[dict[str, Any], str]:
    """The config of a folder with defaults filled in, and the encoder's prefix.

    Raises:
        ProblemError: There is none, it is quantized, or not of a model that classifies.
    """
    raw = read_json(folder / "config.json")
    if "quantization_config" in raw:
        raise ProblemError(f"{folder} is quantized; load it in full precision and save it again")
    filled, prefix = _architecture(canonical_json(raw), str(folder))
    return json.loads(filled), prefix


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a folder in Hugging Face layout; reads headers only.

    Raises:
        ProblemError: It is no checkpoint that can be merged; one line says why.
    """
    if not folder.is_dir():
        raise ProblemError(f"{folder} is no folder; expected a model in Hugging Face layout")
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ProblemError(f"{folder} holds an adapter, expected a whole model here")
    config, prefix = open_config(folder)
    files = checkpoint_files(folder)
    encoder, head = split_names(read_tensors(folder, files), prefix)
    if not encoder:
        raise ProblemError(f"{folder} holds no weights of an encoder of {config['model_type']!r}")
    return Checkpoint(folder, config, prefix, encoder, head, tuple(files))


def split_names(
    tensors: Mapping[str, TensorInfo], prefix: str
) -> tuple[dict[str, TensorInfo], dict[str, TensorInfo]]:
    """Encoder by canonical name, and the rest by full name; poolers belong to the rest."""
    start = f"{prefix}."
    whole = any(key.startswith(start) for key in tensors)
    encoder: dict[str, TensorInfo] = {}
    head: dict[str, TensorInfo] = {}
    for key, info in tensors.items():
        inside = not whole or key.startswith(start)
        name = key.removeprefix(start) if whole else key
        if inside and not name.startswith("pooler."):
            encoder[name] = info
        else:
            head[f"{start}{name}" if inside else key] = info
    return {name: encoder[name] for name in sorted(encoder, key=natural)}, head


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts names with numbers as people do.

    Example:
        >>> sorted(["layer.10.a", "layer.2.b"], key=natural)
        ['layer.2.b', 'layer.10.a']
    """
    parts = re.split(r"(\d+)", name)
    return tuple((int(p), "") if p.isdigit() else (0, p) for p in parts)


def vocabulary_hash(folder: Path) -> str | None:
    """Hash of the words of a folder's tokenizer with their ids; None where it has none."""
    file = folder / "tokenizer.json"
    if file.is_file():
        model = read_json(file).get("model", {})
        words: Any = model.get("vocab", {})
    elif (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        words = {word: i for i, word in enumerate(lines)}
    else:
        return None
    return hashlib.sha256(canonical_json(words).encode()).hexdigest()
