"""What a check found, in one line that says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Args:
        check: What was looked at.
        level: ``ok``; ``warning`` (works, but look at it); ``bad`` (unsafe, or a search fails).
        found: What there is.
        advice: What to do; empty where nothing is to be done.
    """

    check: str
    level: Level
    found: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """As a row of a table."""
        return {
            "check": self.check,
            "level": self.level,
            "found": self.found,
            "advice": self.advice,
        }


def good(check: str, found: str) -> Finding:
    """Nothing is to be done."""
    return Finding(check=check, level="ok", found=found)


def warn(check: str, found: str, advice: str) -> Finding:
    """It works, but somebody should look at it."""
    return Finding(check=check, level="warning", found=found, advice=advice)


def bad(check: str, found: str, advice: str) -> Finding:
    """It is unsafe, or a search will fail."""
    return Finding(check=check, level="bad", found=found, advice=advice)
