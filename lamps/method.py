"""The plugin contract: what a method, a problem and a family owe each other and the scheduler.

A *family* fixes inputs, outputs, objectives, fidelity unit, splits and baselines. A *problem* is
one instance of it. A *method* solves problems of its family step by step. The scheduler, the store
and the policies see nothing else.

Three promises make landmarks work:

1. **Nested.** The data of a landmark is contained in the data of the next one.
2. **Resumable.** ``state_dict`` after any ``partial_fit`` is enough to go on in another process.
3. **Path-free.** The numbers at a fidelity do not depend on how many stops there were before it.

For the third, ``partial_fit`` receives at every call a generator in the *same* start state (the
trial's stream). Draw everything that concerns the whole run (such as the order of the examples)
first; for what concerns one step only, take `substream` with the position of the step.
"""

from __future__ import annotations

import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args

import numpy as np
from numpy.random import Generator

from lamps import space
from lamps.config import cache_dir
from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.tables import LandmarkTable
from lamps.types import Candidate, Evaluation, Json, Objective, Resources, Split

__all__ = [
    "CONTRACT_VERSION",
    "MEASURED_BY_WORKER",
    "Family",
    "Method",
    "MethodSpec",
    "ModelCatalogue",
    "ModelInfo",
    "Paper",
    "Problem",
    "ProblemOption",
    "Tags",
    "cache_dir",
    "substream",
]

CONTRACT_VERSION = 1
"""Raised when a change here breaks plugins.

A family that states another number is refused as outdated.
"""

MEASURED_BY_WORKER = ("train_s", "peak_bytes")
"""Objectives that the worker adds to every evaluation.

Cumulated seconds of ``partial_fit`` over all landmarks of the trial, and the largest resident
memory. A problem may list them; ``Method.evaluate`` leaves them out.
"""

State = dict[str, Any]
"""What a checkpoint holds: arrays (NumPy or torch) and JSON scalars, lists and dicts, by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Where a method comes from."""

    title: str
    arxiv: str | None = None
    venue: str | None = None
    section: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What is true of a method; the conformance suite chooses its checks by them.

    Args:
        deterministic: Same params, problem and seed give the same objectives bit for bit (timings
            aside).
        data_free: Never reads training examples.
        needs_gpu: Refuses to run without a CUDA device.
        resumable: Can go on from its own ``state_dict``.
        wrapper: Takes another method as the param ``child``.
        baseline: Belongs into every pool of its family.
        cheap: One full run costs seconds, so it is always run to the end.
    """

    deterministic: bool = True
    data_free: bool = False
    needs_gpu: bool = False
    resumable: bool = True
    wrapper: bool = False
    baseline: bool = False
    cheap: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MethodSpec:
    """The facts about a method that can be read without running it.

    Args:
        family: The family it belongs to.
        summary: One line for lists.
        version: Raised when its numbers change; stored with every run.
        paper: Its source; None for a plain baseline.
        tags: See `Tags`.
        expected_failures: Conformance checks it knowingly fails, each with the reason. One that
            passes is an error.
        resources: What one landmark occupies.
    """

    family: str
    summary: str
    version: str = "1"
    paper: Paper | None = None
    tags: Tags = dataclasses.field(default_factory=Tags)
    expected_failures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    resources: Resources = dataclasses.field(default_factory=Resources)


class Problem(ABC):
    """One concrete instance of a family: data, splits, objectives, fidelities.

    Picklable; travels once per node. The test split is opened by the scheduler alone, after the
    search.
    """

    family: ClassVar[str]
    name: str
    notes: Sequence[str] = ()
    """Sentences about the data that the user should see; logged when a search begins."""

    @property
    @abstractmethod
    def objectives(self) -> tuple[Objective, ...]:
        """Everything a landmark measures, in a fixed order."""

    @property
    @abstractmethod
    def fidelities(self) -> tuple[float, ...]:
        """Increasing shares of the full effort; the first is 0 (untouched), the last is 1."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What a fidelity counts: ``examples``, ``steps``, ``layers``, ..."""

    @abstractmethod
    def amount(self, fidelity: float) -> float:
        """A fidelity in `unit`."""

    @abstractmethod
    def reference(self) -> dict[str, Json]:
        """JSON from which `Family.reopen` makes an equal problem.

        On a machine that has the same files.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of data, splits and everything else that changes results."""

    @abstractmethod
    def card(self) -> dict[str, Json]:
        """Meta-features and provenance.

        Sizes, classes, language, licence, what was dropped and why.
        """

    def floor(self, split: Split = "val") -> dict[str, float]:
        """Objectives of the best answer that ignores the input (such as the majority class).

        Empty if there is none.
        """
        return {}

    def landmark_table(self) -> LandmarkTable | None:
        """The recorded curves of the pool.

        For problems that are one; the backend ``replay`` needs it.
        """
        return None

    def size_hint(self, candidate: Candidate) -> float:
        """Expected size of a candidate before anything ran.

        In any unit that orders candidates; NaN if unknown.
        """
        return float("nan")

    def objective(self, name: str) -> Objective:
        """The objective of that name.

        Raises:
            ProblemError: There is none.
        """
        for candidate in self.objectives:
            if candidate.name == name:
                return candidate
        known = [o.name for o in self.objectives]
        raise ProblemError(
            f"{self.family} measures no objective {name!r}. {did_you_mean(name, known)}"
        )


