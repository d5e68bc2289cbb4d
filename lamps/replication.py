"""Replications: what a paper claims about a method, and how it is measured again.

A *claim* is a direction with a threshold: the method's number against the number of something else
(another method, a naive form, its own ablation), measured side by side under equal conditions. A
*control* is a claim that must fail: where it holds, the measurement cannot tell anything apart. A
*measurement* is one pair of numbers: one claim, one seed, one unit (a task, a layer, a setting).

A replication lives beside the methods of a family and its file is its registration:
``_replications/model_soup.py`` replicates the method of ``model_soup.py``. Files that begin with
an underscore are helpers. ``lamps replicate METHOD`` runs it, and what it measured is kept in SQL,
pair by pair, so that an interrupted one goes on where it was.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, get_args

from lamps.errors import ContractError
from lamps.types import Json

__all__ = ["Ask", "Claim", "Measurement", "Profile", "Replication", "Say"]

Profile = Literal["quick", "full"]
Source = Literal["paper", "ours"]
Compare = Literal["ratio", "geometric", "difference", "boolean", "correlation"]
Bound = Literal[">=", "<=", ">", "<"]
Needs = Literal["nothing", "gpu", "gpus"]

Say = Callable[[str], None]
"""Takes one line about what is going on; it goes to stderr."""

PROFILES: tuple[Profile, ...] = get_args(Profile)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MEETS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda value, bar: value >= bar,
    "<=": lambda value, bar: value <= bar,
    ">": lambda value, bar: value > bar,
    "<": lambda value, bar: value < bar,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One direction that is expected to be seen, or with ``control`` one that must not be.

    With ``a`` the newcomer's numbers, ``b`` the comparison's, and ``u`` the units of a seed, the
    value of a seed is

    - ``ratio``: ``sum_u a / sum_u b``; large units weigh more, a single zero does no harm
    - ``geometric``: ``exp(mean_u log(a / b))``; units of any scale weigh alike (times, sizes)
    - ``difference``: ``mean_u (a - b)``; leave ``b`` at 0 to bound a number by itself
    - ``boolean``: ``mean_u a`` of zeros and ones: the share of pairs in which something held
    - ``correlation``: Spearman's rank correlation of ``a`` and ``b`` over the units

    and the claim's value is the mean over seeds (geometric for ``geometric``); see
    `lamps.replication_verdicts`. A newcomer equal to its comparison has ratio 1, zeros included.

    Args:
        id: Short name inside its replication, such as ``C1``.
        statement: What is claimed, as one sentence.
        quantity: What is measured, with its unit: ``test accuracy, LoRA / full fine-tuning``.
        compare: How the pairs become one value.
        direction: On which side of the threshold the value must lie.
        threshold: The bound.
        tolerance: How far the wrong side of the threshold still counts as the right one.
        source: ``paper``, or ``ours`` where the paper does not say so.
        control: Whether it must fail.
        certain: Whether the whole 95 % interval must lie on one side; else the value decides. Set
            it to False for exact quantities, such as numbers of parameters.
        profile: Smallest profile at which it is measured.
        needs: ``gpu`` for a CUDA device, ``gpus`` for two of them. Where they are missing the
            claim is listed as not testable, with the command that would test it.
        version: Raised when it is measured in another way, so that old numbers count no more.

    Raises:
        ContractError: A field has no usable value.
    """

    id: str
    statement: str
    quantity: str
    compare: Compare
    direction: Bound
    threshold: float
    tolerance: float = 0.0
    source: Source = "paper"
    control: bool = False
    certain: bool = True
    profile: Profile = "quick"
    needs: Needs = "nothing"
    version: str = "1"

    def __post_init__(self) -> None:
        where = f"claim {self.id!r}"
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ContractError(
                f"{where}: the id must be 1 to 100 letters, digits, '.', '_' and '-'"
            )
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in allowed:
                raise ContractError(
                    f"{where}: {name} is {getattr(self, name)!r}, expected one of "
                    f"{', '.join(allowed)}"
                )
        for name in ("statement", "quantity", "version"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or "\n" in value:
                raise ContractError(f"{where}: {name} is {value!r}, expected one line of text")
        if not math.isfinite(self.threshold):
            raise ContractError(f"{where}: threshold is {self.threshold}, expected a number")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ContractError(f"{where}: tolerance is {self.tolerance}, expected 0 or more")

    @property
    def bar(self) -> float:
        """The threshold, moved by the tolerance."""
        up = self.direction in (">=", ">")
        return self.threshold - self.tolerance if up else self.threshold + self.tolerance

    @property
    def expectation(self) -> str:
        """Direction and threshold for people, such as ``>= 0.97 (-0.01)``."""
        slack = self.bar - self.threshold
        return f"{self.direction} {self.threshold:g}" + (f" ({slack:+g})" if slack else "")

    def meets(self, value: float) -> bool:
        """Whether a value lies on the claimed side; NaN never does."""
        return _MEETS[self.direction](value, self.bar)

    def measured_at(self, profile: Profile) -> bool:
        """Whether it is measured at a profile."""
        return PROFILES.index(profile) >= PROFILES.index(self.profile)

    def lacking(self) -> str:
        """What it needs and this machine has not, in words; empty where it can be measured."""
        least = {"nothing": 0, "gpu": 1, "gpus": 2}[self.needs]
        return NEEDS[self.needs] if least and _n_gpus() < least else ""

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`; fields of a later release are left out."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in values.items() if k in known})


_WORDS: Mapping[str, tuple[str, ...]] = {
    "compare": get_args(Compare),
    "direction": get_args(Bound),
    "source": get_args(Source),
    "profile": PROFILES,
    "needs": get_args(Needs),
}

NEEDS: Mapping[str, str] = {"gpu": "a CUDA GPU", "gpus": "two CUDA GPUs"}
"""What `Claim.needs` asks for, in words."""


def _n_gpus() -> int:
    try:
        import torch
    except ModuleNotFoundError:
        return 0
    return torch.cuda.device_count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One pair of numbers; make it with `Ask.measured`.

    Args:
        claim: Id of the claim.
        seed: The seed it was measured with.
        unit: What it was measured on: a task, a layer, a setting. Unique for claim and seed.
        newcomer: The method's number.
        comparison: The other number; 0 where there is none.
        details: More numbers for those who look closer; JSON.
    """

    claim: str
    seed: int
    unit: str
    newcomer: float
    comparison: float = 0.0
    details: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one call of `Replication.measure` is to measure.

    Args:
        profile: ``quick`` (minutes on one core) or ``full``.
        seed: Root of all randomness.
        claims: Ids of the claims that are wanted.
        known: Claim and unit of pairs that an interrupted call has left in the store.
        say: Takes lines for stderr.
    """

    profile: Profile
    seed: int
    claims: frozenset[str]
    known: frozenset[tuple[str, str]] = frozenset()
    say: Say = lambda line: None

    def wants(self, *claims: str, unit: str) -> bool:
        """Whether at least one of these claims still needs its pair for a unit.

        Ask before each piece of work that takes more than a moment. Pairs that come again all the
        same are harmless: the stored ones stay.

        Example:
            >>> ask = Ask(profile="quick", seed=0, claims=frozenset({"C1"}),
            ...           known=frozenset({("C1", "r8")}))
            >>> ask.wants("C1", "C2", unit="r8"), ask.wants("C1", unit="election")
            (False, True)
        """
        return any(c in self.claims and (c, unit) not in self.known for c in claims)

    def measured(
        self, claim: str, unit: str, newcomer: float, comparison: float = 0.0, **details: Json
    ) -> Measurement:
        """A measurement with this call's seed."""
        return Measurement(
            claim=claim,
            seed=self.seed,
            unit=unit,
            newcomer=float(newcomer),
            comparison=float(comparison),
            details=details,
        )


class Replication(ABC):
    """The claims about one method and the code that measures them.

    Its file defines one subclass; it is made without arguments. Newcomer and comparison of a pair
    get the same data, seeds, tuning and threads, and run in the same call. Nothing is printed.
    """

    claims: ClassVar[tuple[Claim, ...]]
    """At least one; ids are unique."""

    version: ClassVar[str] = "1"
    """Raised when all claims are measured in another way; `Claim.version` is for one of them."""

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """Seeds where the user names none."""
        return (0,) if profile == "quick" else (0, 1, 2)

    @abstractmethod
    def fingerprint(self, profile: Profile) -> str:
        """Hash of the data and settings behind the numbers, for all seeds; quick to compute.

        Measurements are taken from the store only where it is equal.
        """

    def prepare(self, profile: Profile, say: Say) -> None:
        """Build or load what all seeds share; called once, and only if something is measured."""
        return

    @abstractmethod
    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Yield the pairs of one seed as soon as each is known; every one is stored at once.

        At least one for each wanted claim. Pairs of claims that are not wanted are ignored.
        """
