"""Checkpoints come back bit for bit or not at all."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from lamps import artifacts
from lamps.artifacts import decode_state, encode_state, read_checkpoint, write_checkpoint
from lamps.errors import ConfigError, StoreError

NUMPY_TYPES = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]
ARRAYS = st.sampled_from(NUMPY_TYPES).flatmap(
    lambda t: arrays(np.dtype(t), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STATES = st.dictionaries(st.text(min_size=1, max_size=10), ARRAYS | JSON, max_size=5)
SAMPLE: dict[str, Any] = {
    "weights": np.arange(12.0).reshape(3, 4),
    "ids": np.array([3, 1, 2], dtype=np.int32),
    "loss": math.nan,
    "history": [1.0, math.inf, {"a": -math.inf}],
    "name": "ä🙂",
    "fidelity": None,
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and bool(a == b)


# --- round trips ---------------------------------------------------------------------------------


@given(STATES)
def test_states_come_back_as_they_went_in(state: dict[str, Any]) -> None:
    assert same(decode_state(encode_state(state)), state)


@pytest.mark.parametrize(
    "name",
    [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "float8_e4m3fn",
    ],
)
def test_tensors_of_every_type(name: str) -> None:
    import torch

    dtype = getattr(torch, name)
    for shape in ((), (0,), (3,), (2, 0, 3), (2, 3)):
        tensor = torch.arange(float(np.prod(shape))).reshape(shape).to(dtype)
        twin = decode_state(encode_state({"t": tensor}))["t"]
        assert twin.dtype == dtype
        assert twin.shape == tensor.shape
        assert (twin.to(torch.float64) == tensor.to(torch.float64)).all()


def test_arrays_and_tensors_keep_their_kind_side_by_side() -> None:
    import torch

    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    state = {"n": read_only, "z": np.array(2.0), "t": torch.ones(2), "k": 3}
    twin = decode_state(encode_state(state))
    assert same(twin["n"], read_only)
    assert same(twin["z"], state["z"])
    assert isinstance(twin["t"], torch.Tensor)
    assert twin["k"] == 3


def test_tied_sliced_strided_and_trained_tensors() -> None:
    import torch

    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    state = {
        "embedding": weight,
        "head": weight,
        "row": weight.detach()[1],
        "column": weight.detach()[:, 1],
        "turned": weight.detach().T,
        "empty": torch.empty(0),
        "none": torch.empty(0),
    }
    twin = decode_state(encode_state(state))
    for name, tensor in state.items():
        assert torch.equal(twin[name], tensor.detach()), name
        assert not twin[name].requires_grad


def test_arrays_of_other_layout_keep_their_values() -> None:
    base = np.arange(12.0).reshape(3, 4)
    state = {"t": base.T, "f": np.asfortranarray(base), "s": base[:, ::2], "b": base.astype(">f8")}
    twin = decode_state(encode_state(state))
    for name, array in state.items():
        assert twin[name].tolist() == array.tolist(), name


def test_numpy_scalars_and_tuples_become_json() -> None:
    state = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": (1, 2), "e": {3: 4}}
    twin = decode_state(encode_state(state))
    assert twin == {"a": 0.5, "b": 3, "c": True, "d": [1, 2], "e": {"3": 4}}
    assert type(twin["c"]) is bool


def test_a_dictionary_that_looks_like_our_tag_survives() -> None:
    state = {"a": {"$float": "text"}, "b": {"$float": "nan"}, "c": {"$$float": 1}}
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", np.array([object()]), np.array(["text"]), np.zeros(2, complex)],
    ids=lambda v: type(v).__name__ + str(getattr(v, "dtype", "")),
)
def test_what_is_neither_array_nor_json_is_refused(value: object) -> None:
    with pytest.raises(StoreError, match="a checkpoint may hold") as caught:
        encode_state({"bad": value})
    assert "bad" in str(caught.value)
    assert "\n" not in str(caught.value)


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_truncated_checkpoint_is_refused_wherever_it_was_cut(kind: str) -> None:
    import torch

    extra = {"t": torch.ones(5, dtype=torch.bfloat16)} if kind == "torch" else {}
    content = encode_state(SAMPLE | extra)
    for length in [*range(0, len(content), 50), len(content) - 1]:
        with pytest.raises(StoreError, match="truncated"):
            decode_state(content[:length])


@given(st.binary(max_size=64))
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(StoreError):
        decode_state(content)


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_never_raises_anything_else(position: int, bit: int) -> None:
    content = bytearray(encode_state(SAMPLE))
    content[position % len(content)] ^= 1 << bit
    try:
        decode_state(bytes(content))
    except StoreError as error:
        assert "\n" not in str(error)  # noqa: PT017


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_found_by_the_hash(position: int, bit: int) -> None:
    uri = f"memory://flip/{os.getpid()}/c.safetensors"
    stored = write_checkpoint(uri, SAMPLE)
    fs, path = fsspec.core.url_to_fs(uri)
    content = bytearray(fs.cat_file(path))
    content[position % len(content)] ^= 1 << bit
    fs.pipe_file(path, bytes(content))
    with pytest.raises(StoreError, match="damaged"):
        read_checkpoint(uri, stored.sha256)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
def test_write_read_delete(scheme: str, tmp_path: Path) -> None:
    uri = f"{scheme}{tmp_path}/deep/er/c.safetensors"
    stored = write_checkpoint(uri, SAMPLE)
    assert stored.uri == uri
    assert same(read_checkpoint(uri, stored.sha256), SAMPLE)
    fs, path = fsspec.core.url_to_fs(uri)
    assert fs.size(path) == stored.size_bytes
    assert [p.rsplit("/", 1)[-1] for p in fs.ls(path.rsplit("/", 1)[0], detail=False)] == [
        "c.safetensors"
    ]
    again = write_checkpoint(uri, {"a": 1})
    assert read_checkpoint(uri, again.sha256) == {"a": 1}
    artifacts.delete(uri)
    artifacts.delete(uri)
    with pytest.raises(StoreError, match="cannot read checkpoint"):
        read_checkpoint(uri)


@pytest.mark.parametrize("scheme", ["nosuch", "s3"])
def test_a_scheme_that_is_not_installed_is_refused_in_one_line(scheme: str) -> None:
    for call in (
        lambda uri: write_checkpoint(uri, {}),
        read_checkpoint,
        artifacts.delete,
    ):
        with pytest.raises((StoreError, ConfigError), match=scheme) as caught:
            call(f"{scheme}://bucket/c")
        assert "\n" not in str(caught.value)


LIMITED = """
import resource, signal, sys
import numpy as np
from lamps.artifacts import write_checkpoint
from lamps.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_checkpoint(sys.argv[1], {"a": np.zeros(1_000_000)})
except StoreError as error:
    print("refused:", error)
