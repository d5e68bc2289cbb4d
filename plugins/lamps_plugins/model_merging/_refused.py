"""Experts that the family must refuse: each differs from a good one in one thing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lamps_plugins._zoo._build import Zoo, ZooSpec, build

Edit = Callable[[dict[str, Path]], object]
Change = Callable[[dict[str, Any]], object]


def bad_inputs(
    open_problem: Callable[[str | None, Mapping[str, Any]], Any],
) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise `ProblemError`, and what the message must name."""
    for kind, name, edit, culprit in _CASES:
        yield name, partial(_refused, open_problem, kind, edit), culprit
    toy = partial(open_problem, "toy")
    yield "unknown-builtin", partial(open_problem, "mm-text9", {}), "mm-text8"
    yield "nothing-named", partial(open_problem, None, {}), "--base"
    yield "meaningless-option", partial(toy, {"tasks": 2}), "tasks"
    yield "unknown-kind", partial(toy, {"experts": "lola"}), "lora"


def _refused(open_problem: Any, kind: str, edit: Edit) -> Any:
    with tempfile.TemporaryDirectory() as text:
        copies = copied(build(ZooSpec(kind=kind, profile="toy"), lambda _: None), Path(text))
        edit(copies)
        return open_problem(None, options_of(copies))


def copied(zoo: Zoo, root: Path) -> dict[str, Path]:
    """A zoo of the toy as a user has it: folders, and a file of labelled texts for each task."""
    places = {"base": root / "base"}
    shutil.copytree(zoo.base, places["base"])
    for name, folder in zoo.experts.items():
        places[name] = root / name
        shutil.copytree(folder, places[name])
        file = root / f"{name}.jsonl"
        task = ZooSpec(profile="toy").task(name)
        rows = [
            {"text": text, "label": task.labels[int(target)]}
            for split in ("train", "val", "test")
            for text, target in zip(task.texts(split), task.targets(split), strict=True)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        places[f"{name}.data"] = file
    return places


def options_of(places: Mapping[str, Path]) -> dict[str, Any]:
    """The options with which a user opens what `copied` wrote."""
    experts = [name for name in places if f"{name}.data" in places]
    return {
        "base": str(places["base"]),
        "expert": [str(places[name]) for name in experts],
        "task_data": [f"{name}={places[f'{name}.data']}" for name in experts],
        "target": "label",
        "max_length": 16,
    }


def edit_json(path: Path, **values: Any) -> None:
    """Set fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


def edit_weights(path: Path, change: Change) -> None:
    """Change the tensors of a safetensors file."""
    from safetensors.torch import load_file, save_file

    tensors = dict(load_file(path))
    change(tensors)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, {"format": "pt"})


_QUERY = "bert.encoder.layer.0.attention.self.query.weight"
_MODEL, _ADAPTER = "model.safetensors", "adapter_model.safetensors"


def _weights(expert: str, change: Change, file: str = _MODEL) -> Edit:
    return lambda at: edit_weights(at[expert] / file, change)


def _config(expert: str, file: str = "config.json", **values: Any) -> Edit:
    return lambda at: edit_json(at[expert] / file, **values)


def _put(name: str, make: Callable[[Any], Any]) -> Change:
    return lambda tensors: tensors.update({name: make(tensors[name])})


def _one_expert(at: dict[str, Path]) -> None:
    for name in ("game", "trip"):
        del at[name], at[f"{name}.data"]


def _no_texts(at: dict[str, Path]) -> None:
    lines = at["game.data"].read_text("utf-8").splitlines(keepends=True)[:3]
    at["game.data"].write_text("".join(lines), "utf-8")


def _twin(at: dict[str, Path]) -> None:
    shutil.copyfile(at["game"] / _MODEL, at["trip"] / _MODEL)


def _shared_text(at: dict[str, Path]) -> None:
    from lamps_plugins.text_classification._loading import load
    from lamps_plugins.text_classification._options import parse_options

    chosen = parse_options({"target": "label", "val_share": 0.1, "max_val": 128, "max_length": 16})
    text = load(at["game.data"], chosen).texts["test"][0]
    # Enough copies in both classes of another task would be one unit; one row is a train row.
    rows = [json.dumps({"text": text, "label": label}) for label in ("air", "rail")]
    with at["trip.data"].open("a", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")


def _pickled(at: dict[str, Path]) -> None:
    (at["game"] / _MODEL).rename(at["game"] / "pytorch_model.bin")


def _other_words(at: dict[str, Path]) -> None:
    file = at["game"] / "tokenizer.json"
    found = json.loads(file.read_text("utf-8"))
    words = found["model"]["vocab"]
    words["chess"], words["dice"] = words["dice"], words["chess"]
    file.write_text(json.dumps(found), "utf-8")


def _renamed_label(at: dict[str, Path]) -> None:
    text = at["game.data"].read_text("utf-8").replace('"board"', '"table"')
    at["game.data"].write_text(text, "utf-8")


_CASES: tuple[tuple[str, str, Edit, str], ...] = (
    # kind of the experts, what is wrong, the edit, what the message must name
    ("full", "one-expert", _one_expert, "at least 2"),
    ("full", "other-architecture", _config("game", num_attention_heads=4), "num_attention_heads"),
    ("full", "other-model-type", _config("game", model_type="roberta"), "model_type"),
    ("full", "other-vocabulary", _other_words, "vocabulary"),
    ("full", "missing-tensor", _weights("game", lambda t: t.pop(_QUERY)), "query"),
    ("full", "other-shape", _weights("game", _put(_QUERY, lambda w: w[:-1])), "[31, 32]"),
    ("full", "other-type", _weights("game", _put(_QUERY, lambda w: w.half())), "F16"),
    ("full", "quantized", _weights("game", _put(_QUERY, lambda w: w.char())), "I8"),
    ("full", "not-finite", _weights("game", _put(_QUERY, lambda w: w / 0.0)), "finite"),
    ("full", "other-base", _weights("game", _put(_QUERY, lambda w: w + 9.0)), "not fine-tuned"),
    ("full", "duplicate-weights", _twin, "'game' and 'trip'"),
    ("full", "pickle", _pickled, "pytorch_model.bin"),
    ("full", "damaged-file", lambda at: (at["game"] / _MODEL).write_bytes(b"{}"), "safe"),
    ("full", "label-unknown-to-the-head", _renamed_label, "table"),
    ("full", "head-of-other-size", _config("game", id2label={"0": "a", "1": "b"}), "2 labels"),
    ("full", "too-few-texts", _no_texts, "3 usable"),
    ("full", "shared-test-text", _shared_text, "test text of task 'game'"),
    ("lora", "dora", _config("game", "adapter_config.json", use_dora=True), "use_dora"),
    ("lora", "other-adapter", _config("game", "adapter_config.json", peft_type="IA3"), "IA3"),
    (
        "lora",
        "half-an-adapter",
        _weights(
            "game",
            lambda t: t.pop(f"base_model.model.{_QUERY.removesuffix('weight')}lora_A.weight"),
            _ADAPTER,
        ),
        "lora_A",
    ),
    ("lora", "adapter-without-labels", lambda at: (at["game"] / "config.json").unlink(), "labels"),
    (
        "lora",
        "adapter-without-head",
        _weights(
            "game",
            lambda t: [t.pop(k) for k in list(t) if "classifier" in k],
            _ADAPTER,
        ),
        "head",
    ),
)
