"""The family ``text-classification``: labelled texts, and what learns to label them.

A fidelity is a share of the training texts. Texts lie in an order whose prefixes are nested and
nearly stratified, so a landmark is a prefix and nothing else; 0 is the untouched model (zero-shot
or an untrained head).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError, LampsError, ProblemError
from lamps.method import Family, Method, ModelCatalogue, Problem
from lamps.types import Candidate, Json, Objective, Split

from ._labels import Label, encode_labels
from ._loading import Parts, load
from ._measure import OBJECTIVES, scores
from ._options import OPTIONS, SUFFIXES, parse_options

__all__ = ["FAMILY", "TextFamily", "TextProblem"]

_MOST_LANDMARKS = 5
_LEAST_EXAMPLES = 32
_MODEL_FREE_SIZE = (
    1e5  # parameters of a linear model on words; only the order between candidates counts
)


class TextProblem(Problem):
    """Texts with labels, split and ordered.

    Args:
        name: What lists call it.
        parts: Texts, targets, labels, card and notes.
        max_length: Tokens of a text that models read.
        landmarks: Number of landmarks after the untouched one; None chooses by the amount of data.
        split_seed: Seed of the splits, also of the choice of texts for latency.
        source: Where it comes from: ``path`` and ``options``, or ``builtin`` and ``seed``.

    Attributes:
        labels: Class values by index, with the type they have in the data.
        multi_label: Whether a text has any number of labels.
        notes: Sentences that the user should see.
        test_opened: How often texts or targets of the test split were handed out by this object.
    """

    family: ClassVar[str] = "text-classification"

    def __init__(
        self,
        *,
        name: str,
        parts: Parts,
        max_length: int,
        landmarks: int | None,
        split_seed: int,
        source: Mapping[str, Json],
    ) -> None:
        self.name = name
        self.labels: tuple[Label, ...] = parts.labels
        self.multi_label = parts.multi_label
        self.max_length = max_length
        self.split_seed = split_seed
        self.notes = parts.notes
        self.test_opened = 0
        self._texts = dict(parts.texts)
        self._targets = dict(parts.targets)
        self._card = dict(parts.card)
        self._source = dict(source)
        self._fingerprint = ""
        self._fidelities = _ladder(len(self._texts["train"]), self.n_labels, landmarks)
        self._freeze()

    def _freeze(self) -> None:
        for targets in self._targets.values():
            targets.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()  # pickling forgets it

    @property
    def n_labels(self) -> int:
        """Number of classes."""
        return len(self.labels)

    @property
    def n_train(self) -> int:
        """Number of training texts."""
        return len(self._texts["train"])

    def texts(self, split: Split) -> Sequence[str]:
        """The texts of a split in their order; opening test is counted in ``test_opened``."""
        return self._texts[self._opened(split)]

    def targets(self, split: Split) -> NDArray[Any]:
        """Class indices ``[n] int64``, or indicators ``[n, n_labels] float32``; read-only."""
        return self._targets[self._opened(split)]

    def _opened(self, split: Split) -> Split:
        if split not in self._texts:
            raise ProblemError(f"{self.name} has no split {split!r}; expected train, val or test")
        if split == "test":
            self.test_opened += 1
        return split

    def prefix(self, fidelity: float) -> int:
        """Number of training texts at a fidelity: 0 at 0, all at 1."""
        if not 0.0 <= fidelity <= 1.0:
            raise ProblemError(f"fidelity {fidelity} lies outside [0, 1]")
        return math.ceil(fidelity * self.n_train)

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """Training texts of each class, ``[n_labels]``."""
        targets = self._targets["train"]
        if self.multi_label:
            return np.asarray(targets.sum(axis=0), dtype=np.int64)
        return np.bincount(targets, minlength=self.n_labels).astype(np.int64)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return self._fidelities

    @property
    def unit(self) -> str:
        return "examples"

    def amount(self, fidelity: float) -> float:
        return float(self.prefix(fidelity))

    def data_hash(self, split: Split) -> str:
        """SHA-256 of a split's texts and targets in their order; keys caches of features."""
        return _hash_split(self._texts[split], self._targets[split])

    def fingerprint(self) -> str:
        if not self._fingerprint:
            total = hashlib.sha256()
            head = [encode_labels(self.labels), self.multi_label, self.max_length]
            total.update(json.dumps(head).encode())
            for split in get_args(Split):
                total.update(self.data_hash(split).encode())
            self._fingerprint = total.hexdigest()
        return self._fingerprint

    def reference(self) -> dict[str, Json]:
        return {**self._source, "name": self.name, "fingerprint": self.fingerprint()}

    def card(self) -> dict[str, Json]:
        return {
            **self._card,
            "name": self.name,
            "labels": encode_labels(self.labels),
            "error_means": "1 - micro-F1" if self.multi_label else "share of wrong labels",
            "max_length": self.max_length,
            "landmarks": [self.prefix(f) for f in self.fidelities],
            "fingerprint": self.fingerprint(),
        }

    def floor(self, split: Split = "val") -> dict[str, float]:
        """Scores of the best constant answer of the training labels.

        The most common class, or for multi-label the set of most common labels with the best
        micro-F1; its log loss is that of the class frequencies (one text added to each class, so
        that it stays finite).
        """
        targets = self.targets(split)
        counts = self.class_counts.astype(np.float64)
        if self.multi_label:
            share = (counts + 1.0) / (self.n_train + 2.0)
            logits = np.log(share) - np.log1p(-share)
            decided = _best_constant(counts, self.n_train)
        else:
            logits = np.log((counts + 1.0) / (counts.sum() + self.n_labels))
            decided = logits
        n = len(targets)
        found = scores(np.tile(decided, (n, 1)), targets)
        found["logloss"] = scores(np.tile(logits, (n, 1)), targets)["logloss"]
        return {f"{split}_{name}": value for name, value in found.items()}

    def size_hint(self, candidate: Candidate) -> float:
        model = candidate.params.get("model")
        if not isinstance(model, str) or not model:
            return _MODEL_FREE_SIZE
        from ._models import CATALOGUE

        info = next((m for m in CATALOGUE.list() if m.name == model), None)
        try:
            info = info or CATALOGUE.resolve(model)
        except LampsError:
            return float("nan")  # a hint may be unknown; opening the model will say why
        layers = candidate.params.get("n_layers")
        if isinstance(layers, int) and 0 < layers < info.n_layers:
            return info.parameters * layers / info.n_layers
        return float(info.parameters)

    def __repr__(self) -> str:
        sizes = "/".join(str(len(self._texts[s])) for s in ("train", "val", "test"))
        kind = "multi-label" if self.multi_label else "classes"
        return f"TextProblem({self.name!r}, {sizes} texts, {self.n_labels} {kind})"


