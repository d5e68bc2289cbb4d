"""Building and loading: one folder a model, named after everything its weights depend on."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from lamps.errors import ProblemError
from lamps.method import cache_dir
from lamps.types import Json, digest
from lamps_plugins._small_lms import _quality, _tokens, _training
from lamps_plugins._small_lms._specs import FORMAT, SPECS, LmSpec, spec_of
from lamps_plugins._small_lms._training import Say
from lamps_plugins._zoo._build import on_stderr
from lamps_plugins.text_classification._nets import quiet

__all__ = ["FACTS", "build", "folder", "listing", "load"]

FACTS = "lamps-small-lm.json"
"""What a folder says of itself."""


def root() -> Path:
    """Where the models are kept."""
    return cache_dir() / "small-lms"


def folder(name: str) -> Path:
    """Where the model of that name is, or will be.

    Raises:
        ProblemError: There is no model of that name.
    """
    spec = spec_of(name)
    key = digest([FORMAT, spec.as_json(), _tokens.material_hash(spec)], length=10)
    return root() / f"{name}-{key}"


def build(
    name: str, *, minutes: float | None = None, resume: bool = True, say: Say = on_stderr
) -> Path | None:
    """Train a model where it is not there yet.

    Args:
        name: One of `SPECS`.
        minutes: Stop after so many, and go on with the next call; None trains to the end.
        resume: Whether to go on from what a stopped call left.
        say: Told every minute how far it is.

    Returns:
        The folder, in transformers' layout; None where ``minutes`` ended first.

    Raises:
        ProblemError: There is no model of that name, or a stopped state is damaged.
    """
    spec, place = spec_of(name), folder(name)
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if place.is_dir():
            return place
        state = place.with_name(f"{place.name}.part")
        started = time.perf_counter()
        model = _training.train(spec, state, minutes=minutes, resume=resume, say=say)
        if model is None:
            return None
        work = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
        try:
            _write(spec, model, work, time.perf_counter() - started)
            work.chmod(0o755)
            os.replace(work, place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(state, ignore_errors=True)
    return place


def _write(spec: LmSpec, model: Any, work: Path, seconds: float) -> None:
    tokenizer = _tokens.tokenizer_for(spec)
    with quiet():
        model.save_pretrained(work)
        if tokenizer is not None:
            tokenizer.save_pretrained(work)
    facts: dict[str, Json] = {
        "name": spec.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": spec.steps,
        "seconds": seconds,
        "material": _tokens.material_hash(spec),
        **_quality.measured(spec, model),
    }
    (work / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def load(name: str) -> tuple[Any, Any]:
    """A model that is built, in evaluation mode, with its tokenizer (None for recall).

    The toys are built on the way; others take minutes, so they are not.

    Raises:
        ProblemError: There is no such model, or it is not built yet; the message says how.
    """
    place = folder(name)
    if not place.is_dir():
        if not name.startswith("toy"):
            raise ProblemError(
                f"the small model {name!r} is not built yet, expected it at {place}; build it "
                f"with: lamps small-lms build {name}"
            )
        build(name, say=lambda _: None)
    with quiet():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(place).eval()
        text = (place / "tokenizer.json").is_file()
        return model, AutoTokenizer.from_pretrained(place) if text else None


def listing() -> Iterator[dict[str, Json]]:
    """One row a model: whether it is built, and what is known of it."""
    for name, spec in SPECS.items():
        place = folder(name)
        row: dict[str, Json] = {"name": name, "material": spec.material, "steps": spec.steps}
        file = place / FACTS
        if file.is_file():
            row |= json.loads(file.read_text(encoding="utf-8"))
        part = place.with_name(f"{place.name}.part").is_dir()
        row["state"] = "built" if place.is_dir() else "begun" if part else "not built"
        yield {**row, "folder": str(place)}
