"""The family ``lossless-decoding``: one frozen language model, many ways to decode it faster.

Every way must emit what plain decoding emits; that is a law and no objective. A landmark is a
number of validation prompts, the first ones of the next landmark's:

    0       one prompt
    1/8, 1/4, 1/2, 1        that share of the validation prompts

Test prompts are continued once, at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lamps.errors import ConfigError, ProblemError
from lamps.method import Family, Method, Problem
from lamps.types import Candidate, Json, Objective, Split, digest
from lamps_plugins.lossless_decoding._measure import OBJECTIVES
from lamps_plugins.lossless_decoding._options import OPTIONS
from lamps_plugins.lossless_decoding._prompts import Prompt
from lamps_plugins.lossless_decoding._sampling import Sampler

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm

__all__ = ["FAMILY", "DecodingFamily", "DecodingProblem"]

FIDELITIES = (0.0, 0.125, 0.25, 0.5, 1.0)


class DecodingProblem(Problem):
    """A model, and prompts to continue.

    Args:
        name: What lists call it.
        model: Folder of the model, with its tokenizer.
        model_hash: Of its weights.
        prompts: By split, ``val`` and ``test``.
        max_new: Tokens by which each is continued, at most.
        sampling: Temperature, share of probability and seed; see `Sampler`.
        source: JSON from which the family makes it again.
        draft: Folder of a smaller model of the same vocabulary.
        draft_hash: Of its weights.
        facts: What the card says besides.

    Attributes:
        test_opened: How often test prompts were handed out.
    """

    family: ClassVar[str] = "lossless-decoding"

    def __init__(
        self,
        *,
        name: str,
        model: str,
        model_hash: str,
        prompts: Mapping[str, Sequence[Prompt]],
        max_new: int,
        sampling: Sampler,
        source: Mapping[str, Json],
        draft: str | None = None,
        draft_hash: str = "",
        facts: Mapping[str, Json] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.name, self.model, self.draft = name, model, draft
        self.max_new, self.sampling, self.notes = max_new, sampling, tuple(notes)
        self.test_opened = 0
        self._prompts = {split: tuple(found) for split, found in prompts.items()}
        self._hashes = (model_hash, draft_hash)
        self._source, self._facts = dict(source), dict(facts or {})

    def prompts(self, split: Split) -> tuple[Prompt, ...]:
        """The prompts of a split; opening test is counted in ``test_opened``.

        Raises:
            ProblemError: There is no such split; nothing is trained here.
        """
        if split not in self._prompts:
            raise ProblemError(f"{self.name} has no split {split!r}; expected val or test")
        if split == "test":
            self.test_opened += 1
        return self._prompts[split]

    def lm(self) -> FrozenLm:
        """The model, loaded once a process."""
        from lamps_plugins.lossless_decoding._lm import open_lm

        return open_lm(self.model)

    def draft_lm(self) -> FrozenLm | None:
        """The smaller model, where there is one."""
        from lamps_plugins.lossless_decoding._lm import open_lm

        return None if self.draft is None else open_lm(self.draft)

    def sampler(self, split: Split, number: int) -> Sampler:
        """How a prompt is decoded: greedily, or with noise of its own."""
        if self.sampling.temperature == 0.0:
            return self.sampling
        seed = int(digest([self.sampling.seed, split, number], length=12), 16)
        return Sampler(temperature=self.sampling.temperature, top_p=self.sampling.top_p, seed=seed)

    def is_blank(self, token: int) -> bool:
        """Whether a token is white space only."""
        return token in _blanks(self.model)

    def n_prompts(self, fidelity: float) -> int:
        """Validation prompts of a landmark; one at 0."""
        return max(1, math.ceil(fidelity * len(self._prompts["val"])))

    def check_fidelity(self, fidelity: float) -> None:
        """Refuse a fidelity at which there is no landmark.

        Raises:
            ProblemError: There is none.
        """
        if fidelity not in self.fidelities:
            known = ", ".join(f"{f:g}" for f in self.fidelities)
            raise ProblemError(
                f"fidelity {fidelity!r} is no landmark of the problem, expected one of {known}"
            )

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return FIDELITIES

    @property
    def unit(self) -> str:
        return "prompts"

    def amount(self, fidelity: float) -> float:
        return float(self.n_prompts(fidelity))

    def reference(self) -> dict[str, Json]:
        return {**self._source, "name": self.name, "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        prompts = {s: [[p.task, list(p.tokens)] for p in own] for s, own in self._prompts.items()}
        sampling = [self.sampling.temperature, self.sampling.top_p, self.sampling.seed]
        return digest([list(self._hashes), prompts, self.max_new, sampling], length=64)

    def card(self) -> dict[str, Json]:
        val = self._prompts["val"]
        return {
            **self._facts,
            "name": self.name,
            "model": self.model,
            "draft": self.draft,
            "tasks": sorted({prompt.task for prompt in val}),
            "val_prompts": len(val),
            "test_prompts": len(self._prompts["test"]),
            "median_prompt_tokens": sorted(len(p.tokens) for p in val)[len(val) // 2],
            "max_new": self.max_new,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "fingerprint": self.fingerprint(),
        }

    def floor(self, split: Split = "val") -> dict[str, float]:
        """Plain decoding, by definition."""
        return {f"{split}_latency_ratio": 1.0, f"{split}_rows_per_token": 1.0}

    def __repr__(self) -> str:
        return f"DecodingProblem({self.name!r}, {len(self._prompts['val'])} prompts)"


@functools.lru_cache(maxsize=4)
def _blanks(folder: str) -> frozenset[int]:
    from lamps_plugins.lossless_decoding._opening import tokenizer_of

    tokenizer = tokenizer_of(folder)
    return frozenset(i for i in range(len(tokenizer)) if not tokenizer.decode([i]).strip())


class DecodingFamily(Family):
    """Ways to decode a frozen causal language model."""

    name: ClassVar[str] = "lossless-decoding"
    summary: ClassVar[str] = "Decode a frozen language model faster without changing a token."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_latency_ratio", "val_rows_per_token")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> DecodingProblem:
        """A built-in problem, or the user's own model and prompts.

        Raises:
            ProblemError: Model or prompts cannot be used.
            ConfigError: An option cannot be used.
        """
        from lamps_plugins.lossless_decoding import _opening

        self.check_options(options)
        return _opening.open_any(reference, {k: v for k, v in options.items() if v is not None})

    def reopen(self, reference: Mapping[str, Json]) -> DecodingProblem:
        """The problem of a reference; refused if model or prompts changed since."""
        options = cast("dict[str, Any]", reference.get("options") or {})
        builtin = reference.get("builtin")
        problem = self.open_problem(None if builtin is None else str(builtin), options)
        self.require_unchanged(problem, reference["fingerprint"], "model and prompts")
        return problem

    def toy_problem(self, *, seed: int = 0) -> DecodingProblem:
        """A model of two layers that is trained in seconds, and made-up lines to continue."""
        from lamps_plugins.lossless_decoding import _opening

        return _opening.open_any("toy", {"prompt_seed": seed})

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
        """See `Family.candidates`; what cannot run is left out.

        Upper bounds are left out where the user named no methods; draft models where the problem
        has none; sampled params that do not fit together, such as a budget without room for a
        node.
        """
        from lamps_plugins.lossless_decoding.esp import check_budget

        assert isinstance(problem, DecodingProblem)
        everything = set(method_names()) <= set(methods)
        usable = {
            name: method
            for name, method in methods.items()
            if not (everything and getattr(method, "upper_bound", False))
            and (problem.draft is not None or not getattr(method, "needs_draft", False))
        }
        if methods and not usable:
            raise ProblemError(
                f"{', '.join(methods)} needs a smaller model of the same vocabulary; give "
                "--draft DIR"
            )
        pool = super().candidates(
            problem, usable, models, given=given, per_method=per_method, seed=seed
        )
        kept = []
        for candidate in pool:
            if candidate.method == "esp" and "rows" not in given.get("esp", {}):
                try:
                    check_budget(
                        cast("int", candidate.params["k"]), cast("int", candidate.params["rows"])
                    )
                except ConfigError:
                    continue  # k and rows are sampled apart
            kept.append(candidate)
        return kept

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Put the scores into the member's card."""
        from lamps_plugins.lossless_decoding import _export

        _export.with_scores(directory, scores)

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Json]]:
        """Continuations of prompts by an exported member.

        Args:
            directory: The exported folder.
            rows: A file of prompts; None reads one a line from standard input.
            options: ``text``, the field of JSON lines that holds the prompt.
        """
        from lamps_plugins.lossless_decoding import _export

        return _export.predict(directory, rows, options)

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """What must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.lossless_decoding import _refused

        yield from _refused.bad_inputs(self.open_problem)


def method_names() -> list[str]:
    """Names of this family's own methods: those of its files."""
    return [
        file.stem.replace("_", "-")
        for file in sorted(Path(__file__).parent.glob("*.py"))
        if not file.name.startswith("_")
    ]


FAMILY = DecodingFamily()
