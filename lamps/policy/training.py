"""A training from tables to a file of weights that says where it comes from."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps import __version__
from lamps.errors import ConfigError, MissingExtra
from lamps.policy import weights as files
from lamps.policy.recorded import recorded
from lamps.tables import LandmarkTable

if TYPE_CHECKING:
    from lamps.policy.train import Settings

Say = Callable[[str], None]
CHECKPOINT = "checkpoint.safetensors"


def provenance(tables: Sequence[LandmarkTable]) -> list[dict[str, Any]]:
    """What weights say of each table that they were trained on."""
    return [
        {
            "name": t.name,
            "family": t.family,
            "candidates": len(t.candidates),
            "landmarks": len(t.fidelities),
            "fingerprint": t.fingerprint(),
        }
        for t in tables
    ]


def settings_of(**given: Any) -> Settings:
    """Settings of a training; what is None is left at its default.

    Raises:
        MissingExtra: torch is not installed.
    """
    _torch()
    from lamps.policy.train import Settings

    return Settings(**{k: v for k, v in given.items() if v is not None})


def train_weights(
    tables: Sequence[LandmarkTable],
    settings: Settings,
    out: Path,
    *,
    folder: Path | None = None,
    say: Say = lambda _: None,
) -> files.Weights:
    """Train on tables and write the weights.

    Args:
        tables: What to learn from.
        settings: Of the training.
        out: File of weights, written at the end.
        folder: Where checkpoints are kept and looked for.
        say: Told about progress.

    Raises:
        ConfigError: Nothing to learn from, or the folder holds another training.
        MissingExtra: torch is not installed.
    """
    torch = _torch()
    from lamps.policy.train import train

    about = provenance(tables)
    if folder is not None:
        _claim(folder, about)
    said = {
        "tables": about,
        "seed": settings.seed,
        "versions": {
            "lamps": __version__,
            "numpy": np.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    pools = [recorded(t) for t in tables]
    result = train(pools, settings, folder=folder, metadata=said, say=say)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.save(out, result.tensors, result.metadata)
    return files.load(out)


def iterations_done(folder: Path) -> int:
    """How far the last checkpoint of a folder came; 0 where there is none."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return 0
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return int(json.loads(file.metadata()["lamps"])["iteration"])


def trained_in(
    folder: Path, tables: Sequence[LandmarkTable], settings: Settings, say: Say
) -> Path:
    """Weights from a sub-folder that belongs to these tables and settings; trained if missing.

    Args:
        folder: Holds a sub-folder per training.
        tables: What to learn from.
        settings: Of the training.
        say: Told about progress.
    """
    about = repr(([t.fingerprint() for t in tables], settings, _code()))
    place = folder / hashlib.sha256(about.encode()).hexdigest()[:16]
    out = place / "weights.safetensors"
    if not out.is_file():
        train_weights(tables, settings, out, folder=place, say=say)
    return out


def untrained(weights: files.Weights, out: Path, *, seed: int = 0) -> Path:
    """An ablation: a network of the same shape and metadata, with the numbers of a fresh one."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name in sorted(weights.tensors):
        layer = name.rpartition(".")[0]
        fan_in = weights.tensors[f"{layer}.weight"].shape[1]
        bound = (0.1 if name == "score.weight" else 1.0) / np.sqrt(fan_in)
        shape = weights.tensors[name].shape
        tensors[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.save(out, tensors, weights.metadata)
    return out


def _code() -> str:
    """Hash of the source code that decides on a training."""
    here = Path(__file__).parent
    parts = ("corpus", "curves", "env", "episodes", "features", "network", "rollout", "synthetic",
             "train", "weights")  # fmt: skip
    h = hashlib.sha256()
    for part in parts:
        h.update((here / f"{part}.py").read_bytes())
    return h.hexdigest()


def _claim(folder: Path, about: list[dict[str, Any]]) -> None:
    """Refuse to go on with a training that was begun on other tables."""
    told = folder / "tables.json"
    text = json.dumps(about, indent=1)
    if (folder / CHECKPOINT).is_file() and told.is_file():
        before = {(t["name"], t["fingerprint"]) for t in json.loads(told.read_text())}
        now = {(t["name"], t["fingerprint"]) for t in about}
        if before != now:
            other = ", ".join(sorted(name for name, _ in before ^ now)[:4])
            raise ConfigError(
                f"{folder} holds a training on other tables ({other}); give the same ones, or "
                "another folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    told.write_text(text, encoding="utf-8")


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("training a policy", "torch", "policy") from error
    return torch
