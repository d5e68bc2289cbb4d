"""What a notebook user types: `search`, `resume`, `open_store`, and the runs they give back."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps import __version__, pareto, plugins, space
from lamps import policy as policies
from lamps.config import Settings, load_settings, parse_bytes, parse_duration
from lamps.errors import (
    ConfigError,
    LampsWarning,
    PluginError,
    ProblemError,
    UnknownMethod,
    did_you_mean,
)
from lamps.front import Front, Member
from lamps.method import Family, Method, Problem
from lamps.scheduler.backend import Backend
from lamps.scheduler.controller import Controller, Listener, Outcome
from lamps.store import DecisionRecord, FinalValues, RunSpec, RunSummary, Trial
from lamps.store import Run as StoredRun
from lamps.store import Store as SqlStore
from lamps.store.engine import parse_url
from lamps.types import Budget, Candidate, Objective, Resources

BACKENDS = ("ray", "local", "replay")


def make_backend(
    name: str, *, workers: int, address: str | None = None, dashboard: bool = False
) -> Backend:
    """A backend by name.

    Raises:
        UnknownMethod: There is none of that name.
    """
    if name == "local":
        from lamps.scheduler.local import LocalBackend

        return LocalBackend()
    if name == "replay":
        from lamps.scheduler.replay import ReplayBackend

        return ReplayBackend(max(workers, 1))
    if name == "ray":
        from lamps.scheduler.ray import RayBackend

        return RayBackend(workers, address=address, dashboard=dashboard)
    raise UnknownMethod(f"no backend {name!r}. {did_you_mean(name, BACKENDS)}")


def open_problem(
    data: str | Path | None, problem: str | None, options: Mapping[str, Any], plugin_path: str
) -> tuple[Family, Problem]:
    """The problem that a user named, and its family.

    Args:
        data: A data file; the family is the one that opens such files.
        problem: ``FAMILY`` or ``FAMILY:REFERENCE``.
        options: The family's options.
        plugin_path: Folders with loose plugins.
    """
    found = plugins.registry(plugin_path)
    if problem is not None:
        name, _, reference = problem.partition(":")
        family = found.load_family(name)
        if data is not None and reference:
            raise ConfigError(f"both a data file ({data}) and --problem {problem} were given")
        _check_options(family, options)
        return family, family.open_problem(reference or (str(data) if data else None), options)
    if data is None:
        raise ConfigError(
            "nothing to search: give a data file, or --problem FAMILY:NAME. "
            f"Families: {', '.join(sorted(found.families))}"
        )
    family = _family_for(Path(data), found)
    _check_options(family, options)
    return family, family.open_problem(str(data), options)


def _check_options(family: Family, options: Mapping[str, Any]) -> None:
    known = [o.name for o in family.options]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"family {family.name!r} has no option {name!r}. {did_you_mean(name, known)}"
            )


def _family_for(data: Path, found: plugins.Registry) -> Family:
    families = []
    for name in sorted(found.families):
        try:
            family = found.load_family(name)
        except PluginError as error:
            warnings.warn(f"family {name!r} is left out: {error}", LampsWarning, stacklevel=4)
            continue
        if family.opens(data):
            families.append(family)
    if len(families) == 1:
        return families[0]
    if not families:
        raise ProblemError(
            f"no family opens {str(data)!r}; name one with --problem FAMILY:{data}. "
            f"Families: {', '.join(sorted(found.families))}"
        )
    names = ", ".join(f.name for f in families)
    raise ConfigError(f"several families open {str(data)!r}: {names}; say --problem FAMILY:{data}")


def search(
    data: str | Path | None = None,
    *,
    problem: str | None = None,
    methods: Sequence[str] = (),
    models: Sequence[str] = (),
    candidates: Sequence[Candidate] = (),
    params: Mapping[str, Mapping[str, Any]] | None = None,
    samples: int = 1,
    objectives: Sequence[str] = (),
    budget: Budget | str | None = None,
    policy: str = policies.DEFAULT,
    backend: str = "ray",
    workers: int | None = None,
    address: str | None = None,
    dashboard: bool = False,
    cpus: float | None = None,
    gpus: float | None = None,
    memory: str | None = None,
    store: str | None = None,
    artifacts: str | None = None,
    plugin_path: str | None = None,
    name: str | None = None,
    seed: int = 0,
    listener: Listener | None = None,
    **options: Any,
) -> Run:
    """Search the catalogue of a problem's family for its Pareto front.

    Args:
        data: A data file, such as a CSV of labelled texts.
        problem: ``FAMILY:NAME`` for any other problem.
        methods: Methods of the pool; all of the family if empty.
        models: Pretrained models of the pool; those that are at hand if empty.
        candidates: The pool itself; replaces methods, models, params and samples.
        params: Fixed params by method name, ``{"lora": {"rank": 16}}``.
        samples: Settings per method and model: the defaults and so many minus one sampled ones.
        objectives: What the front is drawn over; the family's default if empty.
        budget: A `Budget`, or a duration such as ``"30m"``; None runs until the policy stops.
        policy: Name of the allocation policy, with options in brackets.
        backend: ``ray``, ``local`` or ``replay``.
        workers: Landmarks at once; None or 0 means one per core.
        address: Address of a Ray cluster; None starts Ray on this machine.
        dashboard: Whether the started Ray serves its dashboard.
        cpus: CPUs that each landmark occupies; None means what its method asks for.
        gpus: GPUs that each landmark occupies, may be a fraction.
        memory: Memory that each landmark occupies, such as ``"4GB"``.
        store: SQLAlchemy URL of the database.
        artifacts: fsspec URL for checkpoints.
        plugin_path: Folders with loose plugins.
        name: Name of the run; made from problem and time if None.
        seed: Root of all randomness.
        listener: Called after every change with a `lamps.scheduler.controller.Progress`.
        **options: Options of the family, such as ``target="label"``.

    Returns:
        The run, with `Run.outcome` set.

    Raises:
        LampsError: See `lamps.errors`; nothing is stored when the problem or the pool cannot be
            used.
    """
    settings = load_settings(
        {"store": store, "artifacts": artifacts, "workers": workers, "plugin_path": plugin_path}
    )
    parse_url(settings.store)
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {seed}, expected 0 to 2**63 - 1")
    family, opened = open_problem(data, problem, options, settings.plugin_path)
    n_workers = _workers(backend, settings.workers)
    pool = list(candidates) or _pool(
        family, opened, settings, methods, models, params or {}, samples, seed
    )
    classes = _classes(pool, settings.plugin_path)
    measured = opened.objectives
    chosen = tuple(objectives) or family.default_objectives or tuple(o.name for o in measured)
    for text in chosen:
        opened.objective(text)
    rule = policies.make(policy, seed=seed)
    engine = make_backend(backend, workers=n_workers, address=address, dashboard=dashboard)
    spec = RunSpec(
        name=_default_name(opened) if name is None else name,
        family=family.name,
        problem_name=opened.name,
        problem_reference=opened.reference(),
        problem_fingerprint=opened.fingerprint(),
        problem_card=opened.card(),
        objectives=measured,
        front_objectives=chosen,
        fidelities=opened.fidelities,
        unit=opened.unit,
        settings={
            "backend": backend,
            "policy": policy,
            "address": address,
            "dashboard": dashboard,
            "plugin_path": settings.plugin_path,
            "samples": samples,
            "resources": {
                "cpus": cpus,
                "gpus": gpus,
                "memory_bytes": None if memory is None else parse_bytes(memory),
            },
            "lamps": __version__,
        },
        seed=seed,
        budget=_budget(budget),
        policy=rule.name,
        policy_version=rule.version,
        workers=n_workers,
        artifact_root=settings.artifact_root(),
        method_versions={c.method: classes[c.method].spec.version for c in pool},
        models=_used_models(family, pool),
        size_hints=[opened.size_hint(c) for c in pool],
    )
    try:
        engine.check(_resources(classes[c.method].spec.resources, spec.settings) for c in pool)
        with SqlStore.open(settings.store) as database:
            run = database.create_run(spec, pool, [_label(c, classes[c.method]) for c in pool])
            outcome = _drive(database, run, opened, engine, settings.plugin_path, listener)
    finally:
        engine.close()
    return Run(settings.store, run.name, outcome)


def resume(
    name: str,
    *,
    store: str | None = None,
    budget: Budget | str | None = None,
    workers: int | None = None,
    backend: str | None = None,
    address: str | None = None,
    plugin_path: str | None = None,
    listener: Listener | None = None,
) -> Run:
    """Go on with a run that was interrupted, killed, or ended by its budget.

    Args:
        name: Name of the run.
        store: SQLAlchemy URL of the database.
        budget: A new budget for the whole run, what was spent so far included; None keeps the old
            one.
        workers: Landmarks at once; None keeps the old number.
        backend: Another backend; None keeps the old one.
        address: Another Ray cluster; None keeps the old one.
        plugin_path: Folders with loose plugins; None keeps the old ones.
        listener: As in `search`.

    Raises:
        StateError: The run is held by a living controller, or has nothing left to do.
        ProblemError: The data has changed since the run began.
    """
    settings = load_settings({"store": store})
    with SqlStore.open(settings.store) as database:
        run = database.run(name)
        path = run.settings.get("plugin_path", "") if plugin_path is None else plugin_path
        family = plugins.registry(str(path)).load_family(run.family)
        opened = family.reopen(run.problem_reference)
        kept = dict(run.settings)
        kept |= {k: v for k, v in (("backend", backend), ("address", address)) if v is not None}
        database.change_run(
            run.id,
            budget=None if budget is None else _budget(budget),
            settings=kept,
            workers=None if workers is None else _workers(str(kept["backend"]), workers),
        )
        run = database.run(name)
        engine = make_backend(
            str(kept["backend"]),
            workers=run.workers,
            address=None if kept["address"] is None else str(kept["address"]),
            dashboard=bool(kept["dashboard"]),
        )
        outcome = _drive(database, run, opened, engine, str(path), listener)
    return Run(settings.store, name, outcome)


def _drive(
    database: SqlStore,
    run: StoredRun,
    problem: Problem,
    backend: Backend,
    plugin_path: str,
    listener: Listener | None,
) -> Outcome:
    """Run the controller on a stored run until it ends, with the run's own settings."""
    from lamps.scheduler.signals import gentle_stop

    rule = policies.make(str(run.settings["policy"]), seed=run.seed)
    try:
        pool = [t.candidate for t in database.trials(run.id)]
        classes = _classes(pool, plugin_path)
        controller = Controller(
            database,
            run,
            problem,
            rule,
            backend,
            resources=[_resources(classes[c.method].spec.resources, run.settings) for c in pool],
            baselines=[i for i, c in enumerate(pool) if classes[c.method].spec.tags.baseline],
            plugin_path=plugin_path,
            listener=listener,
        )
        with gentle_stop(controller.stop):
            return controller.execute()
    finally:
        backend.close()


