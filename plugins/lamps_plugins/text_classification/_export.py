"""Writing and reading what a user takes away: folders of safetensors and JSON.

A fine-tuned network is a folder of the Hugging Face hub's layout. A linear method is
``head.safetensors`` beside what its features need. Both hold ``lamps.json`` (labels with their
types, method, params, provenance) and a model card. No pickle.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps.types import Json
from lamps_plugins.text_classification._heads import Head

FORMAT = 1
"""Version of ``lamps.json``."""

META, HEAD, POOLING = "lamps.json", "head.safetensors", "pooling.json"
BATCH = 256  # rows that predict answers at a time
TERMS, IDF = "vocabulary.json", "idf.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Where an exported classifier comes from.

    Args:
        family: Name of the problem family.
        method: Name of the method.
        params: Its hyperparameters.
        labels: Labels with their types, in the order of the logits.
        multi_label: Whether a text may have several.
        max_length: Tokens after which a text is cut.
        data_hash: Hash of the training data.
        data_name: Name of the problem.
        fidelity: Share of the full training that it got.
        model: Name of the pretrained model, where there is one.
        model_licence: Its licence, as its publisher states it.
        model_source: Where it came from.
        scores: Measured objectives by name; empty where they are not known.
        text_column: Column that the training texts came from; what `predict` looks for first.
    """

    family: str
    method: str
    params: Mapping[str, Json]
    labels: tuple[Any, ...]
    multi_label: bool
    max_length: int
    data_hash: str
    data_name: str
    fidelity: float
    model: str | None = None
    model_licence: str | None = None
    model_source: str | None = None
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    text_column: str | None = None


def write_card(directory: Path, card: Card, *, kind: str) -> None:
    """``lamps.json`` and ``README.md``."""
    meta = {"format": FORMAT, "kind": kind, **dataclasses.asdict(card)}
    _write_json(directory / META, meta)
    (directory / "README.md").write_text(_readme(card, kind), encoding="utf-8")


def _readme(card: Card, kind: str) -> str:
    facts = {
        "Method": f"{card.method}, {card.fidelity:.0%} of a full run",
        "Params": ", ".join(f"{k}={v}" for k, v in sorted(card.params.items())) or "none",
        "Training data": f"{card.data_name}, hash `{card.data_hash}`",
        "Labels": f"{len(card.labels)}{', several a text' if card.multi_label else ''}",
        "Base model": f"{card.model} ({card.model_source})" if card.model else "none",
        "Licence of the base model": card.model_licence or "none needed",
        "Scores": ", ".join(f"{k} {v:.4g}" for k, v in card.scores.items()) or "not recorded here",
        "Texts are cut at": f"{card.max_length} tokens",
    }
    use = {
        "transformer": (
            "from transformers import pipeline\n\n"
            'classify = pipeline("text-classification", "THIS_FOLDER", truncation=True)\n'
            'classify("some text")'
        )
    }.get(kind, "lamps predict THIS_FOLDER rows.csv")
    names = ", ".join(f"`{label}`" for label in card.labels[:50])
    more = f" and {len(card.labels) - 50} more, see `{META}`" if len(card.labels) > 50 else ""
    table = "\n".join(f"| {k} | {v} |" for k, v in facts.items())
    language = "python" if kind == "transformer" else "sh"
    return (
        f"---\nlibrary_name: {'transformers' if kind == 'transformer' else 'lamps'}\n"
        "pipeline_tag: text-classification\ntags: [lamps]\n---\n\n"
        f"# {card.data_name}: text classifier\n\n| | |\n| --- | --- |\n{table}\n\n"
        f"Labels: {names}{more}\n\n```{language}\n{use}\n```\n"
    )


def with_scores(directory: Path, scores: Mapping[str, float]) -> None:
    """Put measured scores into the card of an exported folder."""
    meta = read_meta(directory)
    kind = meta.pop("kind")
    meta.pop("format")
    meta |= {"scores": dict(scores), "labels": tuple(meta["labels"])}
    write_card(directory, Card(**meta), kind=kind)


def write_head(directory: Path, head: Head) -> None:
    """A linear head as safetensors."""
    from safetensors.numpy import save_file

    weight, bias = (np.ascontiguousarray(a, dtype=np.float32) for a in head)
    save_file({"weight": weight, "bias": bias}, directory / HEAD)


def write_tfidf(
    directory: Path, terms: list[dict[str, Any]], arrays: dict[str, np.ndarray]
) -> None:
    """Terms as JSON, their weights as safetensors."""
    from safetensors.numpy import save_file

    _write_json(directory / TERMS, terms)
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, directory / IDF)


def write_encoder(
    directory: Path, net: Any, tokenizer: Any, *, limit: int, last: bool, pooling: str
) -> None:
    """A network without a head in the folder ``encoder``, and how a text becomes one vector."""
    from lamps_plugins.text_classification import _nets

    folder = directory / "encoder"
    folder.mkdir()
    with _nets.quiet():
        net.save_pretrained(folder)
    write_tokenizer(folder, tokenizer, limit)
    _write_json(directory / POOLING, {"limit": limit, "last": last, "pooling": pooling})


def write_tokenizer(directory: Path, tokenizer: Any, max_length: int) -> None:
    """A tokenizer that cuts at ``max_length`` when asked to truncate."""
    from lamps_plugins.text_classification import _nets

    with _nets.quiet():
        before = tokenizer.model_max_length
        tokenizer.model_max_length = max_length
        # The last call's cutting and padding would be saved too; every call sets its own anyway.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        try:
            tokenizer.save_pretrained(directory)
        finally:
            tokenizer.model_max_length = before


