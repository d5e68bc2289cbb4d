"""Take a fitted candidate out of a run.

Restore it from its checkpoint and let its family write it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from lamps import __version__
from lamps.errors import ConfigError, LampsError, MethodFailed, ProblemError, StateError
from lamps.method import Method, Problem
from lamps.plugins import registry
from lamps.scheduler.worker import LandmarkTask, restore_method
from lamps.store import Run, Store
from lamps.types import Json

CARD = "lamps.json"


def export_member(
    store: Store, run: Run, index: int, directory: Path, overwrite: bool = False
) -> Path:
    """Write candidate ``index`` of a run into a folder; nothing is left half-written.

    The folder holds what `Method.save` writes and ``lamps.json`` with provenance and scores.

    Raises:
        StateError: No such candidate, no landmark yet, or no checkpoint.
        ConfigError: The folder has content and may not be replaced.
        MethodFailed: The method cannot be saved.
        ProblemError: The folder cannot be written.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        if not overwrite:
            raise ConfigError(f"{directory} is not empty; choose a new folder or say --overwrite")
        if not (directory / CARD).is_file():
            raise ConfigError(
                f"{directory} is no earlier export (it has no {CARD}), so --overwrite does not "
                "replace it; choose a new folder, or empty this one yourself"
            )
    trials = store.trials(run.id)
    if not 0 <= index < len(trials):
        raise StateError(f"run {run.name!r} has candidates 0 to {len(trials) - 1}, not {index}")
    trial = trials[index]
    if trial.checkpoint is None:
        raise StateError(
            f"candidate {index} of run {run.name!r} has no checkpoint (it is {trial.state}); "
            "export a finished one, see: lamps front"
        )
    plugin_path = str(run.settings.get("plugin_path", ""))
    family = registry(plugin_path).load_family(run.family)
    problem = family.reopen(run.problem_reference)
    method, _ = restore_method(
        LandmarkTask(
            key=0,
            candidate=trial.candidate,
            fidelity=None,
            seed=run.seed,
            target="",
            checkpoint=(trial.checkpoint.uri, trial.checkpoint.sha256),
            plugin_path=plugin_path,
        ),
        problem,
    )
    last = next(e for e in reversed(trial.evaluations) if e.state == "ok")
    test = {**trial.test.values, **trial.test.signals} if trial.test else {}
    provenance: dict[str, Json] = {
        "lamps": __version__,
        "run": run.name,
        "candidate": index,
        "seed": run.seed,
        "problem": run.problem_name,
        "problem_sha256": run.problem_fingerprint,
        "fidelity": last.fidelity,
        "scores": dict(last.values),
        "test": test,
    }
    target = directory.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ProblemError(f"cannot write {directory}: {error}") from error
    aside = work.with_name(f"{work.name}-old")
    try:
        _save(method, problem, work, trial.candidate.method)
        # Times on the front and in the card are those of the search, not those of the last test.
        tested = trial.test.values if trial.test else {}
        family.describe_export(work, {**tested, **last.values})
        own = work / CARD
        card: dict[str, Json] = {
            "family": run.family,
            "method": trial.candidate.method,
            "params": dict(trial.candidate.params),
        }
        if own.exists():
            card |= json.loads(own.read_text(encoding="utf-8"))
        card["provenance"] = provenance
        own.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for file in work.rglob("*"):
            # safetensors makes its files private; a member is meant to be handed on.
            file.chmod(0o755 if file.is_dir() else 0o644)
        work.chmod(0o755)
        if target.exists():
            target.rename(aside)
        work.rename(target)
    except OSError as error:
        raise ProblemError(f"cannot write {directory}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
    return directory


def _save(method: Method[Any, Any], problem: Problem, directory: Path, name: str) -> None:
    """Let a method write itself; what it raises is its own failure, told in one line."""
    try:
        method.save(problem, directory)
    except (LampsError, OSError):
        raise
    except Exception as error:
        raise MethodFailed(f"{name} cannot be saved: {type(error).__name__}: {error}") from error
