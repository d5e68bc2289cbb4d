"""Checkpoints and artifacts: safetensors + JSON under any fsspec URL, written aside and renamed.

A checkpoint is one file: safetensors whose metadata field ``lamps`` holds the JSON part of the
state. Arrays may be NumPy or torch; they come back as they went in. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np
from safetensors import SafetensorError

from lamps.errors import StoreError

_TORCH = "torch"
_NUMPY = "numpy"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint: where it is, its SHA-256 and its size in bytes."""

    uri: str
    sha256: str
    size_bytes: int


def join(root: str, *parts: str) -> str:
    """A path below an artifact root; each part becomes one safe path component.

    Example:
        >>> join("/tmp/a", "../../etc", "x y")
        '/tmp/a/_.._.._etc-74ccf3/x_y-887fce'
    """
    return "/".join([root.rstrip("/"), *map(safe_name, parts)])


def safe_name(text: str) -> str:
    """A file name that cannot leave its folder.

    Unique for the text it was made from, at most 80 characters.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", text)
    if text and plain == text and len(text) <= 80 and not text.startswith("."):
        return text
    head = "_" if plain.startswith(".") or not plain else ""
    return f"{head}{plain[:64]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def encode_state(state: dict[str, Any]) -> bytes:
    """The bytes of a checkpoint.

    Raises:
        StoreError: A value is neither an array nor JSON.
    """
    arrays: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    plain: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            arrays[name], kinds[name] = _plain_array(name, value), _NUMPY
        elif type(value).__module__.split(".")[0] == "torch":
            arrays[name], kinds[name] = value.detach().cpu().contiguous(), _TORCH
        else:
            plain[name] = _plain_json(name, value)
    text = json.dumps({"kinds": kinds, "plain": plain}, allow_nan=False)
    if _TORCH in kinds.values():
        from safetensors.torch import save
        from torch import from_numpy

        # torch warns of arrays that it may not write to, such as those of an object store.
        tensors = {
            k: from_numpy(v if v.flags.writeable else v.copy()) if kinds[k] == _NUMPY else v
            for k, v in arrays.items()
        }
        return bytes(save(_unshared(tensors), {"lamps": text}))
    from safetensors.numpy import save as save_numpy

    return bytes(save_numpy(arrays, {"lamps": text}))


def _plain_array(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind not in "biuf":
        raise StoreError(
            f"a checkpoint may hold arrays of numbers, but {name!r} has the type {array.dtype}"
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _plain_json(name: str, value: Any) -> Any:
    try:
        encoded = _encode_floats(value)
        json.dumps(encoded, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"a checkpoint may hold arrays and JSON only, but {name!r} is neither: {error}"
        ) from error
    return encoded


def _unshared(tensors: dict[str, Any]) -> dict[str, Any]:
    """Tied weights are stored once per name: safetensors refuses tensors that share memory."""
    seen: set[int] = set()
    result: dict[str, Any] = {}
    for name, tensor in tensors.items():
        pointer = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if pointer in seen else tensor
        seen.add(pointer)
    return result


def decode_state(content: bytes) -> dict[str, Any]:
    """The state that `encode_state` wrote.

    Raises:
        StoreError: The bytes are truncated or not a checkpoint.
    """
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        meta = json.loads(header["__metadata__"]["lamps"])
        kinds: dict[str, str] = meta["kinds"]
        if _TORCH in kinds.values():
            from safetensors.torch import load

            arrays: dict[str, Any] = load(content)
            arrays = {k: v.numpy() if kinds[k] == _NUMPY else v for k, v in arrays.items()}
        else:
            from safetensors.numpy import load as load_numpy

            arrays = dict(load_numpy(content))
        return {**{k: _decode_floats(v) for k, v in meta["plain"].items()}, **arrays}
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        line = " ".join(str(error).split())
        raise StoreError(
            f"not a checkpoint, or truncated ({len(content)} bytes): {line}"
        ) from error


def _encode_floats(value: Any) -> Any:
    """JSON has no NaN and no infinity; they travel as tagged text, keys like the tag escaped."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if isinstance(value, dict):
        return {
            ("$" if str(k)[:1] == "$" else "") + str(k): _encode_floats(v)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_encode_floats(v) for v in value]
    return value


def _decode_floats(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$float"}:
            return float(value["$float"])
        return {k[1:] if k[:1] == "$" else k: _decode_floats(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_decode_floats(v) for v in value]
    return value


def _filesystem(uri: str) -> tuple[Any, str]:
    try:
        fs, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise StoreError(f"cannot use the artifact root of {uri}: {error}") from error
    return fs, str(path)


def write_checkpoint(uri: str, state: dict[str, Any]) -> Checkpoint:
    """Write a state under a temporary name and rename it, so a reader never sees half a file."""
    content = encode_state(state)
    fs, path = _filesystem(uri)
    temporary = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        with fs.open(temporary, "wb") as file:
            file.write(content)
        fs.mv(temporary, path)
    except BaseException as error:
        # Whatever it was, Ctrl-C included: nothing half-written stays behind.
        _discard(fs, temporary)
        if isinstance(error, OSError):
            raise StoreError(f"cannot write checkpoint {uri}: {error}") from error
        raise
    return Checkpoint(uri, hashlib.sha256(content).hexdigest(), len(content))


def _discard(fs: Any, path: str) -> None:
    try:
        if fs.exists(path):
            fs.rm(path)
    except OSError:
        # The disk that refused the write may refuse this too; the file has a .tmp name and nobody
        # reads it.
        return


def read_checkpoint(uri: str, sha256: str | None = None) -> dict[str, Any]:
    """Read a state back.

    Raises:
        StoreError: The file is missing, truncated, or its hash is not the stored one.
    """
    fs, path = _filesystem(uri)
    try:
        content = fs.cat_file(path)
    except OSError as error:
        raise StoreError(f"cannot read checkpoint {uri}: {error}") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise StoreError(f"checkpoint {uri} is damaged: its SHA-256 is not the stored one")
    return decode_state(content)


def files(root: str) -> list[str]:
    """URIs of the files in a folder; none where there is no such folder."""
    fs, path = fsspec.core.url_to_fs(root)
    try:
        names = [str(entry).rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot list {root}: {error}") from error
    return [f"{root.rstrip('/')}/{name}" for name in sorted(names)]


def delete(uri: str) -> None:
    """Delete a file below the artifact root; one that is gone already is fine."""
    fs, path = _filesystem(uri)
    try:
        fs.rm(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot delete {uri}: {error}") from error