"""


def run(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_a_write_that_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the write fails half way."""
    old = write_checkpoint(f"{tmp_path}/c", {"a": 1})
    done = run(LIMITED, f"{tmp_path}/c")
    assert done.stdout.startswith("refused: cannot write checkpoint"), done.stderr
    assert os.strerror(errno.EFBIG) in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert read_checkpoint(old.uri, old.sha256) == {"a": 1}


READ_ONLY = """
import os, sys
import fsspec.implementations.local
from lamps.artifacts import write_checkpoint
from lamps.errors import StoreError
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    write_checkpoint(sys.argv[1], {"a": 1})
except StoreError as error:
    print("refused:", error)
"""


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As a user without rights, because root may write everywhere."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    if os.getuid() == 0:
        for parent in [tmp_path, *tmp_path.parents][:2]:
            parent.chmod(0o755)
    for target in (folder / "c", folder / "deeper" / "c"):
        done = run(READ_ONLY, str(target))
        assert done.stdout.startswith("refused: cannot write checkpoint"), done.stderr
        assert "locked" in done.stdout
    assert list(folder.iterdir()) == []


INTERRUPTED = """
import signal, sys
import fsspec.implementations.local
import numpy as np
from lamps.artifacts import write_checkpoint

class Interrupted(BaseException):
    pass

def strike(*_):
    raise Interrupted

signal.signal(signal.SIGALRM, strike)
state = {"a": np.zeros(3_000_000)}
for step in range(20):
    signal.setitimer(signal.ITIMER_REAL, 0.004 * (step + 1))
    try:
        write_checkpoint(sys.argv[1], state)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        print("interrupted")
"""


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    """An exception that is no Exception, as Ctrl-C raises it, at twenty moments of a write."""
    done = run(INTERRUPTED, f"{tmp_path}/c")
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stdout
    names = [p.name for p in tmp_path.iterdir()]
    assert names in ([], ["c"])
    if names:
        assert read_checkpoint(f"{tmp_path}/c")["a"].shape == (3_000_000,)


def test_a_killed_write_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    """Nothing can tidy up after SIGKILL, but what can be read is whole."""
    old = write_checkpoint(f"{tmp_path}/c", {"a": 1})
    script = INTERRUPTED.replace("raise Interrupted", "__import__('os').kill(0, 9)")
    done = run(script, f"{tmp_path}/c", start_new_session=True)
    assert done.returncode == -9
    assert set(read_checkpoint(old.uri)) == {"a"}


# --- names ---------------------------------------------------------------------------------------


@given(st.text(max_size=120), st.text(max_size=120))
def test_names_stay_below_their_root_and_apart(a: str, b: str) -> None:
    path = artifacts.join("/root/x", a)
    assert os.path.normpath(path) == path
    assert Path(path).parent == Path("/root/x")
    assert len(Path(path).name.encode()) <= 255
    assert Path(path).name not in ("", ".", "..")
    assert (artifacts.safe_name(a) == artifacts.safe_name(b)) == (a == b)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc", "..", ".", "", "a/b", "a\\b", "a\0b", "ä/日本語 🙂" * 30, "~"],
)
def test_awkward_names(name: str) -> None:
    path = artifacts.safe_name(name)
    assert path
    assert "/" not in path
    assert not path.startswith(".")
    assert path.isascii()


def test_plain_names_are_kept() -> None:
    assert artifacts.join("s3://bucket/x/", "run-1", "0003.safetensors") == (
        "s3://bucket/x/run-1/0003.safetensors"
    )
    assert artifacts.safe_name("a_b.c-d") == "a_b.c-d"
