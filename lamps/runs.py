"""Past and present runs as objects: their fronts, trials, decisions, and members to take away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lamps import pareto
from lamps.config import load_settings
from lamps.errors import ConfigError, StoreError, did_you_mean
from lamps.front import Front, Member
from lamps.scheduler.export import export_member
from lamps.scheduler.progress import Outcome
from lamps.store import DecisionRecord, FinalValues, RunSummary, StoredReplication, Trial
from lamps.store import Run as StoredRun
from lamps.store import Store as SqlStore
from lamps.table_export import table_of_run
from lamps.tables import LandmarkTable
from lamps.types import Objective


def open_store(url: str | None = None, *, create: bool = True) -> Store:
    """The store at a URL (default: settings), for reading.

    Args:
        url: SQLAlchemy URL.
        create: Whether a SQLite file that does not exist is made; else it is refused.

    Raises:
        StoreError: The database cannot be opened.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     open_store(f"sqlite:///{folder}/lamps.db").runs()
        []
    """
    chosen = load_settings({"store": url}).store
    if not create and chosen.startswith("sqlite:///"):
        path = Path(chosen.removeprefix("sqlite:///"))
        if chosen != "sqlite:///:memory:" and not path.exists():
            raise StoreError(f"no database at {str(path)!r}; name another with --store, or search")
    return Store(chosen)


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

    def replications(self) -> list[StoredReplication]:
        """All replications with their measurements, in the order in which they were begun."""
        return self._sql.replications()

    def check(self) -> list[str]:
        """What is wrong with the database; empty if nothing is."""
        return self._sql.check()

    def close(self) -> None:
        """Close the database."""
        self._sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        pool = self._members(final, keep)
        return Front.of(pool, chosen, where=where, n_trials=head.n_trials)

    def members(self, *, unfinished: bool = False) -> list[Member]:
        """Every candidate that has been measured, on the front or not, by index.

        Args:
            unfinished: Whether those count that stopped early, at their last landmark.
        """
        final = self._sql.final_values(self._id, finished_only=not unfinished)
        return self._members(final, np.arange(len(final.trial_index)))

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

    def landmark_table(self) -> LandmarkTable:
        """Its landmarks as a table, from which a policy can be trained.

        Candidates that were stopped early are censored; those that never started are left out.

        Raises:
            ProblemError: It has no landmark yet.
        """
        return table_of_run(self._sql, self.name)

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
        return export_member(self._sql, self.record, candidate, Path(directory), overwrite)

    def close(self) -> None:
        """Close the database, also for other runs that came from the same `Store`."""
        self._sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        record = self.record
        done = record.counts.get("complete", 0)
        return (
            f"Run({self.name!r}, {record.state}, {done} of {record.n_trials} candidates finished, "
            f"{record.n_evaluations} landmarks, {record.spent_wall_s:.0f} s)"
        )