def write_transformer(
    directory: Path, net: Any, tokenizer: Any, card: Card, *, limit: int
) -> None:
    """A folder that ``transformers.pipeline("text-classification", FOLDER)`` opens.

    Args:
        directory: An empty folder.
        net: A classifier of transformers; its config holds the label names.
        tokenizer: What goes with it.
        card: Where it comes from.
        limit: Tokens, all that the tokenizer adds included, after which a text is cut.
    """
    from lamps_plugins.text_classification import _nets

    with _nets.quiet():
        net.save_pretrained(directory)
    write_tokenizer(directory, tokenizer, limit)
    write_card(directory, card, kind="transformer")


def count(net: Any) -> int:
    """Number of weights of a network."""
    return sum(int(p.numel()) for p in net.parameters())


_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "bool": "BOOL"}


def tensor_bytes(net: Any) -> int:
    """Bytes of a network's weights as one safetensors file, counted without writing it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, value in net.state_dict().items():
        end = at + int(value.numel() * value.element_size())
        kind = _DTYPES.get(str(value.dtype).removeprefix("torch."), "F32")
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, end]}
        at = end
    length = len(json.dumps(header, separators=(",", ":")))
    return 8 + (length + 7) // 8 * 8 + at


def transformer_bytes(net: Any, tokenizer: Any, card: Card) -> int:
    """Bytes that `write_transformer` will write, without writing the weights."""
    return network_bytes(net, tokenizer) + written(
        lambda folder: write_card(folder, card, kind="transformer")
    )


def network_bytes(net: Any, tokenizer: Any) -> int:
    """Bytes of a network, its config and its tokenizer on disk."""
    return tensor_bytes(net) + _tokenizer_bytes(tokenizer) + len(net.config.to_json_string())


def written(write: Callable[[Path], None]) -> int:
    """Bytes that a function writes, into a folder that is thrown away."""
    folder = Path(tempfile.mkdtemp(prefix="lamps-size-"))
    try:
        write(folder)
        return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.lru_cache(maxsize=16)
def _tokenizer_bytes(tokenizer: Any) -> int:
    return written(lambda folder: write_tokenizer(folder, tokenizer, 128))


def read_meta(directory: Path) -> dict[str, Any]:
    """The content of ``lamps.json``.

    Raises:
        ProblemError: The folder is no export of this family, or of a newer release.
    """
    try:
        meta: dict[str, Any] = json.loads((directory / META).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ProblemError(
            f"{directory} has no {META}, expected a folder written by `lamps export`"
        ) from error
    if meta.get("format") != FORMAT:
        raise ProblemError(
            f"{directory}/{META} has format {meta.get('format')!r}, this release reads {FORMAT}; "
            "update lamps"
        )
    return meta


@dataclass(frozen=True, slots=True)
class Classifier:
    """An exported classifier in memory.

    Args:
        labels: Labels with their types, in the order of the logits.
        multi_label: Whether a text may have several.
        logits_of: From texts to logits ``[n, n_labels] float32``.
    """

    labels: tuple[Any, ...]
    multi_label: bool
    logits_of: Callable[[Sequence[str]], np.ndarray]

    def answers(self, texts: Sequence[str]) -> Iterator[dict[str, Json]]:
        """One answer a text: ``label``, its probability ``score``, the ``scores`` of all labels.

        Several labels a text: ``label`` is the list of those with a probability of at least one
        half, and ``score`` the smallest of theirs (of an empty list: the probability that none
        applies the most, ``1 - max``).
        """
        logits = self.logits_of(texts).astype(np.float64)
        names = [str(label) for label in self.labels]
        for row in _probabilities(logits, multi_label=self.multi_label):
            scores: dict[str, Json] = {n: float(s) for n, s in zip(names, row, strict=True)}
            if self.multi_label:
                chosen = np.flatnonzero(row >= 0.5)
                score = float(row[chosen].min()) if len(chosen) else float(1 - row.max())
                label: Json = [self.labels[i] for i in chosen]
            else:
                best = int(row.argmax())
                label, score = self.labels[best], float(row[best])
            yield {"label": label, "score": score, "scores": scores}


def _probabilities(logits: np.ndarray, *, multi_label: bool) -> np.ndarray:
    if multi_label:
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -700, 700))))
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def load(directory: Path) -> Classifier:
    """An exported folder as a `Classifier`.

    Raises:
        ProblemError: It is no export of this family.
    """
    from lamps_plugins.text_classification import _loaders

    meta = read_meta(directory)
    reader = _loaders.LOADERS.get(meta["kind"])
    if reader is None:
        raise ProblemError(
            f"{directory}/{META} has kind {meta['kind']!r}, expected one of "
            f"{sorted(_loaders.LOADERS)}"
        )
    return Classifier(tuple(meta["labels"]), bool(meta["multi_label"]), reader(directory, meta))


def predict(
    directory: Path, rows: Path | None, options: Mapping[str, Any]
) -> Iterator[dict[str, Json]]:
    """Answers for the rows of a data file, in their order; see `Classifier.answers`.

    Args:
        directory: An exported folder.
        rows: A data file of any kind that a search reads, without labels; None reads standard
            input.
        options: Options of `_columns.read_texts`; ``text`` names the column, which is otherwise
            that of the training data, or detected where the file has none of that name.

    Raises:
        ProblemError: The folder is no export, or the file cannot be read.
    """
    from lamps_plugins.text_classification._columns import read_texts

    classifier = load(directory)
    pending: list[str] = []
    found = read_texts(rows, options, likely=read_meta(directory).get("text_column"))
    for text in found:
        pending.append(text)
        if len(pending) == BATCH:
            yield from classifier.answers(pending)
            pending = []
    if pending:
        yield from classifier.answers(pending)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