def _default_name(problem: Problem) -> str:
    return f"{problem.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def _resources(asked: Resources, settings: Mapping[str, Any]) -> Resources:
    """What a landmark occupies: what the user said, else what its method asks for."""
    given: Any = settings.get("resources") or {}
    said = {k: v for k, v in given.items() if v is not None}
    return dataclasses.replace(asked, **said)


def _workers(backend: str, wanted: int) -> int:
    if backend == "local":
        if wanted > 1:
            raise ConfigError(
                f"backend 'local' runs one landmark at a time, {wanted} workers were asked"
            )
        return 1
    return wanted or (1 if backend == "replay" else os.cpu_count() or 1)


def _budget(budget: Budget | str | None) -> Budget:
    if isinstance(budget, str):
        return Budget(wall_s=parse_duration(budget))
    return budget or Budget()


def _pool(
    family: Family,
    problem: Problem,
    settings: Settings,
    methods: Sequence[str],
    models: Sequence[str],
    params: Mapping[str, Mapping[str, Any]],
    samples: int,
    seed: int,
) -> list[Candidate]:
    if samples < 1:
        raise ConfigError(f"samples is {samples}, expected 1 or more")
    found = plugins.registry(settings.plugin_path)
    chosen = list(dict.fromkeys(methods)) or found.method_names(family.name)
    classes: dict[str, type[Method[Any, Any]]] = {}
    for method in chosen:
        try:
            cls = found.load_method(family.name, method)
        except PluginError as error:
            if methods:
                raise
            # Nobody asked for this one; a broken plugin must not stop the rest.
            warnings.warn(f"method {method!r} is left out: {error}", LampsWarning, stacklevel=3)
            continue
        if methods or not cls.spec.tags.needs_gpu:
            classes[method] = cls
    unused = set(params) - set(classes)
    if unused:
        word = sorted(unused)[0]
        raise ConfigError(
            f"params are given for {word!r}, which is not in the pool. "
            f"{did_you_mean(word, classes)}"
        )
    known = list(dict.fromkeys(models)) or list(family.default_models(problem))
    pool = family.candidates(problem, classes, known, given=params, per_method=samples, seed=seed)
    if not pool:
        raise ConfigError(
            f"the pool is empty: none of the methods {', '.join(classes)} fits one of the models "
            f"{', '.join(known) or '(none)'}"
        )
    for candidate in pool:
        classes[candidate.method].from_params(candidate.params)
    return pool


