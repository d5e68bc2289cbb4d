"""What a notebook user types: `search`, `resume`, `replicate`, `open_store`, and their results."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lamps import __version__, plugins
from lamps import policy as policies
from lamps.catalogue import build_pool, method_classes, open_problem, short_label, used_models
from lamps.config import load_settings, parse_bytes, parse_duration
from lamps.errors import ConfigError, StateError, UnknownMethod, did_you_mean
from lamps.method import Problem
from lamps.replication import Say
from lamps.replication_page import page
from lamps.replication_results import ReplicationResult
from lamps.replication_runs import measure_again
from lamps.runs import Run, Store, open_store
from lamps.scheduler.backend import Backend
from lamps.scheduler.begun import begun_before
from lamps.scheduler.controller import Controller
from lamps.scheduler.progress import Listener, Outcome, Progress, both
from lamps.store import Run as StoredRun
from lamps.store import RunSpec
from lamps.store import Store as SqlStore
from lamps.store.engine import parse_url
from lamps.types import Budget, Candidate, Resources

__all__ = [
    "BACKENDS",
    "ReplicationResult",
    "Run",
    "Store",
    "make_backend",
    "open_store",
    "replicate",
    "replication_page",
    "resume",
    "search",
]

BACKENDS = ("ray", "local", "replay")

_log = logging.getLogger("lamps")


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
    or_resume: bool = False,
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
        workers: Landmarks at once; None or 0 means one per core, of the cluster where there is
            one.
        address: Address of a Ray cluster; None starts Ray on this machine.
        dashboard: Whether the started Ray serves its dashboard.
        cpus: CPUs that each landmark occupies; None means what its method asks for.
        gpus: GPUs that each landmark occupies, may be a fraction.
        memory: Memory that each landmark occupies, such as ``"4GB"``.
        store: SQLAlchemy URL of the database.
        artifacts: fsspec URL for checkpoints.
        plugin_path: Folders with loose plugins.
        name: Name of the run; made from problem and time if None.
        or_resume: Go on with the run of that name where there is one that was asked for in the
            same words, so that one command can be given again and again.
        seed: Root of all randomness.
        listener: Called after every change with a `lamps.scheduler.progress.Progress`.
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
    for note in opened.notes:
        _log.info("%s", note)
    n_workers = _workers(backend, settings.workers, address)
    pool = list(candidates) or build_pool(
        family, opened, settings.plugin_path, methods, models, params or {}, samples, seed
    )
    classes = method_classes(pool, settings.plugin_path)
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
            "asked": {
                "data": None if data is None else str(data),
                "problem": problem,
                "methods": list(methods),
                "models": list(models),
                "params": json.loads(json.dumps(params or {}, default=str)),
                "own_candidates": bool(candidates),
                "options": json.loads(json.dumps(options, default=str)),
            },
        },
        seed=seed,
        budget=_budget(budget),
        policy=rule.name,
        policy_version=rule.version,
        workers=n_workers,
        artifact_root=settings.artifact_root(),
        method_versions={c.method: classes[c.method].spec.version for c in pool},
        models=used_models(family, pool),
        size_hints=[opened.size_hint(c) for c in pool],
    )
    if or_resume:
        with SqlStore.open(settings.store) as database:
            begun = begun_before(database, spec)
        if begun is not None and begun.ended:
            return Run(settings.store, spec.name, begun.outcome)
        if begun is not None:
            return resume(
                spec.name,
                store=settings.store,
                budget=begun.budget,
                workers=n_workers or None,
                backend=backend,
                address=address,
                listener=listener,
            )
    try:
        engine.check(_resources(classes[c.method].spec.resources, spec.settings) for c in pool)
        spec = dataclasses.replace(spec, workers=n_workers or engine.free)
        with SqlStore.open(settings.store) as database:
            run = database.create_run(
                spec, pool, [short_label(c, classes[c.method]) for c in pool]
            )
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
        if run.state == "finished":
            raise StateError(
                f"run {name!r} is finished ({run.note}), nothing is left to do; "
                "to search more, start a run of another name"
            )
        path = run.settings.get("plugin_path", "") if plugin_path is None else plugin_path
        family = plugins.registry(str(path)).load_family(run.family)
        opened = family.reopen(run.problem_reference)
        kept = dict(run.settings)
        kept |= {k: v for k, v in (("backend", backend), ("address", address)) if v is not None}
        database.change_run(
            run.id,
            budget=None if budget is None else _budget(budget),
            settings=kept,
            workers=None
            if workers is None
            else _workers(str(kept["backend"]), workers, kept["address"]) or None,
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


def replicate(
    method: str,
    *,
    profile: str = "quick",
    seeds: Sequence[int] = (),
    claims: Sequence[str] = (),
    again: bool = False,
    store: str | None = None,
    plugin_path: str | None = None,
    say: Say | None = None,
) -> ReplicationResult:
    """Measure what a paper claims about a method, side by side with its controls.

    What is in the store already is not measured again: an interrupted call goes on where it was.

    Args:
        method: Name of the method, or ``FAMILY/NAME``.
        profile: ``quick`` (minutes on one core) or ``full``.
        seeds: Seeds; those of the replication if empty.
        claims: Ids of claims; all of the profile if empty.
        again: Measure anew what is stored, in its place.
        store: SQLAlchemy URL of the database.
        plugin_path: Folders with loose plugins.
        say: Takes one line per measurement; None is silent.

    Raises:
        UnknownMethod: No such method, or one without a replication.
        ConfigError: A profile, seed or claim that cannot be used.
        MethodFailed: The replication raised; what was measured before is stored.
    """
    settings = load_settings({"store": store, "plugin_path": plugin_path})
    with SqlStore.open(settings.store) as database:
        return measure_again(
            database,
            method,
            profile=profile,
            seeds=seeds,
            claims=claims,
            again=again,
            plugin_path=settings.plugin_path,
            say=say or (lambda line: None),
        )


def replication_page(*, store: str | None = None) -> str:
    """The results of all finished replications in a store, as one page of Markdown.

    Args:
        store: SQLAlchemy URL of the database.

    Raises:
        StoreError: The store holds none.
    """
    with open_store(store, create=False) as opened:
        return page(opened.replications())


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
        classes = method_classes(pool, plugin_path)
        controller = Controller(
            database,
            run,
            problem,
            rule,
            backend,
            resources=[_resources(classes[c.method].spec.resources, run.settings) for c in pool],
            baselines=[i for i, c in enumerate(pool) if classes[c.method].spec.tags.baseline],
            plugin_path=plugin_path,
            listener=both(_with_hooks(listener, run, pool), backend.meter(run.name)),
        )
        with gentle_stop(controller.stop):
            return controller.execute()
    finally:
        backend.close()


def _default_name(problem: Problem) -> str:
    return f"{problem.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def _with_hooks(
    listener: Listener | None, run: StoredRun, pool: Sequence[Candidate]
) -> Listener | None:
    """The listener, followed by the hook ``lamps_report_landmark`` where there is one."""
    report = plugins.hooks().hook.lamps_report_landmark
    if not report.get_hookimpls():
        return listener

    def both(progress: Progress) -> None:
        if listener is not None:
            listener(progress)
        if progress.event in ("ok", "failed", "crashed"):
            report(
                run=run.name,
                candidate=pool[progress.trial],
                fidelity=run.fidelities[progress.landmark],
                evaluation=progress.evaluation,
                state=progress.event,
            )

    return both


def _resources(asked: Resources, settings: Mapping[str, Any]) -> Resources:
    """What a landmark occupies: what the user said, else what its method asks for."""
    given: Any = settings.get("resources") or {}
    said = {k: v for k, v in given.items() if v is not None}
    return dataclasses.replace(asked, **said)


def _workers(backend: str, wanted: int, address: object) -> int:
    """Landmarks at once; 0 leaves it to the cluster at the address, as many as it has CPUs."""
    if backend == "local":
        if wanted > 1:
            raise ConfigError(
                f"backend 'local' runs one landmark at a time, {wanted} workers were asked"
            )
        return 1
    if backend == "replay" or wanted:
        return wanted or 1
    return 0 if address or os.environ.get("RAY_ADDRESS") else os.cpu_count() or 1


def _budget(budget: Budget | str | None) -> Budget:
    if isinstance(budget, str):
        return Budget(wall_s=parse_duration(budget))
    return budget or Budget()
