"""The family ``distributed-tensor-kernels``: operators that span ranks.

A candidate is a plan. It is checked against float64 before it is timed, and a wrong one fails.

    0       half the sizes, 5 repetitions
    0.1     the sizes that were asked for, 5 repetitions
    0.4     20 repetitions
    1       50 repetitions after 20 that are not timed

Every landmark continues the one before: repetitions add up. On ``split="test"`` other operands are
drawn and the plan is timed anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.method import Family, Method, Problem
from lamps.types import Candidate, Json, Objective, digest
from lamps_plugins.distributed_tensor_kernels._options import OPTIONS, parse_shape

if TYPE_CHECKING:
    from lamps_plugins.distributed_tensor_kernels._calibrate import Calibration
    from lamps_plugins.distributed_tensor_kernels._planned import Planned
    from lamps_plugins.distributed_tensor_kernels._transports import Link

__all__ = ["FAMILY", "TileFamily", "TileProblem"]

REPETITIONS = {0.0: 5, 0.1: 5, 0.4: 20, 1.0: 50}
WARMUPS = {0.0: 3, 0.1: 3, 0.4: 3, 1.0: 20}
MOST_RANKS = 16

OBJECTIVES = (
    Objective(
        "latency_ms", "ms", doc="Median time of a repetition on the slowest rank.", noisy=True
    ),
    Objective(
        "exposed_ms",
        "ms",
        doc="That time less the time of the same computing alone, or 0: what communication costs.",
        noisy=True,
    ),
    Objective(
        "buffer_bytes",
        "bytes",
        doc="Symmetric memory and scratch of a rank, besides operands and results.",
    ),
)


@dataclasses.dataclass(slots=True)
class TileProblem(Problem):
    """One operator at one size on one group of ranks.

    Args:
        operator: Its name.
        shape: Its sizes, complete.
        ranks: How many.
        transport: How chunks travel.
        alpha_us: Microseconds before the first byte of a simulated link.
        beta_mb_s: Its bandwidth.
        wait_s: Seconds after which a rank gives up a wait.
        seed: Root of the operands.
    """

    family: ClassVar[str] = "distributed-tensor-kernels"
    operator: str
    shape: dict[str, int]
    ranks: int = 2
    transport: str = "shm"
    alpha_us: float = 50.0
    beta_mb_s: float = 100.0
    wait_s: float = 60.0
    seed: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operator, and that its link is simulated where it is."""
        return f"{self.operator}-simulated-link" if self.simulated else self.operator

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        """What a reader must know of the numbers."""
        said = []
        if self.simulated:
            said.append(
                f"simulated_link: messages take {self.alpha_us:g} us + bytes / "
                f"{self.beta_mb_s:g} MB/s by decree; times compare plans, not hardware"
            )
        return said

    @property
    def simulated(self) -> bool:
        """Whether the link is simulated."""
        return self.transport == "simlink"

    @property
    def link(self) -> Link:
        """What is simulated, where it is."""
        from lamps_plugins.distributed_tensor_kernels._transports import Link

        return Link(alpha_us=self.alpha_us, beta_mb_s=self.beta_mb_s)

    @property
    def machine(self) -> Calibration:
        """What the cost model assumes before anything is measured."""
        from lamps_plugins.distributed_tensor_kernels._calibrate import Calibration

        if self.simulated:
            return Calibration(alpha_s=1e-6 * self.alpha_us, bytes_s=1e6 * self.beta_mb_s)
        return Calibration()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return tuple(REPETITIONS)

    @property
    def unit(self) -> str:
        return "repetitions"

    def amount(self, fidelity: float) -> float:
        """Timed repetitions at full size."""
        return float(REPETITIONS[fidelity]) if fidelity > 0 else 0.0

    def check_fidelity(self, fidelity: float) -> None:
        """Refuse a fidelity at which there is no landmark."""
        if fidelity not in REPETITIONS:
            known = ", ".join(f"{f:g}" for f in REPETITIONS)
            raise ProblemError(f"fidelity {fidelity!r} is no landmark, expected one of {known}")

    def sizes(self, fidelity: float) -> dict[str, int]:
        """The sizes at a landmark."""
        from lamps_plugins.distributed_tensor_kernels._operators import operator_class

        if fidelity > 0:
            return self.shape
        cls = operator_class(self.operator)
        halved = {k: max(v // 2, 1) if k in cls.halved else v for k, v in self.shape.items()}
        try:
            cls.check_shape(halved, self.ranks)
        except ProblemError:
            return self.shape  # too small to be halved
        return halved

    def reference(self) -> dict[str, Json]:
        return {**dataclasses.asdict(self), "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        return digest(dataclasses.asdict(self))

    def card(self) -> dict[str, Json]:
        from lamps_plugins.distributed_tensor_kernels import _ir
        from lamps_plugins.distributed_tensor_kernels._operators import operator_class

        cls = operator_class(self.operator)
        product = _ir.OPERATORS.get(self.operator)
        found: dict[str, Json] = {
            "operator": self.operator,
            "shape": dict(self.shape),
            "ranks": self.ranks,
            "transport": self.transport,
            "simulated_link": self.simulated,
            "flops": cls.flops(self.shape),
            "bytes_a_rank_must_send": cls.wire_bytes(self.shape, self.ranks),
        }
        if product is not None:
            found["fused_from"] = list(_ir.lower(product))
        if self.simulated:
            found |= {"link_alpha_us": self.alpha_us, "link_beta_mb_s": self.beta_mb_s}
        return found

    def size_hint(self, candidate: Candidate) -> float:
        """Expected seconds of a plan, by the cost model."""
        from lamps_plugins.distributed_tensor_kernels._cost import expected_s
        from lamps_plugins.distributed_tensor_kernels._planned import method_class

        method = method_class(candidate.method).from_params(candidate.params)
        return expected_s(self.operator, self.shape, self.ranks, method.plan(), self.machine)


class TileFamily(Family):
    """Operators of one machine, between processes, threads or streams."""

    name: ClassVar[str] = "distributed-tensor-kernels"
    summary: ClassVar[str] = "Overlap computing and communication of operators that span ranks."
    default_objectives: ClassVar[tuple[str, ...]] = ("latency_ms", "exposed_ms", "buffer_bytes")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> TileProblem:
        """The operator that is named, or ``toy``.

        Raises:
            ProblemError: No such operator or size, or sizes that do not fit the ranks.
            ConfigError: An option cannot be used.
        """
        from lamps_plugins.distributed_tensor_kernels._operators import OPERATORS, operator_class

        self.check_options(options)
        given = {k: v for k, v in options.items() if v is not None}
        if reference == "toy":
            if given:
                raise ConfigError(f"the problem 'toy' takes no options, got {', '.join(given)}")
            return self.toy_problem()
        if not reference:
            raise ProblemError(
                f"{self.name} needs an operator: --problem {self.name}:ag_gemm. "
                f"Known: {', '.join(sorted(OPERATORS))}, toy"
            )
        cls = operator_class(reference)
        shape = dict(cls.sizes)
        if given.get("shape"):
            shape = parse_shape(str(given["shape"]), shape, reference)
        problem = TileProblem(
            operator=reference,
            shape=shape,
            ranks=int(given.get("ranks", 2)),
            transport=str(given.get("transport", "shm")),
            alpha_us=float(given.get("link_alpha", 50.0)),
            beta_mb_s=float(given.get("link_beta", 100.0)),
            wait_s=float(given.get("wait_s", 60.0)),
            seed=int(given.get("operand_seed", 0)),
        )
        _check(problem, given)
        return problem

    def reopen(self, reference: Mapping[str, Json]) -> TileProblem:
        """The problem of a reference; it is all there is, so nothing can have changed."""
        values = {k: v for k, v in reference.items() if k != "fingerprint"}
        problem = TileProblem(**cast("dict[str, Any]", values))
        _check(problem, {})
        if problem.fingerprint() != reference["fingerprint"]:
            raise ProblemError(
                f"the reference of {problem.name} was edited: its fingerprint is "
                f"{reference['fingerprint']}, expected {problem.fingerprint()}"
            )
        return problem

    def toy_problem(self, *, seed: int = 0) -> TileProblem:
        """A narrow product of two ranks that are threads."""
        return TileProblem(
            operator="ag_gemm",
            shape={"m": 512, "n": 64, "k": 32},
            transport="loop",
            wait_s=20.0,
            seed=seed,
        )

    def toy_for(self, method: type[Method[Any, Any]]) -> TileProblem:
        """A toy that a method can do: a small step for schedulers, processes for collectives."""
        toy = self.toy_problem()
        kind = cast("type[Planned[Any]]", method)
        if kind.library == "collective":
            return dataclasses.replace(toy, transport="gloo")
        if kind.operators is not None and toy.operator not in kind.operators:
            shape = {"layers": 1, "b": 2, "d": 64, "h": 4, "hkv": 2, "f": 96, "s": 64}
            return dataclasses.replace(toy, operator="decode_step", shape=shape)
        return toy

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
        """See `Family.candidates`; plans that the problem does not allow are left out.

        Raises:
            ProblemError: None is left.
        """
        from lamps_plugins.distributed_tensor_kernels._planned import method_class

        pool = super().candidates(
            problem, methods, models, given=given, per_method=per_method, seed=seed
        )
        kept: dict[str, Candidate] = {}
        refused: list[str] = []
        for candidate in pool:
            method = method_class(candidate.method).from_params(candidate.params)
            try:
                method.check(cast("TileProblem", problem))
            except ProblemError as error:
                refused.append(f"{candidate.method}: {error}")
                continue
            plan = method.plan_for(cast("TileProblem", problem), 1.0)
            key = [candidate.method, None if plan is None else plan.as_json()]
            kept.setdefault(digest(key), candidate)
        if not kept:
            why = refused[0] if refused else "no method was given"
            raise ProblemError(f"no plan fits {problem.name}. {why}")
        return list(kept.values())

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Add the measured scores to the plan."""
        from lamps_plugins.distributed_tensor_kernels import _export

        _export.add_scores(directory, scores)

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Inputs that must be refused; see `lamps.testing.check_family`."""
        from lamps_plugins.distributed_tensor_kernels import _refused

        return _refused.cases(self)


def _check(problem: TileProblem, given: Mapping[str, Any]) -> None:
    """Refuse what cannot be run."""
    from lamps_plugins.distributed_tensor_kernels._operators import operator_class
    from lamps_plugins.distributed_tensor_kernels._transports import TRANSPORTS

    if not 1 <= problem.ranks <= MOST_RANKS:
        raise ConfigError(f"ranks is {problem.ranks}, expected 1 to {MOST_RANKS}")
    if problem.transport not in TRANSPORTS:
        raise ConfigError(
            f"transport {problem.transport!r} is unknown. "
            f"{did_you_mean(problem.transport, TRANSPORTS)}"
        )
    if not 0 < problem.wait_s <= 3600:
        raise ConfigError(f"wait_s is {problem.wait_s}, expected seconds up to 3600")
    if problem.seed < 0:
        raise ConfigError(f"operand_seed is {problem.seed}, expected 0 or more")
    _ = problem.link  # its numbers are checked by making it
    if not problem.simulated and {"link_alpha", "link_beta"} & set(given):
        raise ConfigError(
            f"link_alpha and link_beta describe a simulated link; transport is "
            f"{problem.transport!r}, expected simlink"
        )
    if problem.transport == "stream":
        from lamps_plugins.distributed_tensor_kernels._transports.stream import require_gpu

        require_gpu()
    operator_class(problem.operator).check_shape(problem.shape, problem.ranks)


FAMILY = TileFamily()
