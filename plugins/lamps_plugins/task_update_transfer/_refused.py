"""Transfers that the family must refuse: each differs from a good one in one thing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lamps_plugins._zoo._build import ZooSpec, build
from lamps_plugins.model_merging._refused import copied, edit_json, edit_weights

Edit = Callable[[dict[str, Path]], object]
Open = Callable[[str | None, Mapping[str, Any]], Any]


def bad_inputs(open_problem: Open) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, call that must raise `ProblemError` or `ConfigError`, what the message must name."""
    for name, edit, culprit in _CASES:
        yield name, partial(_refused, open_problem, edit, {}), culprit
    for name, options, culprit in _OPTION_CASES:
        yield name, partial(_refused, open_problem, lambda at: None, options), culprit
    yield "unknown-builtin", partial(open_problem, "shift-tiny", {}), "shift-small"
    yield "nothing-named", partial(open_problem, None, {}), "--source-base"
    yield "meaningless-option", partial(open_problem, "toy", {"task": "r8"}), "task"
    yield "old-head-of-another-width", partial(open_problem, "toy-width", {"head": "old"}), "head"


def _refused(open_problem: Open, edit: Edit, options: Mapping[str, Any]) -> Any:
    with tempfile.TemporaryDirectory() as text:
        places = copies(Path(text))
        edit(places)
        file, own = opened_with(places)
        return open_problem(file, {k: v for k, v in (own | dict(options)).items() if v != ""})


def copies(root: Path) -> dict[str, Path]:
    """The toy's folders and texts as a user has them."""
    return copied(build(ZooSpec(profile="toy"), lambda _: None), root)


def opened_with(places: Mapping[str, Path]) -> tuple[str, dict[str, Any]]:
    """File and options with which a user opens what `copies` wrote."""
    return str(places["dish.data"]), {
        "source_base": str(places["base"]),
        "source_tuned": str(places["dish"]),
        "target_base": str(places["game"]),
        "target": "label",
        "max_length": 16,
    }


_QUERY = "encoder.layer.0.attention.self.query.weight"
_MODEL = "model.safetensors"


def _weights(who: str, change: Callable[[dict[str, Any]], object]) -> Edit:
    return lambda at: edit_weights(at[who] / _MODEL, change)


def _put(name: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any]], object]:
    return lambda tensors: tensors.update({name: make(tensors[name])})


def _swapped_words(at: dict[str, Path]) -> None:
    import json

    file = at["game"] / "tokenizer.json"
    found = json.loads(file.read_text("utf-8"))
    words = found["model"]["vocab"]
    words["chess"], words["dice"] = words["dice"], words["chess"]
    file.write_text(json.dumps(found), "utf-8")


def _same_model(at: dict[str, Path]) -> None:
    from safetensors.torch import load_file

    base = load_file(at["base"] / _MODEL)

    def change(tensors: dict[str, Any]) -> None:
        tensors.update({f"bert.{k}": v for k, v in base.items() if f"bert.{k}" in tensors})

    edit_weights(at["dish"] / _MODEL, change)


def _no_labels(at: dict[str, Path]) -> None:
    at["dish.data"].write_text('{"text": "a", "label": "sweet"}\n', "utf-8")


def _unknown_label(at: dict[str, Path]) -> None:
    text = at["dish.data"].read_text("utf-8").replace('"sour"', '"bitter"')
    at["dish.data"].write_text(text, "utf-8")


_GAME_QUERY, _DISH_QUERY = f"bert.{_QUERY}", f"bert.{_QUERY}"

_CASES: tuple[tuple[str, Edit, str], ...] = (
    # what is wrong, the edit, what the message must name
    (
        "other-depth",
        lambda at: edit_json(at["game"] / "config.json", num_hidden_layers=3),
        "num_hidden_layers",
    ),
    (
        "other-model-type",
        lambda at: edit_json(at["game"] / "config.json", model_type="roberta"),
        "model_type",
    ),
    ("other-modules", _weights("game", lambda t: t.pop(_GAME_QUERY)), "query"),
    ("other-vocabulary", _swapped_words, "vocabulary"),
    ("tuned-of-other-shape", _weights("dish", _put(_DISH_QUERY, lambda w: w[:-1])), "[31, 32]"),
    ("tuned-lacks-a-tensor", _weights("dish", lambda t: t.pop(_DISH_QUERY)), "query"),
    ("tuned-is-the-base", _same_model, "no update"),
    ("tuned-from-another-base", _weights("dish", _put(_DISH_QUERY, lambda w: w + 9)), "not fine"),
    ("quantized", _weights("game", _put(_GAME_QUERY, lambda w: w.char())), "I8"),
    ("target-not-finite", _weights("game", _put(_GAME_QUERY, lambda w: w / 0.0)), "finite"),
    ("tuned-not-finite", _weights("dish", _put(_DISH_QUERY, lambda w: w / 0.0)), "finite"),
    (
        "tuned-without-head",
        _weights("dish", lambda t: [t.pop(k) for k in list(t) if not k.startswith("bert.e")]),
        "head",
    ),
    ("no-labelled-texts", _no_labels, "1 usable"),
    ("unknown-label", _unknown_label, "bitter"),
)

_OPTION_CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("no-target", {"target_base": ""}, "--target-base"),
    ("no-folder", {"target_base": "/nowhere"}, "/nowhere"),
    ("unknown-head", {"head": "new"}, "ridge"),
    ("no-shots", {"shots": 0}, "shots=0"),
)
