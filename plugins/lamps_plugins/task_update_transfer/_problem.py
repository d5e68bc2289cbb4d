"""The family ``task-update-transfer``: one fine-tuning run, reused on another base.

Two tracks that are never mixed in one problem. *Equal widths*: the target base is a later base of
the same lineage, and results keep the head of the fine-tuned source (``old``) or refit one.
*Another width*: no head fits, so one is refitted for every method (``ridge``, see `_heads`).

Landmarks read more texts and move more layers; what one reads and moves, the next one does too:

    0       the untouched target base under the common head
    0.25    a quarter of the texts, the upper half of the blocks, a quarter of validation
    0.5     half of the texts, all blocks, half of validation
    1       everything
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from lamps.errors import ConfigError, ProblemError
from lamps.method import Family, Method, ModelInfo, Problem, cache_dir
from lamps.types import Candidate, Evaluation, Json, Objective, Split, digest
from lamps_plugins.model_merging._layers import is_embedding
from lamps_plugins.model_merging._networks import correct
from lamps_plugins.task_update_transfer import _generic, _heads, _measure, _networks, _readings
from lamps_plugins.task_update_transfer._lineage import Lineage
from lamps_plugins.task_update_transfer._options import OPTIONS
from lamps_plugins.task_update_transfer._texts import Texts
from lamps_plugins.text_classification import _features, _nets

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["FAMILY", "TransferFamily", "TransferProblem"]

FIDELITIES = (0.0, 0.25, 0.5, 1.0)


class TransferProblem(Problem):
    """A fine-tuned source, a target base, and the texts of the task.

    Args:
        name: What lists call it.
        lineage: The models.
        texts: The texts.
        head: ``old`` or ``ridge``.
        shots: Labelled texts a class of a ridge head.
        source: JSON from which the family makes it again.
        facts: What the card says besides.
        notes: Sentences that the user should see.
    """

    family: ClassVar[str] = "task-update-transfer"

    def __init__(
        self,
        *,
        name: str,
        lineage: Lineage,
        texts: Texts,
        head: str,
        shots: int,
        source: Mapping[str, Json],
        facts: Mapping[str, Json] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.name, self.lineage, self.texts = name, lineage, texts
        self.head, self.shots = head, shots
        self.notes = tuple(notes)
        self.generic = _generic.kind_of(lineage.source, lineage.target)
        self._source, self._facts = dict(source), dict(facts or {})
        if head == "old" and not lineage.same_width:
            raise ProblemError("the old head does not fit another width; use head=ridge")
        if shots < 1:
            raise ConfigError(f"shots={shots}: expected 1 or more")
        own = [str(label) for label in texts.task.labels]
        known = list(lineage.tuned.labels)
        if unknown := sorted(set(own) - set(known)):
            raise ProblemError(
                f"label {unknown[0]!r} of {texts.task.name} is not one of source-tuned: {known}"
            )
        # Classes as the fine-tuned model numbers them.
        self._class = np.array([known.index(label) for label in own], dtype=np.int64)
        if self.head == "ridge" and len(own) < len(known):
            raise ProblemError(
                f"no training text has the label {sorted(set(known) - set(own))[0]!r} of "
                "source-tuned, so no head can be fitted on all labels"
            )
        self.readings = _readings.Readings(self)
        self._templates: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_templates": {}}  # networks are made where they are needed

    # --- texts ---------------------------------------------------------------------------------

    @property
    def test_opened(self) -> int:
        """How often texts or targets of the test split were handed out."""
        return self.texts.task.test_opened

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the logits."""
        return self.lineage.tuned.labels

    def targets(self, split: Split) -> np.ndarray:
        """Classes of a split as the fine-tuned source numbers them. Shape: [n] int64."""
        return self._class[np.asarray(self.texts.task.targets(split), dtype=np.int64)]

    @property
    def tokenizer_info(self) -> ModelInfo:
        """The folder whose tokenizer all share."""
        models = (self.lineage.target, self.lineage.source, self.lineage.tuned)
        folder = next(m.folder for m in models if (m.folder / "tokenizer.json").is_file())
        return ModelInfo(
            name=str(folder), kind="encoder", path=str(folder), parameters=0, size_bytes=0,
            licence="unknown", source=str(folder),
        )  # fmt: skip

    @property
    def pad_id(self) -> int:
        """The padding token."""
        return int(_features.tokenizer_of(self.tokenizer_info).pad_token_id)

    @property
    def limit(self) -> int:
        """Tokens of a text that networks read."""
        return _features.token_limit(
            _networks.info_of(self.lineage.target), self.texts.task.max_length
        )

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of any texts, n times [length] int32."""
        tokenizer = _features.tokenizer_of(self.tokenizer_info)
        return _features.encode(tokenizer, texts, self.limit)

    def rows(self, split: Split, n: int | None = None) -> list[np.ndarray]:
        """Token ids of the first ``n`` texts of a split of the task; cached."""
        return _features.tokens(self.texts.task, self.tokenizer_info, split, n)

    def n_val(self, fidelity: float) -> int:
        """Validation texts that a landmark looks at; all at 0, which costs next to nothing."""
        n = len(self.texts.task.texts("val"))
        return math.ceil(fidelity * n) if fidelity > 0.0 else n

    def few(self) -> tuple[list[np.ndarray], np.ndarray]:
        """The few labelled texts that fit a ridge head: rows, and classes [n]."""
        targets = self.targets("train")
        chosen = _heads.shots(targets, len(self.labels), self.shots)
        rows = self.rows("train", int(chosen.max()) + 1)
        return [rows[i] for i in chosen], targets[chosen]

    @property
    def head_labels(self) -> int:
        """Labelled texts that the common head costs."""
        return len(self.few()[1]) if self.head == "ridge" else 0

    # --- networks ------------------------------------------------------------------------------

    def names(self, fidelity: float) -> tuple[str, ...]:
        """Tensors that fine-tuning moved and that a landmark moves, in the order of the model."""
        moved = self.lineage.moved
        if fidelity <= 0.0:
            return ()
        return tuple(n for n in moved if fidelity > FIDELITIES[1] or self.lineage.upper(n))

    def all_names(self, fidelity: float) -> tuple[str, ...]:
        """As `names`, with what only differs between the two bases; for equal widths."""
        import torch

        lineage = self.lineage
        source, target = lineage.weights("source"), lineage.weights("target")
        moved = set(lineage.moved)
        return tuple(
            name
            for name in source
            if (fidelity > FIDELITIES[1] or lineage.upper(name))
            and (name in moved or not torch.equal(source[name], target[name]))
        )

    def is_table(self, name: str) -> bool:
        """Whether a tensor is a table of embeddings."""
        return is_embedding(name, self.lineage.target.encoder[name])

    def classifier(self, which: str) -> nn.Module:
        """A new classifier: ``source`` and ``target`` bases, ``tuned``; not shared with anybody.

        Bases have the old head where that is the protocol, else one of zeros.
        """
        return _networks.changed(self._template(which), {})

    def _template(self, which: str) -> nn.Module:
        if which not in self._templates:
            lineage = self.lineage
            if which == "tuned" or self.head == "old":
                net = _networks.with_old_head(lineage.tuned, lineage.weights(which))
            else:
                base = lineage.source if which == "source" else lineage.target
                net = _networks.with_new_head(base, self.labels, self.pad_id)
            self._templates[which] = net
        net = self._templates[which]
        return cast("nn.Module", net)

    @functools.cached_property
    def reader(self) -> str:
        """Hash of what a classifier puts between encoder and last layer, such as a pooler."""
        net = self._template("target")
        own = {id(p) for p in _nets.last_layer(net).parameters()}
        names = _nets.head_names(net)
        parts = {k: p for k, p in net.named_parameters() if k in names and id(p) not in own}
        total = hashlib.sha256()
        for name, value in sorted(parts.items()):
            total.update(name.encode() + value.detach().cpu().numpy().tobytes())
        return total.hexdigest()

    def network(self, updates: Mapping[str, Tensor], *, refit: bool = False) -> nn.Module:
        """The target base plus updates under the common head, ready to answer.

        Args:
            updates: What is added, by canonical name; the target base where missing.
            refit: Fit the head whatever the protocol.
        """
        net = _networks.changed(self._template("target"), updates)
        if refit or self.head == "ridge":
            self.fit_head(net)
        return net

    def fit_head(self, net: nn.Module) -> None:
        """Put the ridge head of the few labelled texts into a classifier."""
        rows, targets = self.few()
        found = _networks.features(net, rows, self.pad_id)
        _networks.set_head(net, *_heads.ridge_head(found, targets, len(self.labels)))

    def logits(self, net: nn.Module, split: Split, n: int | None = None) -> np.ndarray:
        """What a network answers to the first ``n`` texts of a split: [n, n_labels] float32."""
        return _nets.logits_of_tokens(net, self.rows(split, n), self.pad_id)

    # --- measuring -----------------------------------------------------------------------------

    def measure(self, net: nn.Module, split: Split, *, fidelity: float) -> Evaluation:
        """Every objective but those of the worker and of the method itself; see `_measure`."""
        n = self.n_val(fidelity) if split == "val" else None
        targets = self.targets(split)[:n]
        right = correct(self.logits(net, split, n), targets)
        marks = self.marks(split)
        signals = _measure.accuracies(
            right, marks["untouched"][:n], marks["tuned"][:n] if "tuned" in marks else None
        )
        own = self.readings.generic_loss(net)
        base = float(marks["generic"][0])
        if split == "test":
            signals |= _measure.interval(right, split)
        return Evaluation(
            {f"{split}_error": 1.0 - float(right.mean()), "retention": own - base},
            signals | {"generic_loss": own, "generic_loss.untouched": base},
        )

    def marks(self, split: Split) -> dict[str, np.ndarray]:
        """What the untouched and the fine-tuned target get right on a split; cached."""
        tuned = self.lineage.target_tuned
        key = digest(
            [1, self.lineage.key, tuned.sha256 if tuned else None, self.texts.key, self.head,
             self.shots, self.generic, split]
        )  # fmt: skip

        def make() -> dict[str, np.ndarray]:
            targets = self.targets(split)
            net = self.network({})
            found = {"untouched": correct(self.logits(net, split), targets)}
            found["generic"] = np.array([self.readings.generic_loss(net)])
            if tuned is not None:
                weights = self.lineage.weights("target")
                moved = {k: tuned.delta((k,))[0] for k in weights if k in tuned.moved}
                if self.head == "old":
                    # Its own head: it was trained with it, as the source was with the old one.
                    whole = {k: w + moved[k] if k in moved else w for k, w in weights.items()}
                    best = _networks.with_old_head(tuned, whole)
                else:
                    best = self.network(moved)
                found["tuned"] = correct(self.logits(best, split), targets)
            return found

        return _features.cached(cache_dir() / "transfer" / f"marks-{key}", make)

    # --- the contract --------------------------------------------------------------------------

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return _measure.OBJECTIVES

    @property
    def fidelities(self) -> tuple[float, ...]:
        return FIDELITIES

    @property
    def unit(self) -> str:
        return "texts"

    def amount(self, fidelity: float) -> float:
        """Validation texts that a landmark looks at; 0 for the untouched base."""
        return float(self.n_val(fidelity)) if fidelity > 0.0 else 0.0

    def check_fidelity(self, fidelity: float) -> None:
        """Refuse a fidelity at which there is no landmark."""
        if fidelity not in FIDELITIES:
            known = ", ".join(f"{f:g}" for f in FIDELITIES)
            raise ProblemError(f"fidelity {fidelity!r} is no landmark, expected one of {known}")

    def reference(self) -> dict[str, Json]:
        return {**self._source, "name": self.name, "fingerprint": self.fingerprint()}

    def fingerprint(self) -> str:
        tuned = self.lineage.target_tuned
        parts = [self.lineage.key, tuned.sha256 if tuned else None, self.texts.key, self.head]
        text = digest([*parts, self.shots, self.generic], length=64)
        return hashlib.sha256(text.encode()).hexdigest()

    def floor(self, split: Split = "val") -> dict[str, float]:
        """The commonest training class."""
        counts = np.bincount(self.targets("train"), minlength=len(self.labels))
        return {f"{split}_error": float((self.targets(split) != counts.argmax()).mean())}

    def card(self) -> dict[str, Json]:
        lineage, task = self.lineage, self.texts.task
        used = task.card()
        return {
            **self._facts,
            "name": self.name,
            "track": "equal widths" if lineage.same_width else "another width",
            "source_base": str(lineage.source.folder),
            "source_tuned": str(lineage.tuned.folder),
            "target_base": str(lineage.target.folder),
            "labels": list(self.labels),
            "head": self.head if self.head == "old" else f"ridge, {self.shots} texts a class",
            "generic_loss": self.generic,
            "rows_used": used.get("rows_used"),
            "generic_texts": len(self.texts.generic),
            "domain_texts": len(self.texts.domain),
            "moved_tensors": len(lineage.moved),
            "max_length": task.max_length,
            **{k: used[k] for k in ("source", "licence", "what") if k in used},
            "fingerprint": self.fingerprint(),
        }

    def __repr__(self) -> str:
        track = "equal widths" if self.lineage.same_width else "another width"
        return f"TransferProblem({self.name!r}, {track}, head {self.head})"


class TransferFamily(Family):
    """Transfer of one fine-tuning run to another base."""

    name: ClassVar[str] = "task-update-transfer"
    summary: ClassVar[str] = "Move what fine-tuning changed to an updated base or another width."
    default_objectives: ClassVar[tuple[str, ...]] = ("val_error", "retention", "train_s")
    options = OPTIONS

    def open_problem(self, reference: str | None, options: Mapping[str, Any]) -> TransferProblem:
        """A built-in transfer, or a file of labelled texts with one's own models.

        Raises:
            ProblemError: Models or texts cannot be used; see `_lineage`.
            ConfigError: An option cannot be used.
        """
        from lamps_plugins.task_update_transfer import _opening

        self.check_options(options)
        return _opening.open_any(reference, {k: v for k, v in options.items() if v is not None})

    def reopen(self, reference: Mapping[str, Json]) -> TransferProblem:
        """The problem of a reference; refused if a model or a file changed since."""
        options = cast("dict[str, Any]", reference.get("options") or {})
        problem = self.open_problem(str(reference["opened"]), options)
        self.require_unchanged(problem, reference["fingerprint"], "models and files")
        return problem

    def toy_problem(self, *, seed: int = 0) -> TransferProblem:
        """A BERT of two layers made in code, fine-tuned, and the same base after other texts."""
        from lamps_plugins.task_update_transfer import _opening

        return _opening.open_any("toy", {"zoo_seed": seed})

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
        """See `Family.candidates`; methods that need equal widths only where they are."""
        from lamps_plugins.task_update_transfer._transfer import fits

        usable = {name: m for name, m in methods.items() if fits(m, problem)}
        return super().candidates(
            problem, usable, models, given=given, per_method=per_method, seed=seed
        )

    def describe_export(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Put the scores into the member's card."""
        from lamps_plugins.text_classification import _export

        _export.with_scores(directory, scores)

    def predict(
        self, directory: Path, rows: Path | None, options: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Json]]:
        """Labels of new texts by an exported classifier."""
        from lamps_plugins.text_classification import _export

        return _export.predict(directory, rows, options)

    def bad_inputs(self) -> Iterator[tuple[str, Any, str]]:
        """Transfers that must be refused: name, call that must raise, part of the message."""
        from lamps_plugins.task_update_transfer import _refused

        yield from _refused.bad_inputs(self.open_problem)


FAMILY = TransferFamily()