ProblemT = TypeVar("ProblemT", bound=Problem)
ParamsT = TypeVar("ParamsT")


class Method(ABC, Generic[ProblemT, ParamsT]):
    """One way to solve the problems of a family, at any fidelity.

    A subclass sets ``spec``, names its ``Params`` (a frozen dataclass of `lamps.space` fields) as
    the last type argument, ``class ModelSoup(Method[MergeProblem, Params])``, and implements six
    calls. The constructor only stores; what is learned ends in an underscore.
    """

    spec: ClassVar[MethodSpec]
    Params: ClassVar[type]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base)[-1:]:
                if isinstance(argument, type) and dataclasses.is_dataclass(argument):
                    cls.Params = argument

    def __init__(self, params: ParamsT) -> None:
        self.params = params
        self.fidelity_: float | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the method: that of its file, with hyphens."""
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        stem = Path(file).stem if file else cls.__module__.rsplit(".", 1)[-1]
        return stem.replace("_", "-")

    @classmethod
    def from_params(cls, values: Mapping[str, Any]) -> Self:
        """An untouched method from JSON params.

        Unknown names and values out of range are refused.
        """
        return cls(space.build(cls.Params, values, where=f"method {cls.name()!r}"))

    @abstractmethod
    def partial_fit(self, problem: ProblemT, fidelity: float, *, rng: Generator) -> Self:
        """Bring the method up to that fidelity; a fidelity already reached returns at once.

        Args:
            problem: The instance to solve; never written to.
            fidelity: One of ``problem.fidelities``.
            rng: The trial's stream in its start state; see the module docstring.
        """

    @abstractmethod
    def evaluate(self, problem: ProblemT, split: Split = "val") -> Evaluation:
        """Measure, never learn: every objective of the problem, by the family's common code.

        On ``split="test"`` the names start with ``test_`` instead of ``val_``, and signals hold
        the ends of their intervals as ``NAME_low`` and ``NAME_high``.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Arrays and JSON values that are enough to go on elsewhere; ``fidelity_`` included."""

    @abstractmethod
    def load_state_dict(self, state: State, problem: ProblemT) -> None:
        """The inverse of `state_dict` on an untouched method."""

    @abstractmethod
    def save(self, problem: ProblemT, directory: Path) -> None:
        """Write what a user can load without lamps, into an existing empty directory."""

    def fit(self, problem: ProblemT, *, rng: Generator) -> Self:
        """All fidelities of the problem in turn."""
        state = rng.bit_generator.state
        for fidelity in problem.fidelities:
            fresh = np.random.Generator(type(rng.bit_generator)())
            fresh.bit_generator.state = state
            self.partial_fit(problem, fidelity, rng=fresh)
        return self

    def __repr__(self) -> str:
        at = "untouched" if self.fidelity_ is None else f"fidelity {self.fidelity_:g}"
        return f"{type(self).__name__}({self.params}, {at})"


def substream(rng: Generator, *position: int) -> Generator:
    """A generator for one step, fixed by the trial's stream and the step's position alone.

    Consumes nothing of ``rng``, so it may be called in any order and any number of times.

    Example:
        >>> root = np.random.default_rng(3)
        >>> a, b = substream(root, 5).random(), substream(root, 5).random()
        >>> a == b, a == substream(root, 6).random()
        (True, False)
    """
    state: Any = rng.bit_generator.state
    inner = state["state"]
    # PCG64 keeps integers; other bit generators keep arrays too.
    words = [int(w) for k in sorted(inner) for w in np.ravel(np.asarray(inner[k], dtype=object))]
    return np.random.default_rng([*words, *position])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOption:
    """A setting that a family needs to open a problem; the command line shows it as ``--name``.

    Args:
        name: Snake case; the flag has hyphens instead.
        doc: One sentence for help.
        kind: ``str``, ``int``, ``float``, ``flag`` or ``path``.
        multiple: Whether it may be given several times (the value is then a list).
        default: Value when it is not given.
        choices: Allowed values of a ``str``.
    """

    name: str
    doc: str
    kind: str = "str"
    multiple: bool = False
    default: Json = None
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A pretrained model that a family can use.

    Args:
        name: What a user types.
        kind: Word of the family, such as ``encoder``, ``decoder``, ``static``.
        path: Local folder; None while it has not been added.
        parameters: Number of weights.
        size_bytes: Bytes of the weights on disk; 0 while it has not been added.
        licence: As its publisher states it.
        source: Package, folder or hub id it comes from.
        sha256: Hash of the weights; empty while it has not been added.
        n_layers: Depth, where it has one.
        state: ``ready``, ``installable`` (package not installed), ``convertible`` (installed,
            added on first use).
    """

    name: str
    kind: str
    path: str | None
    parameters: int
    size_bytes: int
    licence: str
    source: str
    sha256: str = ""
    n_layers: int = 0
    state: str = "ready"


