"""From what a user typed to a problem: built-in ones, or a decoder and a text of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps_plugins.sparse_attention._items import Source
from lamps_plugins.sparse_attention._options import BUILTIN, OWN
from lamps_plugins.sparse_attention._problem import AttentionProblem

if TYPE_CHECKING:
    from lamps_plugins.sparse_attention._decoders import Ids, TextSource

__all__ = ["open_any"]

SMOLLM2 = "SmolLM2-135M-Instruct"

_LENGTHS = {"topics": 8192, "smollm2": 2048, "toy": 512}
_SEQUENCES = {"topics": 2, "smollm2": 2, "toy": 2}
SHORTEST = 128


def open_any(reference: str | None, options: Mapping[str, Any]) -> AttentionProblem:
    """The problem that was named; see `AttentionFamily.open_problem`."""
    own = reference is None
    if own and not (options.get("decoder") and options.get("text_file")):
        raise ProblemError(
            "sparse-attention needs a built-in problem (sparse-attention:topics, ...:recall, "
            "...:stdlib, ...:smollm2) or --decoder DIR and --text-file FILE"
        )
    if not own and reference not in BUILTIN:
        raise ProblemError(
            f"no built-in problem {reference!r}. {did_you_mean(str(reference), BUILTIN)}"
        )
    allowed = OWN if own else BUILTIN[str(reference)]
    for name in options:
        if name not in allowed:
            where = "one's own decoder" if own else f"the built-in {reference!r}"
            raise ConfigError(f"option {name!r} has no meaning for {where}; it takes {allowed}")
    length = int(options.get("length", _LENGTHS.get(str(reference), 4096)))
    sequences = int(options.get("sequences", _SEQUENCES.get(str(reference), 4)))
    if length < SHORTEST or length % 8:
        raise ConfigError(
            f"--length is {length}; expected a multiple of 8 from {SHORTEST}, in tokens"
        )
    if sequences < 1:
        raise ConfigError(f"--sequences is {sequences}; expected at least 1")
    source = _source(reference, options, length)
    kept = {k: str(v) if k in ("decoder", "text_file") else v for k, v in options.items()}
    if own:
        kept |= {k: str(Path(kept[k]).expanduser().absolute()) for k in ("decoder", "text_file")}
    return AttentionProblem(
        name=reference or f"{Path(kept['decoder']).name}-{Path(kept['text_file']).stem}",
        source=source,
        length=length,
        sequences=sequences,
        reference={"builtin": reference, "options": kept},
    )


def _source(reference: str | None, options: Mapping[str, Any], length: int) -> Source:
    from lamps_plugins.sparse_attention._topics import Topics

    seed = int(options.get("data_seed", 0))
    if seed < 0:
        raise ConfigError(f"--data-seed is {seed}; expected 0 or more")
    if reference == "topics":
        return Topics(seed=seed)
    if reference == "toy":
        return Topics(heads_q=2, heads_k=1, width=16, topics=6, segment=48, seed=seed)
    from lamps_plugins.sparse_attention._decoders import RecallSource, context

    if reference == "recall":
        source: RecallSource | TextSource = RecallSource(
            folder=_built("recall"), name="recall", seed=seed
        )
    elif reference is None:
        source = _own(Path(str(options["decoder"])), Path(str(options["text_file"])), length)
    else:
        source = _stdlib(str(reference), length)
    if context(source.folder) < length:
        raise ProblemError(
            f"{source.name} reads at most {context(source.folder)} tokens, --length is {length}; "
            "give a shorter one"
        )
    return source


def _built(name: str) -> str:
    """Folder of a small decoder; toys are built on the way.

    Raises:
        ProblemError: It is not built yet; the message says how.
    """
    from lamps_plugins import _small_lms

    place = _small_lms.folder(name)
    if not place.is_dir():
        _small_lms.load(name)
    return str(place)


def _stdlib(reference: str, length: int) -> TextSource:
    """Sources of the standard library that the small decoder was not trained on."""
    from lamps_plugins._small_lms._corpus import stdlib
    from lamps_plugins.text_classification._models import TextModels

    own = reference == "stdlib"
    folder = _built("stdlib") if own else str(TextModels().resolve(SMOLLM2).path)
    texts = list(stdlib().held_out.values())
    middle = len(texts) // 2
    return _text(folder, reference, {"val": texts[:middle], "test": texts[middle:]}, length)


def _own(folder: Path, file: Path, length: int) -> TextSource:
    """A decoder and a text of the user's."""
    from lamps_plugins.text_classification._models import weight_files

    folder, file = folder.expanduser().absolute(), file.expanduser().absolute()
    if not (folder / "config.json").is_file():
        raise ProblemError(
            f"--decoder {folder} holds no config.json; expected a folder of a decoder"
        )
    weight_files(folder)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        line = str(error).splitlines()[0]
        raise ProblemError(f"--text-file {file} cannot be read as UTF-8: {line}") from error
    middle = len(text) // 2
    parts = {"val": [text[:middle]], "test": [text[middle:]]}
    return _text(str(folder), folder.name, parts, length)


def _text(folder: str, name: str, parts: Mapping[str, Sequence[str]], length: int) -> TextSource:
    from lamps_plugins.sparse_attention._decoders import TextSource

    ids = _tokens(folder, {k: tuple(v) for k, v in parts.items()})
    for split, tokens in ids.items():
        if len(tokens) < length + 2:
            raise ProblemError(
                f"the {split} half of the text has {len(tokens)} tokens; expected at least "
                f"{length + 2} for --length {length}, give a longer text"
            )
    return TextSource(folder=folder, name=name, ids=ids)


def _tokens(folder: str, parts: Mapping[str, Sequence[str]]) -> dict[str, Ids]:
    """Tokens of the texts of each split, one text after the other with an end between them."""
    from lamps_plugins.text_classification._nets import quiet

    with quiet():
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError, KeyError) as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise ProblemError(f"{folder} has no tokenizer: {line}") from error
        end = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        found: dict[str, Ids] = {}
        for split, texts in parts.items():
            rows = tokenizer(list(texts), add_special_tokens=False).input_ids
            found[split] = np.concatenate([np.array([*row, *end], np.int64) for row in rows])
        return found
