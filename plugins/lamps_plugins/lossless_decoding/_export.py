"""Writing a decoder, and opening it again: the model's folder, and how it is decoded.

    DIR/lamps.json, README.md     method, params, what was measured
    DIR/model/                    the model with its tokenizer, as transformers loads it
    DIR/draft/                    the smaller model, for methods that have one

``lamps_plugins.lossless_decoding.load("DIR").generate("...")`` decodes with the method; the folder
``model`` by itself opens in plain transformers and gives the same texts, slower.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError, did_you_mean
from lamps.space import as_json
from lamps.types import Json
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.text_classification import _export as text_export

if TYPE_CHECKING:
    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._problem import DecodingProblem

__all__ = ["Continuation", "Continuer", "load", "predict", "with_scores", "write"]

_SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja")
"""Files of a model's folder that an export takes along; code is never among them."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """A continued prompt.

    Args:
        text: What was written after the prompt.
        tokens: Its token ids.
        calls: Passes of the model after that over the prompt.
        seconds: Elapsed.
    """

    text: str
    tokens: tuple[int, ...]
    calls: int
    seconds: float


class Continuer:
    """An exported decoder in memory.

    Args:
        lm: The model.
        draft: The smaller model, where the method has one.
        tokenizer: The model's.
        method: How it is decoded.
        max_new: Tokens written where nothing else is said.
    """

    def __init__(
        self, lm: FrozenLm, draft: FrozenLm | None, tokenizer: Any, method: Decoder[Any],
        max_new: int,
    ) -> None:  # fmt: skip
        self.lm, self.draft, self.tokenizer = lm, draft, tokenizer
        self.method, self.max_new = method, max_new

    def generate(
        self, prompt: str | Sequence[int], *, max_new: int | None = None,
        temperature: float = 0.0, top_p: float = 1.0, seed: int = 0,
    ) -> Continuation:  # fmt: skip
        """Continue one prompt; several are a loop.

        Args:
            prompt: Text, or token ids.
            max_new: Tokens to write, at most.
            temperature: 0 takes the likeliest token.
            top_p: Share of probability that is sampled from.
            seed: Of sampling; equal seeds give equal texts, whatever the method.

        Raises:
            ProblemError: The prompt cannot be continued, or is a batch.
            ConfigError: A setting lies outside its range.
        """
        from lamps_plugins.lossless_decoding._decode import decode
        from lamps_plugins.lossless_decoding._sampling import Sampler
        from lamps_plugins.lossless_decoding.plain import PlainDrafter

        ids = self._ids(prompt)
        sampler = Sampler(temperature=temperature, top_p=top_p, seed=seed)
        count = self.max_new if max_new is None else max_new
        drafter = self.method.drafter(self.draft)
        stop = self.lm.stop_ids
        if self.method.upper_bound:
            told = decode(self.lm, PlainDrafter(), ids, max_new=count, sampler=sampler, stop=stop)
            drafter.foresee(told.tokens)
        found = decode(self.lm, drafter, ids, max_new=count, sampler=sampler, stop=stop)
        text = self.tokenizer.decode(found.tokens, skip_special_tokens=True)
        return Continuation(text, tuple(found.tokens), found.calls, found.seconds)

    def _ids(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            found: list[int] = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
            return found
        if any(not isinstance(token, int) for token in prompt):
            raise ProblemError(
                f"a prompt of {type(prompt[0]).__name__} items, expected a text or token ids; "
                "continue the prompts of a batch one by one"
            )
        return list(prompt)


def write(problem: DecodingProblem, method: Decoder[Any], directory: Path) -> None:
    """Write an export into an existing empty folder."""
    _copy(Path(problem.model), directory / "model")
    if method.needs_draft and problem.draft is not None:
        _copy(Path(problem.draft), directory / "draft")
    meta: dict[str, Json] = {
        "format": text_export.FORMAT,
        "family": FAMILY,
        "kind": "decoder",
        "method": method.name(),
        "params": as_json(method.params),
        "fidelity": float(method.fidelity_ or 0.0),
        "data_name": problem.name,
        "max_new": problem.max_new,
        "scores": {},
    }
    _write_card(directory, meta)


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for file in sorted(source.iterdir()):
        if file.suffix not in _SUFFIXES or not file.is_file():
            continue
        if file.suffix == ".safetensors":
            try:
                os.link(file, target / file.name)  # weights may be large, and never change
                continue
            except OSError:
                pass  # another file system: copied below
        shutil.copyfile(file, target / file.name)


def _write_card(directory: Path, meta: Mapping[str, Json]) -> None:
    text = json.dumps(meta, indent=1, ensure_ascii=False)
    (directory / text_export.META).write_text(text + "\n", encoding="utf-8")
    params: Any = meta["params"]
    scores: Any = meta["scores"]
    facts = {
        "Method": f"{meta['method']}, {float(str(meta['fidelity'])):.0%} of a full run",
        "Params": ", ".join(f"{k}={v}" for k, v in sorted(params.items())) or "none",
        "Problem": meta["data_name"],
        "Scores": ", ".join(f"{k} {v:.4g}" for k, v in scores.items()) or "not recorded here",
    }
    table = "\n".join(f"| {k} | {v} |" for k, v in facts.items())
    (directory / "README.md").write_text(
        f"---\ntags: [lamps]\n---\n\n# {meta['data_name']}: decoder\n\n| | |\n| --- | --- |\n"
        f"{table}\n\nTexts are those of plain decoding of the model in `model`.\n\n"
        "```python\nimport lamps_plugins.lossless_decoding as decoding\n\n"
        'decoder = decoding.load("THIS_FOLDER")\nprint(decoder.generate("def main(").text)\n'
        "```\n",
        encoding="utf-8",
    )


def with_scores(directory: Path, scores: Mapping[str, float]) -> None:
    """Put measured scores into the card of an exported folder."""
    _write_card(directory, text_export.read_meta(directory) | {"scores": dict(scores)})


def load(directory: Path) -> Continuer:
    """An exported folder as a `Continuer`.

    Raises:
        ProblemError: It is no export of this family, or its model cannot be used.
    """
    from lamps_plugins.lossless_decoding._lm import open_lm
    from lamps_plugins.lossless_decoding._opening import tokenizer_of

    meta = text_export.read_meta(directory)
    if meta.get("family") != FAMILY:
        raise ProblemError(
            f"{directory} was written by family {meta.get('family')!r}, expected {FAMILY!r}"
        )
    method = _method(str(meta["method"]))
    place = directory.absolute()
    draft = place / "draft"
    return Continuer(
        open_lm(str(place / "model")),
        open_lm(str(draft)) if method.needs_draft else None,
        tokenizer_of(str(place / "model")),
        method.from_params(meta["params"]),
        int(meta["max_new"]),
    )


def _method(name: str) -> type[Decoder[Any]]:
    from lamps_plugins.lossless_decoding._problem import method_names

    known = method_names()
    if name not in known:
        raise ProblemError(f"no way of decoding {name!r}. {did_you_mean(name, known)}")
    module = importlib.import_module(f"{__package__}.{name.replace('-', '_')}")
    return next(
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, Decoder)
        and found.__module__ == module.__name__
    )


def predict(
    directory: Path, rows: Path | None, options: Mapping[str, Any]
) -> Iterator[dict[str, Json]]:
    """Continuations of prompts; see `DecodingFamily.predict`."""
    from lamps_plugins.lossless_decoding._opening import read_prompts

    decoder = load(directory)
    for prompt in read_prompts(rows, str(options.get("text") or "prompt")):
        found = decoder.generate(prompt)
        yield {
            "prompt": prompt,
            "continuation": found.text,
            "tokens": len(found.tokens),
            "calls": found.calls,
        }