def _classes(pool: Sequence[Candidate], plugin_path: str) -> dict[str, type[Method[Any, Any]]]:
    found = plugins.registry(plugin_path)
    return {c.method: found.load_method(c.family, c.method) for c in pool}


def _label(candidate: Candidate, method: type[Method[Any, Any]]) -> str:
    """Method and what sets this candidate apart.

    Its model and the params that are not the defaults.
    """
    defaults = space.as_json(method.Params())
    params = {k: v for k, v in candidate.params.items() if k not in defaults or v != defaults[k]}
    return Candidate(candidate.family, candidate.method, params).label


def _used_models(family: Family, pool: Sequence[Candidate]) -> list[Any]:
    catalogue = family.models()
    if catalogue is None:
        return []
    names = dict.fromkeys(str(c.params["model"]) for c in pool if c.params.get("model"))
    return [catalogue.resolve(n) for n in names]


def open_store(url: str | None = None) -> Store:
    """The store at a URL (default: settings), for reading.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     open_store(f"sqlite:///{folder}/lamps.db").runs()
        []
    """
    return Store(load_settings({"store": url}).store)


class Store:
    """A database of runs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._sql = SqlStore.open(url)

    def run(self, name: str) -> Run:
        """The run of that name."""
        return Run(self.url, name, sql=self._sql)

    def runs(self) -> list[RunSummary]:
        """All runs, newest first."""
        return self._sql.runs()

    def check(self) -> list[str]:
        """What is wrong with the database; empty if nothing is."""
        return self._sql.check()

    def close(self) -> None:
        """Close the database."""
        self._sql.close()

    def __repr__(self) -> str:
        return f"Store({self._sql.url}, {len(self.runs())} runs)"


class Run:
    """One search: its front, its trials, its decisions, its members to take away.

    Args:
        url: URL of its store.
        name: Its name.
        outcome: How the call that gave it ended; None for a run that was opened.
        sql: The open store, where there is one.
    """

    def __init__(
        self, url: str, name: str, outcome: Outcome | None = None, *, sql: SqlStore | None = None
    ) -> None:
        self.name = name
        self.outcome = outcome
        self._sql = sql or SqlStore.open(url)
        self._head = self._sql.head(name)
        self._id = self._head.id

    @property
    def record(self) -> StoredRun:
        """Everything that is stored about the run itself, read afresh."""
        return self._sql.run(self.name)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives of its front."""
        by_name = {o.name: o for o in self._head.objectives}
        return tuple(by_name[n] for n in self._head.front_objectives)

    def trials(self) -> list[Trial]:
        """All trials with their landmarks."""
        return self._sql.trials(self._id)

    def decisions(self) -> list[DecisionRecord]:
        """All decisions in order."""
        return self._sql.decisions(self._id)

    def front(
        self,
        *objectives: str,
        where: str | Mapping[str, str] | Sequence[str] | None = None,
        unfinished: bool = False,
    ) -> Front:
        """The Pareto front.

        Args:
            *objectives: Names to draw it over; those of the run if none are given.
            where: Conditions, see `Front.of`.
            unfinished: Whether candidates that stopped early count, at the value of their last
                landmark.

        Raises:
            ConfigError: An objective was not measured by this run.
        """
        head = self._head
        by_name = {o.name: o for o in head.objectives}
        names = objectives or head.front_objectives
        for name in names:
            if name not in by_name:
                raise ConfigError(
                    f"run {self.name!r} has no objective {name!r}. {did_you_mean(name, by_name)}"
                )
        chosen = [by_name[n] for n in names]
        final = self._sql.final_values(self._id, finished_only=not unfinished)
        keep = np.arange(len(final.trial_index))
        if where is None and len(keep):
            # Only front members need their details; for large runs that is a small share.
            columns = [final.names.index(n) for n in names]
            values = pareto.to_minimization(
                final.values[:, columns], [o.direction for o in chosen]
            )
            keep = np.union1d(
                np.flatnonzero(pareto.is_nondominated(values)), pareto.extreme_rows(values)
            )
        return Front.of(self._members(final, keep), chosen, where=where, n_trials=head.n_trials)

    def _members(self, final: FinalValues, keep: NDArray[np.int64]) -> list[Member]:
        wanted = final.trial_index[keep].tolist()
        details = self._sql.members(self._id, wanted)
        members = []
        for position, index in zip(keep.tolist(), wanted, strict=True):
            known = details[index]
            members.append(
                Member(
                    index=index,
                    candidate=known.candidate,
                    label=known.label,
                    fidelity=self._head.fidelities[int(final.landmark[position])],
                    values=dict(zip(final.names, final.values[position].tolist(), strict=True)),
                    test={**known.test.values, **known.test.signals} if known.test else {},
                )
            )
        return members

    def export(self, candidate: int, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write a fitted candidate where plain libraries can load it.

        Args:
            candidate: Its index in the run.
            directory: A new or empty folder.
            overwrite: Whether a folder with content may be replaced.

        Raises:
            StateError: The candidate has no landmark yet, or its checkpoint is gone.
            ConfigError: The folder is not empty.
        """
        from lamps.scheduler.export import export_member

        return export_member(self._sql, self.record, candidate, Path(directory), overwrite)

    def __repr__(self) -> str:
        record = self.record
        done = record.counts.get("complete", 0)
        return (
            f"Run({self.name!r}, {record.state}, {done} of {record.n_trials} candidates finished, "
            f"{record.n_evaluations} landmarks, {record.spent_wall_s:.0f} s)"
        )
