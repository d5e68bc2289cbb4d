"""From what a user typed to a problem: built-in models and prompts, or the user's own."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamps.errors import ConfigError, ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins._small_lms import _build as small
from lamps_plugins._small_lms._tokens import rhymes
from lamps_plugins.lossless_decoding import _prompts
from lamps_plugins.lossless_decoding._options import TASKS
from lamps_plugins.lossless_decoding._problem import DecodingProblem
from lamps_plugins.lossless_decoding._prompts import Prompt
from lamps_plugins.lossless_decoding._sampling import Sampler
from lamps_plugins.text_classification._models import CATALOGUE, hash_files, weight_files
from lamps_plugins.text_classification._nets import quiet

__all__ = ["open_any", "read_prompts", "tokenizer_of"]

SMOLLM2 = "SmolLM2-135M-Instruct"

_COMMON = ("max_new", "n_prompts", "temperature", "top_p", "sample_seed")
_BUILTIN: dict[str, tuple[int, int]] = {"stdlib": (64, 64), "smollm2": (16, 32), "toy": (8, 24)}
"""Built-in problems: prompts and new tokens where the user asks for none."""

_LONGEST_PROMPT = 160  # tokens of a built-in prompt, from the end


def open_any(reference: str | None, options: Mapping[str, Any]) -> DecodingProblem:
    """The problem that was named; see `DecodingFamily.open_problem`."""
    own = reference is None
    if own and not (options.get("decoder") and options.get("prompts")):
        raise ProblemError(
            "lossless-decoding needs a built-in problem (lossless-decoding:stdlib, :smollm2 or "
            ":toy) or --decoder DIR and --prompts FILE"
        )
    if not own and reference not in _BUILTIN:
        raise ProblemError(
            f"no built-in decoding problem {reference!r}. {did_you_mean(str(reference), _BUILTIN)}"
        )
    allowed: tuple[str, ...] = ("decoder", "draft", "prompts") if own else ("prompt_seed",)
    if reference in ("stdlib", "smollm2"):
        allowed = ("prompt_seed", "prompt_kind")
    for name in options:
        if name not in (*allowed, *_COMMON):
            where = "one's own model" if own else f"the built-in {reference!r}"
            raise ConfigError(
                f"option {name!r} has no meaning for {where}; it takes {(*allowed, *_COMMON)}"
            )
    for name, least in (("max_new", 1), ("n_prompts", 2), ("prompt_seed", 0)):
        if int(options.get(name, least)) < least:
            raise ConfigError(f"{name}={options[name]}: expected {least} or more")
    sampling = Sampler(
        temperature=float(options.get("temperature", 0.0)),
        top_p=float(options.get("top_p", 1.0)),
        seed=int(options.get("sample_seed", 0)),
    )
    if own:
        return _own(options, sampling)
    return _builtin(str(reference), options, sampling)


def _builtin(reference: str, options: Mapping[str, Any], sampling: Sampler) -> DecodingProblem:
    n, max_new = _BUILTIN[reference]
    n, seed = int(options.get("n_prompts", n)), int(options.get("prompt_seed", 0))
    draft: Path | None = None
    facts: dict[str, Json] = {}
    if reference == "smollm2":
        info = CATALOGUE.resolve(SMOLLM2)
        model, facts["licence"] = Path(str(info.path)), info.licence
    else:
        model = _small(reference)
        draft = small.folder(f"{reference}-draft")
        if reference == "toy":
            _small("toy-draft")
        elif not draft.is_dir():
            draft = None
    notes = []
    if reference == "stdlib" and draft is None:
        notes.append(
            "no draft model, so draft-lm is left out; build one with: lamps small-lms build "
            "stdlib-draft"
        )
    texts = {split: _texts(reference, options, n, split, seed) for split in ("val", "test")}
    return _made(
        reference, model, draft, texts, int(options.get("max_new", max_new)), sampling,
        {"builtin": reference, "options": dict(options)}, facts, notes,
    )  # fmt: skip


def _small(name: str) -> Path:
    """The folder of a small model; the toys are built on the way."""
    place = small.folder(name)
    if not place.is_dir():
        if not name.startswith("toy"):
            raise ProblemError(
                f"the small model {name!r} is not built yet; build it with: lamps small-lms build "
                f"{name}"
            )
        small.build(name, say=lambda _: None)
    return place


def _texts(
    reference: str, options: Mapping[str, Any], n: int, split: str, seed: int
) -> list[tuple[str, str]]:
    if reference == "toy":
        rng = np.random.default_rng([seed, split == "test"])
        return [("rhymes", rhymes(int(rng.integers(12, 30)), rng)) for _ in range(n)]
    tasks = list(dict.fromkeys(options.get("prompt_kind") or TASKS))
    for task in tasks:
        if task not in TASKS:
            raise ConfigError(f"no kind of prompts {task!r}. {did_you_mean(str(task), TASKS)}")
    return _prompts.texts(tasks, n, part=split, seed=seed)


def _own(options: Mapping[str, Any], sampling: Sampler) -> DecodingProblem:
    model = _folder(options["decoder"], "decoder")
    draft = _folder(options["draft"], "draft") if options.get("draft") else None
    file = Path(str(options["prompts"])).expanduser().absolute()
    found = list(read_prompts(file))
    most = 2 * int(options.get("n_prompts", 64))
    if len(found) < 2:
        raise ProblemError(
            f"{file} holds {len(found)} prompts, expected at least 2: every second one is kept "
            "for the test"
        )
    parts = {
        split: [("own", text) for text in found[:most][first::2]]
        for first, split in enumerate(("val", "test"))
    }
    kept = {k: v for k, v in options.items() if k not in ("decoder", "draft", "prompts")}
    places: dict[str, Json] = {"decoder": str(model), "prompts": str(file)}
    if draft is not None:
        places["draft"] = str(draft)
    return _made(
        f"{model.name}-{file.stem}", model, draft, parts, int(options.get("max_new", 64)),
        sampling, {"options": {**kept, **places}}, {}, [],
    )  # fmt: skip


def _folder(value: object, flag: str) -> Path:
    place = Path(str(value)).expanduser().absolute()
    if not (place / "config.json").is_file():
        raise ProblemError(
            f"--{flag} {place} has no config.json, expected a folder in transformers' layout"
        )
    return place


def _made(
    name: str, model: Path, draft: Path | None, texts: Mapping[str, Sequence[tuple[str, str]]],
    max_new: int, sampling: Sampler, source: Mapping[str, Json], facts: Mapping[str, Json],
    notes: Sequence[str],
) -> DecodingProblem:  # fmt: skip
    from lamps_plugins.lossless_decoding._decode import check_prompt
    from lamps_plugins.lossless_decoding._lm import open_lm
    from lamps_plugins.lossless_decoding.draft_lm import check_vocabularies

    lm = open_lm(str(model))
    if draft is not None:
        check_vocabularies(lm, open_lm(str(draft)))
    tokenizer = tokenizer_of(str(model))
    prompts: dict[str, list[Prompt]] = {}
    for split, own in texts.items():
        prompts[split] = []
        for number, (task, text) in enumerate(own, start=1):
            tokens = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
            if "builtin" in source:
                tokens = tokens[-_LONGEST_PROMPT:]
            try:
                check_prompt(lm, tokens, max_new)
            except ProblemError as error:
                raise ProblemError(f"{split} prompt {number}: {error}") from error
            prompts[split].append(Prompt(task, tokens))
    return DecodingProblem(
        name=name, model=str(model), model_hash=hash_files(weight_files(model)), prompts=prompts,
        max_new=max_new, sampling=sampling, source=source,
        draft=None if draft is None else str(draft),
        draft_hash="" if draft is None else hash_files(weight_files(draft)), facts=facts,
        notes=notes,
    )  # fmt: skip


@functools.lru_cache(maxsize=4)
def tokenizer_of(folder: str) -> Any:
    """The tokenizer of a model's folder.

    Raises:
        ProblemError: There is none.
    """
    with quiet():
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ProblemError(
                f"{folder} has no tokenizer that can be loaded, expected tokenizer.json"
            ) from error


def read_prompts(file: Path | None, field: str = "prompt") -> Iterator[str]:
    """Prompts of a file: one a line, or JSON lines (``.jsonl``) with a field.

    Args:
        file: Where they are; None reads lines from standard input.
        field: The field of JSON lines.

    Raises:
        ProblemError: The file cannot be read, or a line holds no prompt.
    """
    if file is None:
        lines = sys.stdin.read().splitlines()
    else:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ProblemError(
                f"cannot read prompts from {file} ({type(error).__name__}), expected UTF-8 text"
            ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if file is None or file.suffix != ".jsonl":
            yield line
            continue
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError) as error:
            raise ProblemError(
                f"{file}, line {number}: expected a JSON object with a text {field!r}"
            ) from error
        if not isinstance(text, str) or not text:
            raise ProblemError(f"{file}, line {number}: {field!r} is {text!r}, expected a text")
        yield text
