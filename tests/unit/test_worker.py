"""One landmark in one worker: what it measures, writes, refuses and survives."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from lamps.artifacts import read_checkpoint
from lamps.catalogue import open_problem
from lamps.errors import StoreError
from lamps.method import Problem
from lamps.scheduler.worker import LandmarkTask, run_landmark, trial_stream
from lamps.types import Candidate

PLUGIN = '''"""Misbehaves in ways that the shipped method does not.

Paper: none.
"""

from dataclasses import dataclass

from lamps import space as hp
from lamps.method import Method, MethodSpec, Tags
from lamps.types import Evaluation
from lamps_plugins.replay import curve_replay
from lamps_plugins.replay._problem import ReplayProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(curve_replay.Params):
    """What it does."""

    how: str = hp.fixed("", doc="What it does.")


class Odd(curve_replay.CurveReplay, Method[ReplayProblem, Params]):
    """Odd."""

    spec = MethodSpec(family="replay", summary="odd", tags=Tags(data_free=True))

    def partial_fit(self, problem, fidelity, *, rng):
        """Do it."""
        super().partial_fit(problem, fidelity, rng=rng)
        if self.params.how == "full":
            with open("/dev/full", "w") as file:
                file.write("x")
        if self.params.how == "denied":
            raise PermissionError(13, "denied")
        if self.params.how == "interrupt":
            raise KeyboardInterrupt
        return self

    def evaluate(self, problem, split="val"):
        """Return it."""
        good = super().evaluate(problem, split)
        values = dict(good.objectives)
        match self.params.how:
            case "missing":
                del values["mb"]
            case "more":
                values["unheard_of"] = 1.0
            case "bool":
                values["mb"] = True
            case "numpy":
                import numpy as np
                values = {k: np.float32(v) for k, v in values.items()}
            case "signal":
                return Evaluation(values, {"note": "text"})
            case "dict":
                return values
        return Evaluation(values, good.signals)
'''


@pytest.fixture
def problem(curves: Path) -> Problem:
    """Four curves."""
    return open_problem(None, f"replay:{curves}", {}, "")[1]


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """A folder with the plugin above."""
    folder = tmp_path / "plugins" / "replay"
    folder.mkdir(parents=True)
    (folder / "odd.py").write_text(PLUGIN)
    return str(folder.parent)


def task(
    tmp_path: Path, fidelity: float | None = 0.0, *, plugin_path: str = "", **params: object
) -> LandmarkTask:
    """A landmark of curve ``b``."""
    return LandmarkTask(
        key=7,
        candidate=Candidate(
            "replay", "odd" if plugin_path else "curve-replay", {"curve": "b", **params}
        ),  # type: ignore[dict-item]
        fidelity=fidelity,
        seed=3,
        target=str(tmp_path / "out" / "x.safetensors"),
        plugin_path=plugin_path,
    )


# -- the stream ----------------------------------------------------------------------------------


def test_the_stream_depends_on_seed_and_candidate_alone() -> None:
    a, b = Candidate("f", "m", {"x": 1, "y": 2}), Candidate("f", "m", {"y": 2, "x": 1})
    other = Candidate("f", "m", {"x": 2, "y": 2})
    draw = trial_stream(5, a).random(4).tolist()
    assert trial_stream(5, b).random(4).tolist() == draw
    assert trial_stream(5, a).random(4).tolist() == draw
    assert trial_stream(6, a).random(4).tolist() != draw
    assert trial_stream(5, other).random(4).tolist() != draw


# -- what goes well ------------------------------------------------------------------------------


def test_an_ok_landmark_is_measured_and_written(problem: Problem, tmp_path: Path) -> None:
    result = run_landmark(task(tmp_path, 0.25, sleep_s=0.02), problem)
    assert (result.key, result.kind, result.error) == (7, "ok", "")
    assert result.evaluation is not None
    assert dict(result.evaluation.objectives) == {"error": 0.5, "mb": 2.0}
    assert result.cost is not None
    assert 0.04 <= result.cost.wall_s < 5.0  # two landmarks were fitted, 0 and 0.25
    assert result.cost.device_s >= 0.0
    assert result.cost.peak_bytes > 10_000_000
    assert result.checkpoint is not None
    assert result.cost.checkpoint_bytes == Path(result.checkpoint.uri).stat().st_size
    state = read_checkpoint(result.checkpoint.uri, result.checkpoint.sha256)
    assert state["level"] == 1
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["x.safetensors"]
    pickle.loads(pickle.dumps(result))


def test_a_landmark_goes_on_from_its_checkpoint(problem: Problem, tmp_path: Path) -> None:
    first = run_landmark(task(tmp_path, 0.5, sleep_s=0.1), problem)
    assert first.checkpoint is not None
    again = task(tmp_path, 1.0, sleep_s=0.1)
    again = LandmarkTask(
        key=8,
        candidate=again.candidate,
        fidelity=1.0,
        seed=3,
        target=str(tmp_path / "out" / "y.safetensors"),
        checkpoint=(first.checkpoint.uri, first.checkpoint.sha256),
    )
    second = run_landmark(again, problem)
    assert second.cost is not None
    assert first.cost is not None
    assert second.cost.wall_s < first.cost.wall_s / 2  # one landmark, not four
    assert second.checkpoint is not None
    seconds = [
        float(read_checkpoint(c.uri)["lamps.train_s"])
        for c in (first.checkpoint, second.checkpoint)
    ]
    assert seconds[1] > seconds[0] + 0.09  # seconds of training add up over landmarks


def test_a_test_evaluation_fits_nothing_and_writes_nothing(
    problem: Problem, tmp_path: Path
) -> None:
    first = run_landmark(task(tmp_path, 1.0), problem)
    assert first.checkpoint is not None
    last = LandmarkTask(
        key=-1,
        candidate=task(tmp_path).candidate,
        fidelity=None,
        seed=3,
        target="",
        checkpoint=(first.checkpoint.uri, first.checkpoint.sha256),
        split="test",
    )
    result = run_landmark(last, problem)
    assert (result.kind, result.checkpoint) == ("ok", None)
    assert result.evaluation is not None
    assert dict(result.evaluation.objectives) == {"test_error": 0.2, "test_mb": 2.0}
    Path(first.checkpoint.uri).unlink()
    lost = run_landmark(last, problem)
    assert lost.kind == "storage"  # without the weights there is nothing to test


@pytest.mark.parametrize("damage", ["gone", "short", "other"])
def test_a_damaged_checkpoint_costs_time_only(
    damage: str, problem: Problem, tmp_path: Path
) -> None:
    first = run_landmark(task(tmp_path, 0.5), problem)
    assert first.checkpoint is not None
    path = Path(first.checkpoint.uri)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-3] if damage == "short" else b"something else")
    given = task(tmp_path, 1.0)
    result = run_landmark(
        LandmarkTask(
            key=9, candidate=given.candidate, fidelity=1.0, seed=3, target=given.target,
            checkpoint=(str(path), first.checkpoint.sha256),
        ),
        problem,
    )  # fmt: skip
    assert result.kind == "ok"
    assert result.evaluation is not None
    assert result.evaluation.objectives["error"] == 0.2


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said", "reported"),
    [
        ("raise", "RuntimeError: curve-replay was told to raise", False),
        ("exit", "the method called sys.exit(7)", False),
        ("nan", "MethodFailed: not finite: error=nan, mb=nan", True),
        ("inf", "MethodFailed: not finite: error=inf, mb=inf", True),
        ("text", "ContractError: curve-replay returned error='n/a', expected a number", False),
        ("nothing", "ContractError: curve-replay returned None from evaluate, ", False),
    ],
)
def test_a_fault_fails_the_landmark_and_writes_nothing(
    fault: str, said: str, reported: bool, problem: Problem, tmp_path: Path
) -> None:
    result = run_landmark(task(tmp_path, 0.25, fault=fault), problem)
    assert (result.kind, result.checkpoint) == ("failed", None)
    assert result.error.split("\n")[0].startswith(said)
    assert (result.evaluation is not None) is reported
    assert result.cost is not None
    assert result.cost.wall_s > 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("missing", "failed", "ContractError: odd did not measure mb; family replay declares"),
        ("bool", "failed", "ContractError: odd returned mb=True, expected a number"),
        ("signal", "failed", "ValueError: "),
        ("dict", "failed", "ContractError: odd returned {"),
        ("denied", "failed", "PermissionError: "),
        ("full", "storage", "disk full: "),
        ("more", "ok", ""),
        ("numpy", "ok", ""),
    ],
)
def test_what_methods_return(
    how: str, kind: str, said: str, odd: str, problem: Problem, tmp_path: Path
) -> None:
    result = run_landmark(task(tmp_path, 0.25, plugin_path=odd, how=how), problem)
    assert result.kind == kind, result.error
    assert result.error.startswith(said)
    if kind == "ok":
        assert result.evaluation is not None
        assert set(result.evaluation.objectives) == {"error", "mb"}
        assert all(type(v) is float for v in result.evaluation.objectives.values())


def test_only_an_interrupt_passes_through(odd: str, problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_landmark(task(tmp_path, 0.25, plugin_path=odd, how="interrupt"), problem)


def test_an_artifact_root_that_cannot_be_written_is_nobodys_fault(
    problem: Problem, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    result = run_landmark(task(tmp_path), problem)
    assert (result.kind, result.cost) == ("storage", None)
    assert "cannot write checkpoint" in result.error


def test_a_method_that_is_not_installed_here_fails(problem: Problem, tmp_path: Path) -> None:
    unknown = LandmarkTask(
        key=1, candidate=Candidate("replay", "unheard-of", {}), fidelity=0.0, seed=0, target="x"
    )
    result = run_landmark(unknown, problem)
    assert result.kind == "failed"
    assert "UnknownMethod: " in result.error


def test_the_checkpoint_of_another_trial_is_never_read(problem: Problem, tmp_path: Path) -> None:
    first = run_landmark(task(tmp_path), problem)
    assert first.checkpoint is not None
    with pytest.raises(StoreError, match="damaged"):
        read_checkpoint(first.checkpoint.uri, "0" * 64)


def test_equal_tasks_give_equal_checkpoints(problem: Problem, tmp_path: Path) -> None:
    states = []
    for name in ("one", "two"):
        result = run_landmark(task(tmp_path / name, 0.5, payload_bytes=50), problem)
        assert result.checkpoint is not None
        state = read_checkpoint(result.checkpoint.uri)
        del state["lamps.train_s"]
        states.append(state)
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(states[0][k], states[1][k]) for k in states[0])
