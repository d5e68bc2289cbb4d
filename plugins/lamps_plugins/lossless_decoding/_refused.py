"""What the family must refuse: each differs from a good problem in one thing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lamps_plugins._small_lms import _build as small

Edit = Callable[[dict[str, Any]], object]


def bad_inputs(
    open_problem: Callable[[str | None, Mapping[str, Any]], Any],
) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise, and what the message must name."""
    for name, edit, culprit in _CASES:
        yield name, partial(_refused, open_problem, edit), culprit
    toy = partial(open_problem, "toy")
    yield "unknown-builtin", partial(open_problem, "stdlip", {}), "stdlib"
    yield "nothing-named", partial(open_problem, None, {}), "--decoder"
    yield "meaningless-option", partial(toy, {"prompt_kind": ["code"]}), "prompt_kind"
    yield "negative-temperature", partial(toy, {"temperature": -1.0}), "temperature"
    yield "no-share-of-probability", partial(toy, {"top_p": 0.0}), "top_p"
    yield "no-new-tokens", partial(toy, {"max_new": 0}), "max_new"
    yield "too-long-for-the-context", partial(toy, {"max_new": 4000}), "context"


def _refused(open_problem: Any, edit: Edit) -> Any:
    with tempfile.TemporaryDirectory() as text:
        options = own_options(Path(text))
        edit(options)
        return open_problem(None, options)


def own_options(root: Path) -> dict[str, Any]:
    """The toy's model and prompts as a user has them; the options that open them."""
    for name in ("toy", "toy-draft"):
        small.load(name)
        shutil.copytree(small.folder(name), root / name)
    file = root / "prompts.txt"
    file.write_text("red bird sings .\nold stone falls near\n\nsmall lamp\n", encoding="utf-8")
    return {
        "decoder": str(root / "toy"), "draft": str(root / "toy-draft"), "prompts": str(file),
        "max_new": 8,
    }  # fmt: skip


def _config(which: str, **values: Any) -> Edit:
    def edit(options: dict[str, Any]) -> None:
        file = Path(options[which]) / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | values), "utf-8")

    return edit


def _prompts(text: str, name: str = "prompts.txt") -> Edit:
    def edit(options: dict[str, Any]) -> None:
        file = Path(options["prompts"]).with_name(name)
        file.write_text(text, encoding="utf-8")
        options["prompts"] = str(file)

    return edit


def _other_model(kind: str) -> Edit:
    """Puts an untrained model of another architecture in the place of the toy."""

    def edit(options: dict[str, Any]) -> None:
        from lamps_plugins.text_classification._nets import quiet

        place = Path(options["decoder"])
        with quiet():
            import torch
            from transformers import AutoConfig, AutoModelForCausalLM

            sizes: dict[str, Any] = {
                "bloom": {"hidden_size": 16, "n_layer": 1, "n_head": 2},
                "mistral": {
                    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                    "num_key_value_heads": 1, "intermediate_size": 16, "sliding_window": 8,
                },
            }  # fmt: skip
            torch.manual_seed(0)  # inside quiet's forked state
            config = AutoConfig.for_model(kind, vocab_size=64, **sizes[kind])
            AutoModelForCausalLM.from_config(config).save_pretrained(place)

    return edit


def _small_draft(options: dict[str, Any]) -> None:
    small.load("toy-recall")
    place = Path(options["draft"])
    shutil.rmtree(place)
    shutil.copytree(small.folder("toy-recall"), place)


_CASES: tuple[tuple[str, Edit, str], ...] = (
    # what is wrong, the edit, what the message must name
    ("alibi", _other_model("bloom"), "ALiBi"),
    ("sliding-window", _other_model("mistral"), "sliding window"),
    ("other-vocabulary-of-the-draft", _small_draft, "vocabulary"),
    ("no-model-there", lambda o: o.update(decoder=f"{o['decoder']}-gone"), "config.json"),
    ("no-weights", lambda o: (Path(o["decoder"]) / "model.safetensors").unlink(), "model"),
    ("no-tokenizer", lambda o: (Path(o["decoder"]) / "tokenizer.json").unlink(), "tokenizer"),
    ("encoder", _config("decoder", model_type="bert"), "given mask"),
    ("one-prompt", _prompts("red bird\n"), "at least 2"),
    ("no-prompt-field", _prompts('{"text": "a"}\n', "p.jsonl"), "'prompt'"),
    ("empty-prompt", _prompts('{"prompt": "red"}\n{"prompt": ""}\n', "p.jsonl"), "line 2"),
    ("no-prompts-file", lambda o: o.update(prompts="/nowhere/p.txt"), "/nowhere/p.txt"),
)
