"""Scores that were computed before, so that an evaluation of hours goes on where it ended.

One JSON object per line, appended as scores come; a line that a kill cut short is ignored. A score
is found again by everything it depends on: policy, weights, curves, objectives, workers, seed and
the source code of the policies and of the replay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps import __version__
from lamps.errors import ConfigError
from lamps.policy.cases import Case, Rule
from lamps.policy.evaluate import MEASURES, Score
from lamps.policy.weights import Weights

if TYPE_CHECKING:
    from lamps.store import PolicyScore

FILE = "scores.jsonl"
# Parts that train or report, but do not move a score.
_SILENT = {
    "contest", "corpus", "env", "episodes", "folds", "gym", "network", "page", "pictures",
    "results", "rollout", "scorebook", "summaries", "synthetic", "train", "training",
}  # fmt: skip


@cache
def code_version() -> str:
    """Release and hash of the source code that decides on a score."""
    here = Path(__file__).parent
    h = hashlib.sha256()
    for file in [*sorted(here.glob("*.py")), here.parent / "pareto.py"]:
        if file.stem not in _SILENT:
            h.update(file.name.encode() + file.read_bytes())
    return f"{__version__}+{h.hexdigest()[:10]}"


def as_dict(score: Score) -> dict[str, Any]:
    """A score as JSON values."""
    return asdict(score)


def from_dict(cells: Mapping[str, Any]) -> Score:
    """The inverse of `as_dict`.

    Raises:
        ConfigError: It is no score of this release.
    """
    numbers = {m: float("nan") for m in MEASURES if cells.get(m) is None}
    try:
        return Score(**{**cells, **numbers, "objectives": tuple(cells["objectives"])})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{dict(cells)!r:.80} is no score of this release: {error}") from error


def to_record(score: Score, code: str) -> PolicyScore:
    """A score as the store keeps it.

    Args:
        score: The score.
        code: See `code_version`.
    """
    from lamps.store import PolicyScore

    cells = asdict(score)
    measures = {m: cells.pop(m) for m in MEASURES}
    cells["weights_sha256"] = cells.pop("weights")
    cells["table_name"] = cells.pop("table")
    return PolicyScore(**cells, code=code, measures=measures)


def from_record(record: PolicyScore) -> Score:
    """The inverse of `to_record`."""
    cells = asdict(record)
    for name in ("code", "created_at"):
        del cells[name]
    measures = cells.pop("measures")
    cells["weights"] = cells.pop("weights_sha256")
    cells["table"] = cells.pop("table_name")
    return from_dict({**cells, **measures})


class Scorebook:
    """Scores by what they depend on.

    Args:
        folder: Where they are kept; None keeps them in memory only.

    Raises:
        ConfigError: The folder cannot be written, or its file is none of ours.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.path = folder / FILE if folder else None
        self._known: dict[str, Score] = {}
        self._hashes: dict[str, str] = {}
        if folder is None or self.path is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        except OSError as error:
            raise ConfigError(f"{folder} cannot hold results: {error}") from error
        whole, _, torn = text.rpartition("\n")
        if torn:  # of a process that was killed in the middle of a line
            self.path.write_text(whole + "\n" if whole else "", encoding="utf-8")
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                self._known[row["key"]] = from_dict(row["score"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self.path} line {number} is no score; remove the file to begin anew"
                ) from error

    def __len__(self) -> int:
        return len(self._known)

    def key(self, rule: Rule, case: Case) -> str:
        """Hash of everything that the score of a policy on a case depends on."""
        parts = (rule.name, self._weights(rule), case.digest(), code_version())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def get(self, key: str) -> Score | None:
        """The score, if it is known."""
        return self._known.get(key)

    def add(self, key: str, score: Score) -> None:
        """Remember a score; on disk at once."""
        self._known[key] = score
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "score": as_dict(score)}) + "\n")

    def _weights(self, rule: Rule) -> str:
        """Version of a policy and, of a learned one, what its weights are and say."""
        mark = f"{rule.name} {rule.weights}"
        if mark not in self._hashes:
            policy = rule.make()
            weights = getattr(policy, "weights", None)
            said = ""
            if isinstance(weights, Weights):
                told = {k: weights.metadata.get(k) for k in ("doubt", "bounds", "blind")}
                said = weights.sha256 + json.dumps(told, sort_keys=True)
            self._hashes[mark] = f"{policy.version} {said}"
        return self._hashes[mark]
