"""A plan as a folder: what was chosen, for what, how fast it was, and how to run it again.

DIR/plan.json     operator, sizes, ranks, transport, plan, scores
DIR/README.md     the same for people, and three lines of Python
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError
from lamps.types import Json
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._problem import TileFamily, TileProblem

if TYPE_CHECKING:
    from lamps_plugins.distributed_tensor_kernels._planned import Planned

__all__ = ["Exported", "add_scores", "read", "write"]

FORMAT = 1
FILE = "plan.json"


@dataclass(frozen=True, slots=True)
class Exported:
    """A plan that was exported.

    Args:
        problem: What it is for.
        method: Name of its method.
        plan: The plan; None for a library call.
        library: ``collective``, ``single`` or ``numpy`` for a library call.
        scores: What it scored when it was exported.
    """

    problem: TileProblem
    method: str
    plan: Plan | None
    library: str
    scores: Mapping[str, float]

    def run(self, *, repetitions: int = 5, seed: int | None = None) -> dict[str, Json]:
        """Check the plan against float64 and time it, on ranks started for it.

        Args:
            repetitions: Timed repetitions.
            seed: Root of the operands; that of the search if None.

        Returns:
            Medians in ms, bytes, the largest error in units of its bound, and a hash of the bits
            of the answer.

        Raises:
            MethodFailed: The answer is wrong, or a rank did not answer.
        """
        import numpy as np

        from lamps_plugins.distributed_tensor_kernels._job import Job
        from lamps_plugins.distributed_tensor_kernels._launch import close_group
        from lamps_plugins.distributed_tensor_kernels._measure import combined, ranks_of

        p = self.problem
        job = Job(
            operator=p.operator, shape=p.shape, plan=self.plan, library=self.library,
            seed=p.seed if seed is None else seed, repetitions=repetitions,
        )  # fmt: skip
        with ranks_of(p, self.library) as group:
            found = combined(group.run(job), p.machine)
        close_group()
        return {
            "latency_ms": float(np.median(found["latencies_ms"])),
            "alone_ms": float(np.median(found["alone_ms"])),
            "buffer_bytes": found["held_bytes"],
            "bytes_sent": found["bytes_sent"],
            "error_of_bound": found["worst"],
            "digest": found["digest"],
            "simulated_link": p.simulated,
        }


def write(method: Planned[Any], problem: TileProblem, directory: Path) -> None:
    """Write an export into an existing empty folder."""
    plan = method.plan_for(problem, 1.0)
    found: dict[str, Any] = {
        "format": FORMAT,
        "problem": problem.reference(),
        "method": method.name(),
        "plan": None if plan is None else plan.as_json(),
        "library": method.library,
        "simulated_link": problem.simulated,
        "digest": method.times_["digest"] if method.fidelity_ else None,
        "scores": {},
    }
    (directory / FILE).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    add_scores(directory, {})


def add_scores(directory: Path, scores: Mapping[str, float]) -> None:
    """Write scores into an export, for programs and for people."""
    path = directory / FILE
    found = json.loads(path.read_text(encoding="utf-8"))
    found["scores"] = dict(scores)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    problem = found["problem"]
    sizes = ", ".join(f"{k} = {v}" for k, v in problem["shape"].items())
    what = found["plan"] or {"library": found["library"]}
    lines = [
        f"# {found['method']} for {problem['operator']}",
        "",
        f"{problem['ranks']} ranks over {problem['transport']}; {sizes}.",
        "",
        *[f"- {name}: {value}" for name, value in what.items()],
        "",
        *(["Times are those of a **simulated link** (simulated_link), of no hardware.", ""]
          if found["simulated_link"] else []),
        *[f"- {name}: {value:.6g}" for name, value in scores.items()],
        "",
        "```python",
        "from lamps_plugins.distributed_tensor_kernels import load",
        f'load("{directory.name}").run()',
        "```",
        "",
    ]  # fmt: skip
    (directory / "README.md").write_text("\n".join(lines), encoding="utf-8")


def read(directory: Path) -> Exported:
    """Read an export.

    Raises:
        ProblemError: It is not there, or is no plan.
    """
    path = directory / FILE
    if not path.is_file():
        raise ProblemError(f"{path} does not exist; give an exported folder")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ProblemError(f"{path} has format {found['format']}, expected {FORMAT}")
        plan = None if found["plan"] is None else Plan.from_json(found["plan"])
        problem = TileFamily().reopen(found["problem"])
        return Exported(problem, found["method"], plan, found["library"], found["scores"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ProblemError(
            f"{path} is no exported plan: {type(error).__name__} {error}"
        ) from error
