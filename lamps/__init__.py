"""Finds the Pareto front of models and methods for a task by training a small part of them.

    >>> import lamps
    >>> "search" in dir(lamps)
    True

`search` runs one, `resume` goes on with one, `open_store` reads what past ones found. Nothing
heavy is loaded before it is used: ``import lamps`` loads neither torch nor ray.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "search": "lamps.api",
    "resume": "lamps.api",
    "replicate": "lamps.api",
    "open_store": "lamps.runs",
    "Run": "lamps.runs",
    "Store": "lamps.runs",
    "Front": "lamps.front",
    "Member": "lamps.front",
    "Budget": "lamps.types",
    "Candidate": "lamps.types",
    "Evaluation": "lamps.types",
    "Objective": "lamps.types",
    "Method": "lamps.method",
    "MethodSpec": "lamps.method",
    "Problem": "lamps.method",
    "Family": "lamps.method",
    "LampsError": "lamps.errors",
}

__all__ = [
    "Budget",
    "Candidate",
    "Evaluation",
    "Family",
    "Front",
    "LampsError",
    "Member",
    "Method",
    "MethodSpec",
    "Objective",
    "Problem",
    "Run",
    "Store",
    "__version__",
    "open_store",
    "replicate",
    "resume",
    "search",
]

if TYPE_CHECKING:
    from lamps.api import replicate, resume, search
    from lamps.errors import LampsError
    from lamps.front import Front, Member
    from lamps.method import Family, Method, MethodSpec, Problem
    from lamps.runs import Run, Store, open_store
    from lamps.types import Budget, Candidate, Evaluation, Objective


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lamps' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