def _ladder(n: int, n_labels: int, landmarks: int | None) -> tuple[float, ...]:
    """0, then doubling shares up to 1."""
    if landmarks is None:
        least = max(_LEAST_EXAMPLES, 2 * n_labels)
        doublings = int(math.log2(n / least)) if n >= least else 0
        landmarks = min(_MOST_LANDMARKS, 1 + doublings)
    elif n < 2 ** (landmarks - 1):
        most = 1 + int(math.log2(n))
        raise ConfigError(
            f"landmarks={landmarks} would leave less than one of {n} training texts for the "
            f"first; expected at most {most}"
        )
    return (0.0, *(2.0**-k for k in range(landmarks - 1, -1, -1)))


def _hash_split(texts: Sequence[str], targets: NDArray[Any]) -> str:
    total = hashlib.sha256(f"{len(texts)}:{targets.dtype}:".encode())
    for text in texts:
        data = text.encode("utf-8", errors="surrogatepass")
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    total.update(np.ascontiguousarray(targets).tobytes())
    return total.hexdigest()


def _best_constant(counts: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Logits that always answer the k most common labels, k having the best micro-F1 on train."""
    order = np.argsort(-counts, kind="stable")
    k = np.arange(1, len(counts) + 1)
    micro_f1 = 2.0 * np.cumsum(counts[order]) / (counts.sum() + k * n)
    decided = np.full(len(counts), -1.0)
    decided[order[: int(micro_f1.argmax()) + 1]] = 1.0
    return decided


class TextFamily(Family):
    """Text classification: pretrained encoders and decoders, and honest baselines on words."""

    name: ClassVar[str] = "text-classification"
    summary: ClassVar[str] = "Label texts: fine-tuned language models against linear baselines."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_error", "latency_ms", "size_bytes")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> TextProblem:
        """A data file (CSV, TSV, JSONL, Parquet, gzipped or not), a `datasets` folder, or ``toy``.

        Raises:
            ProblemError: The data cannot be used.
            ConfigError: An option cannot be used.
        """
        if reference is None:
            raise ProblemError(
                "text-classification needs data: name a CSV, TSV, JSONL or Parquet file, a "
                "datasets folder, or 'toy'"
            )
        chosen = parse_options(options)
        path = Path(reference).expanduser()
        if reference == "toy" and not path.exists():
            extra = set(chosen.as_json()) - {"split_seed", "target"}
            if extra:
                raise ConfigError(f"the built-in 'toy' takes split_seed only, not {sorted(extra)}")
            return self.toy_problem(seed=chosen.split_seed)
        path = path.absolute()
        held = {
            key: str(Path(value).expanduser().absolute())
            for key, value in (("val", chosen.val), ("test", chosen.test))
            if value
        }
        chosen = parse_options({**chosen.as_json(), **held})
        return TextProblem(
            name=path.name.split(".")[0] or path.name,
            parts=load(path, chosen),
            max_length=chosen.max_length,
            landmarks=chosen.landmarks,
            split_seed=chosen.split_seed,
            source={"path": str(path), "options": chosen.as_json()},
        )

    def opens(self, data: Path) -> bool:
        """Whether this looks like labelled texts: by suffix, or as a `datasets` folder."""
        if data.is_dir():
            return any((data / mark).is_file() for mark in ("dataset_dict.json", "state.json"))
        return any(suffix.lower() in SUFFIXES for suffix in data.suffixes)

    def reopen(self, reference: Mapping[str, Json]) -> TextProblem:
        """The problem of a reference; refused if the data changed since.

        Raises:
            ProblemError: The file is gone, or gives other texts, labels or splits than before.
        """
        expected = str(reference.get("fingerprint"))
        if reference.get("builtin") == "toy":
            problem = self.toy_problem(seed=int(cast(int, reference["seed"])))
            where = "built-in 'toy'"
        else:
            where = str(reference["path"])
            problem = self.open_problem(where, cast("dict[str, Any]", reference["options"]))
        if problem.fingerprint() != expected:
            raise ProblemError(
                f"{where} changed: its fingerprint was {expected}, now it is "
                f"{problem.fingerprint()}. Restore the file, or start a new run on the new data"
            )
        return problem

    def toy_problem(self, *, seed: int = 0) -> TextProblem:
        """About 120 made-up sentences of three classes that words tell apart, but not always."""
        from ._toy import toy_parts

        return TextProblem(
            name="toy",
            parts=toy_parts(seed),
            max_length=32,
            landmarks=2,
            split_seed=seed,
            source={"builtin": "toy", "seed": seed},
        )

    def models(self) -> ModelCatalogue:
        """The catalogue of pretrained models."""
        from ._models import CATALOGUE

        return CATALOGUE

    def default_models(self, problem: Problem) -> Sequence[str]:
        """Every model of the catalogue that is ready or can be made so without a download."""
        from ._models import CATALOGUE

        return CATALOGUE.default_names()

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Put the scores into the member's model card."""
        from ._export import with_scores

        with_scores(directory, scores)

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
        """See `Family.candidates`; a depth that keeps all layers is written as 0, listed once."""
        pool = super().candidates(
            problem, methods, models, given=given, per_method=per_method, seed=seed
        )
        catalogue = self.models()
        kept: dict[str, Candidate] = {}
        for candidate in pool:
            depth = candidate.params.get("n_layers")
            if isinstance(depth, int) and depth > 0:
                whole = catalogue.resolve(str(candidate.params["model"])).n_layers
                if depth >= whole:
                    candidate = dataclasses.replace(
                        candidate, params=dict(candidate.params) | {"n_layers": 0}
                    )
            kept.setdefault(candidate.key, candidate)
        return list(kept.values())

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterable[Mapping[str, Json]]:
        """Labels of new texts by an exported member, one answer a row in the order of the file.

        Args:
            directory: The exported member.
            rows: A data file; None reads one text a line from standard input.
            options: ``text``, and how to read the file, as for `open_problem`.
        """
        from ._export import predict

        return predict(directory, rows, options)

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Data that must be refused: name, call that raises `ProblemError`, part of the text."""
        from ._toy import bad_inputs

        yield from bad_inputs(self.open_problem)


FAMILY = TextFamily()
