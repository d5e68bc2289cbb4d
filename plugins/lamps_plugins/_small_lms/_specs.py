"""What the small models are: shape, material, and how long they are trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lamps.errors import ProblemError, did_you_mean
from lamps.types import Json

__all__ = ["SPECS", "LmSpec", "Phase", "spec_of"]

FORMAT = 1
"""Raised when weights of the same spec would come out otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some steps of training on sequences of one length.

    Args:
        length: Tokens of a sequence.
        batch: Sequences of a step.
        steps: How many.
    """

    length: int
    batch: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LmSpec:
    """One model.

    Args:
        name: What lists call it.
        material: ``code`` (sources of the standard library), ``recall`` or ``rhymes`` (lines of a
            few words that repeat, made up).
        width: Size of the hidden state, d.
        layers: Depth.
        heads: Query heads.
        kv_heads: Key-value heads.
        inner: Size of the feed-forward layer.
        vocabulary: Tokens.
        theta: Base of the rotary angles.
        context: Longest sequence that it may be asked about.
        lr: Learning rate of AdamW at its top.
        phases: Training, one after the other.
        seed: Of weights and order.
    """

    name: str
    material: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    phases: tuple[Phase, ...]
    theta: float = 1e5
    context: int = 8192
    lr: float = 3e-3
    seed: int = 0

    @property
    def steps(self) -> int:
        """All steps of training."""
        return sum(phase.steps for phase in self.phases)

    def phase_at(self, step: int) -> Phase:
        """The phase that a step (from 0) belongs to."""
        for phase in self.phases:
            if step < phase.steps:
                return phase
            step -= phase.steps
        raise IndexError(step)

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return asdict(self)


_CODE_PHASES = (Phase(length=512, batch=4, steps=1900), Phase(length=4096, batch=1, steps=120))

SPECS: dict[str, LmSpec] = {
    spec.name: spec
    for spec in (
        LmSpec(
            name="stdlib", material="code", width=192, layers=4, heads=6, kv_heads=2, inner=512,
            vocabulary=1024, phases=_CODE_PHASES,
        ),
        LmSpec(
            name="stdlib-draft", material="code", width=96, layers=2, heads=3, kv_heads=3,
            inner=256, vocabulary=1024, phases=_CODE_PHASES,
        ),
        LmSpec(
            name="recall", material="recall", width=128, layers=2, heads=2, kv_heads=2, inner=256,
            vocabulary=256, theta=1e8, lr=1e-3, phases=(
                Phase(length=256, batch=8, steps=150),
                Phase(length=1024, batch=2, steps=150),
                Phase(length=2048, batch=1, steps=60),
                Phase(length=4096, batch=1, steps=40),
            ),
        ),
        LmSpec(
            name="toy", material="rhymes", width=32, layers=2, heads=2, kv_heads=1, inner=64,
            vocabulary=64, context=1024, phases=(Phase(length=48, batch=16, steps=120),),
        ),
        LmSpec(
            name="toy-draft", material="rhymes", width=16, layers=1, heads=2, kv_heads=1,
            inner=32, vocabulary=64, context=1024,
            phases=(Phase(length=48, batch=16, steps=120),),
        ),
        LmSpec(
            name="toy-recall", material="recall", width=64, layers=2, heads=2, kv_heads=2,
            inner=64, vocabulary=256, theta=1e8, lr=1e-3, context=1024,
            phases=(Phase(length=32, batch=8, steps=20), Phase(length=64, batch=4, steps=5)),
        ),
    )
}  # fmt: skip
"""The models by name; those called toy are built within seconds, for tests."""


def spec_of(name: str) -> LmSpec:
    """The spec of that name.

    Raises:
        ProblemError: There is none.
    """
    if name not in SPECS:
        raise ProblemError(f"no small model {name!r}. {did_you_mean(name, SPECS)}")
    return SPECS[name]
