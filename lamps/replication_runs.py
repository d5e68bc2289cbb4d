"""Running a replication: what is missing is measured, each pair is stored as it comes."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from lamps import __version__, plugins
from lamps.errors import ConfigError, ContractError, LampsError, MethodFailed, did_you_mean
from lamps.replication import PROFILES, Ask, Claim, Measurement, Profile, Replication, Say
from lamps.replication_results import ReplicationResult, result_of
from lamps.store import ReplicationSpec, Store
from lamps.types import Json

__all__ = ["machine_facts", "measure_again"]

_TOLD = ("torch", "transformers", "peft", "numpy", "scipy", "sklearn")


def measure_again(
    store: Store,
    method: str,
    *,
    profile: str = "quick",
    seeds: Sequence[int] = (),
    claims: Sequence[str] = (),
    again: bool = False,
    plugin_path: str = "",
    say: Say = lambda line: None,
) -> ReplicationResult:
    """Measure what the store lacks of a method's claims, and judge them.

    Args:
        store: Where measurements are kept and looked up.
        method: Bare name of the method, or ``FAMILY/NAME``.
        profile: ``quick`` or ``full``.
        seeds: Seeds; those of the replication if empty.
        claims: Ids of claims; all of the profile if empty.
        again: Measure anew what is stored, in its place.
        plugin_path: Folders with loose plugins.
        say: Takes one line per step.

    Raises:
        UnknownMethod: No such method, or one without a replication.
        ConfigError: A profile, seed or claim that cannot be used.
        MethodFailed: The replication raised; what was measured before is stored.
    """
    chosen = next((p for p in PROFILES if p == profile), None)
    if chosen is None:
        raise ConfigError(f"profile is {profile!r}. {did_you_mean(profile, PROFILES)}")
    found = plugins.registry(plugin_path)
    entry = found.find_replication(method)
    spec = found.load_method(entry.family, entry.name).spec
    replication = found.load_replication(entry.family, entry.name)
    wanted = _wanted(replication, chosen, claims, entry.name, say)
    numbers = _seeds(replication, chosen, seeds)
    where = f"replication of {entry.family}/{entry.name}"
    fingerprint = _guarded(where, lambda: replication.fingerprint(chosen))
    number = store.begin_replication(
        ReplicationSpec(
            family=entry.family,
            method=entry.name,
            method_version=spec.version,
            version=replication.version,
            profile=profile,
            fingerprint=fingerprint,
            summary=spec.summary,
            paper=None if spec.paper is None else dataclasses.asdict(spec.paper),
            claims=replication.claims,
        )
    )
    run = _Run(store, replication, number, chosen, where, say)
    for seed in numbers:
        run.seed(seed, wanted, again=again)
    ids = [c.id for c in wanted]
    return result_of(store.replication(number), claims=ids, seeds=numbers, new=run.new)


def _wanted(
    replication: Replication, profile: Profile, claims: Sequence[str], method: str, say: Say
) -> list[Claim]:
    known = {c.id: c for c in replication.claims}
    for word in claims:
        if word not in known:
            raise ConfigError(
                f"the replication of {method!r} has no claim {word!r}. {did_you_mean(word, known)}"
            )
        if not known[word].measured_at(profile):
            raise ConfigError(
                f"claim {word!r} of {method!r} is measured at profile {known[word].profile!r}; "
                f"add --profile {known[word].profile}"
            )
        if lack := known[word].lacking():
            raise ConfigError(
                f"claim {word!r} of {method!r} needs {lack}, which this machine has not"
            )
    chosen = []
    for claim in replication.claims:
        if not claim.measured_at(profile) or claim.id not in (claims or known):
            continue
        if lack := claim.lacking():
            say(f"{claim.id}: not testable on this machine, needs {lack}")
        else:
            chosen.append(claim)
    if not chosen:
        raise ConfigError(f"no claim of {method!r} is measured at profile {profile!r}; try 'full'")
    return chosen


def _seeds(replication: Replication, profile: Profile, seeds: Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(dict.fromkeys(seeds or replication.seeds(profile)))
    if not numbers or min(numbers) < 0:
        raise ConfigError(f"seeds are {list(numbers)}, expected at least one, each 0 or more")
    return numbers


class _Run:
    """One call: its measurements of one replication, seed by seed."""

    def __init__(
        self,
        store: Store,
        replication: Replication,
        number: int,
        profile: Profile,
        where: str,
        say: Say,
    ) -> None:
        self.store, self.replication, self.number = store, replication, number
        self.profile, self.where, self.say = profile, where, say
        self.new = 0
        self._prepared = False

    def seed(self, seed: int, wanted: Sequence[Claim], *, again: bool) -> None:
        """Measure the claims that are not finished with a seed."""
        stored = self.store.replication(self.number)
        mine = [s for s in stored.seeds if s.seed == seed]
        done = {s.claim for s in mine if s.finished_at is not None}
        left = [c.id for c in wanted if again or c.id not in done]
        if not left:
            self.say(f"seed {seed}: all is in the store")
            return
        known = () if again else (s for s in mine if s.claim in left)
        ask = Ask(
            profile=self.profile,
            seed=seed,
            claims=frozenset(left),
            known=frozenset((m.claim, m.unit) for s in known for m in s.measurements),
            say=self.say,
        )
        started = time.perf_counter()
        if not self._prepared:
            _guarded(self.where, lambda: self.replication.prepare(self.profile, self.say))
            self._prepared = True
        # Only now, so that nothing is deleted for a replication that cannot even begin.
        self.store.begin_seed(self.number, seed, left, again=again)
        _guarded(f"{self.where} at seed {seed}", lambda: self._measure(ask))
        wall_s = time.perf_counter() - started
        self.store.finish_seed(self.number, seed, left, facts=machine_facts(), wall_s=wall_s)
        self.say(f"seed {seed}: done in {wall_s:.0f} s")

    def _measure(self, ask: Ask) -> None:
        came: set[tuple[str, str]] = set()
        for m in self.replication.measure(ask):
            _check(m, ask, {c.id for c in self.replication.claims})
            if m.claim not in ask.claims:
                continue
            if (m.claim, m.unit) in came:
                raise ContractError(
                    f"{self.where}: claim {m.claim!r} has two pairs for seed {m.seed} and unit "
                    f"{m.unit!r}, expected one"
                )
            came.add((m.claim, m.unit))
            if self.store.add_measurement(self.number, m):
                self.new += 1
                self.say(
                    f"seed {m.seed} · {m.claim} · {m.unit}: {m.newcomer:.4g} against "
                    f"{m.comparison:.4g}"
                )
        empty = ask.claims - {claim for claim, _ in came | ask.known}
        if empty:
            raise ContractError(
                f"{self.where}: nothing was measured for claim {min(empty)!r} at seed {ask.seed}"
            )


def _check(m: object, ask: Ask, known: set[str]) -> None:
    if not isinstance(m, Measurement):
        raise ContractError(f"measure gave {m!r:.80}, expected a Measurement")
    if m.claim not in known:
        raise ContractError(
            f"a measurement names the claim {m.claim!r}. {did_you_mean(m.claim, known)}"
        )
    if m.seed != ask.seed:
        raise ContractError(f"a measurement has seed {m.seed}, expected {ask.seed}")


def _guarded(where: str, call: Callable[[], Any]) -> Any:
    """The result of foreign code; whatever it raises becomes one line that names it."""
    try:
        return call()
    except LampsError:
        raise
    except (Exception, SystemExit) as error:
        line = " ".join(str(error).split())
        raise MethodFailed(
            f"{where} failed: {type(error).__name__}: {line}; what was measured before is stored, "
            "the same command goes on from there"
        ) from error


def machine_facts() -> dict[str, Json]:
    """What numbers depend on besides code and data: processors, threads, versions; no names."""
    torch: Any = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else int(os.environ.get("OMP_NUM_THREADS") or 0)
    versions: dict[str, Json] = {"lamps": __version__, "python": platform.python_version()}
    for module in _TOLD:
        if module in sys.modules:
            versions[module] = metadata.version("scikit-learn" if module == "sklearn" else module)
    facts: dict[str, Json] = {
        "cpus": os.cpu_count() or 1,
        "threads": threads or os.cpu_count() or 1,
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions,
    }
    if torch and torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name(0)
    return facts