class ModelCatalogue(ABC):
    """The pretrained models that a family knows by name."""

    @abstractmethod
    def list(self) -> Sequence[ModelInfo]:
        """All known models, ready or not."""

    @abstractmethod
    def resolve(self, name: str) -> ModelInfo:
        """The model of that name, local folder or hub id; converted into the cache where needed.

        Raises:
            ProblemError: It cannot be had; the message says what to install.
        """


class Family(ABC):
    """A family of problems; its package's ``_problem.py`` holds one instance named ``FAMILY``."""

    contract: ClassVar[int] = CONTRACT_VERSION
    name: ClassVar[str]
    summary: ClassVar[str]
    default_objectives: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[ProblemOption, ...]] = ()

    @abstractmethod
    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> Problem:
        """The problem that a user named.

        Args:
            reference: A data file, or the name of a built-in problem; None where options say all.
            options: Values by `ProblemOption.name`.
        """

    @abstractmethod
    def reopen(self, reference: Mapping[str, Json]) -> Problem:
        """The problem that `Problem.reference` described; refused if its fingerprint changed."""

    @abstractmethod
    def toy_problem(self, *, seed: int = 0) -> Problem:
        """A tiny real instance that runs in seconds without any download.

        The conformance suite uses it.
        """

    def toy_for(self, method: type[Method[Any, Any]]) -> Problem:
        """The toy problem that the conformance suite tries a method on.

        `toy_problem`, unless the method is for instances of another kind.
        """
        return self.toy_problem()

    def opens(self, data: Path) -> bool:
        """Whether a data file that a user names without a family is for this one."""
        return False

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the family does not have.

        Raises:
            ConfigError: It names the first one.
        """
        known = [option.name for option in self.options]
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"{self.name} has no option {name!r}. {did_you_mean(name, known)}"
                )

    def require_unchanged(self, problem: Problem, fingerprint: object, restore: str) -> None:
        """Refuse a reopened problem that is not what it was.

        Args:
            problem: As it was opened now.
            fingerprint: What it was before.
            restore: What the user may restore, such as ``model and text``.

        Raises:
            ProblemError: The fingerprints differ.
        """
        if problem.fingerprint() != fingerprint:
            raise ProblemError(
                f"{problem.name} changed: its fingerprint was {fingerprint}, now it is "
                f"{problem.fingerprint()}. Restore {restore}, or start a new run"
            )

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the measured scores into what people read of an exported member."""
        return

    def models(self) -> ModelCatalogue | None:
        """The catalogue of pretrained models, where the family has one."""
        return None

    def default_models(self, problem: Problem) -> Sequence[str]:
        """Models that enter the pool when the user names none."""
        return ()

    def candidates(
        self,
        problem: Problem,
        methods: Mapping[str, type[Method[Any, Any]]],
        models: Sequence[str],
        *,
        given: Mapping[str, Mapping[str, Any]],
        per_method: int,
        seed: int,
    ) -> list[Candidate]:
        """The pool: for each method and fitting model the defaults first, then sampled params.

        Sampling is Optuna's `QMCSampler` (scrambled Sobol), so params cover the ranges evenly.
        Candidates that differ in nothing are listed once.
        """
        pool: dict[str, Candidate] = {}
        for name, method in methods.items():
            for fixed in self._model_choices(method, models):
                fixed |= given.get(name, {})
                for params in _sampled(method.Params, fixed, per_method, seed):
                    candidate = Candidate(self.name, name, params)
                    pool.setdefault(candidate.key, candidate)
        return list(pool.values())

    def _model_choices(
        self, method: type[Method[Any, Any]], models: Sequence[str]
    ) -> Iterator[dict[str, Json]]:
        wanted = {
            name: hp
            for name, hp in space.hyperparameters(method.Params).items()
            if hp.kind == "model"
        }
        if not wanted:
            yield {}
            return
        catalogue = self.models()
        if catalogue is None:
            raise ConfigError(
                f"family {self.name!r} has no models, but {method.name()!r} asks for one"
            )
        (field, hp), *more = wanted.items()
        if more:
            raise ConfigError(f"method {method.name()!r} asks for more than one model")
        for model in models:
            if catalogue.resolve(model).kind in hp.accepts:
                yield {field: model}

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Json]]:
        """Answers of an exported member for new data, one mapping a row.

        Raises:
            ProblemError: The family cannot predict, or the data does not fit.
        """
        raise ProblemError(f"members of family {self.name!r} do not predict rows")


def _sampled(
    params: type, given: Mapping[str, Json], count: int, seed: int
) -> Iterator[dict[str, Json]]:
    defaults = space.as_json(params()) | dict(given)
    yield defaults
    searched = {k: d for k, d in space.distributions(params).items() if k not in given}
    if count <= 1 or not searched:
        return
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.QMCSampler(
            seed=seed, scramble=True, warn_independent_sampling=False
        )
        study = optuna.create_study(sampler=sampler)
        # The first QMC trial has no search space yet and is sampled independently; it only fixes
        # the space.
        study.add_trial(
            optuna.create_trial(
                params={k: defaults[k] for k in searched}, distributions=searched, value=0.0
            )
        )
        for _ in range(count - 1):
            trial = study.ask(searched)
            yield defaults | trial.params
            study.tell(trial, 0.0)
