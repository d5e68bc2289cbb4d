"""A rule on disk: JSON with its params, and a script that puts it into a decoder.

    DIR/lamps.json    method, params, seed, what it was chosen on, scores
    DIR/example.py    loads a decoder of transformers with this attention
    DIR/README.md     the same in words

``lamps_plugins.sparse_attention.load(DIR)`` registers it; there are no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ConfigError, ProblemError
from lamps.types import Json
from lamps_plugins.sparse_attention._rule import FAMILY, Rule

if TYPE_CHECKING:
    from lamps_plugins.sparse_attention._problem import AttentionProblem

__all__ = ["load", "with_scores", "write"]

CARD = "lamps.json"
FORMAT = 1

_EXAMPLE = '''"""Runs the prefill of a decoder by the exported rule.

    python example.py FOLDER TEXT
"""

import sys
from pathlib import Path

import torch
from lamps_plugins import sparse_attention
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, text = sys.argv[1:]
name = sparse_attention.load(Path(__file__).parent)
model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=name).eval()
tokens = AutoTokenizer.from_pretrained(folder)(Path(text).read_text(), return_tensors="pt")
with torch.no_grad():
    loss = model(input_ids=tokens.input_ids, labels=tokens.input_ids).loss
print(f"{name}: {tokens.input_ids.shape[1]} tokens, perplexity {loss.exp():.3f}")
'''


def write(rule: Rule[Any], problem: AttentionProblem, directory: Path) -> None:
    """Write a rule into an existing empty folder."""
    card: dict[str, Json] = {
        "format": FORMAT,
        "family": FAMILY,
        **rule.card(),
        "problem": problem.name,
        "problem_fingerprint": problem.fingerprint(),
        "scores": {},
    }
    _write(directory, card)
    (directory / "example.py").write_text(_EXAMPLE, encoding="utf-8")


def _write(directory: Path, card: Mapping[str, Json]) -> None:
    text = json.dumps(card, indent=2, ensure_ascii=False)
    (directory / CARD).write_text(text + "\n", encoding="utf-8")
    (directory / "README.md").write_text(_readme(card), encoding="utf-8")


def _readme(card: Mapping[str, Any]) -> str:
    params = "\n".join(f"| {k} | {v} |" for k, v in card["params"].items())
    scores = "\n".join(f"| {k} | {v:.4g} |" for k, v in card["scores"].items())
    return f"""# Sparse attention: {card["method"]}

Chosen on `{card["problem"]}`. Put it into any decoder of transformers:

```python
from lamps_plugins import sparse_attention
from transformers import AutoModelForCausalLM

name = sparse_attention.load("this folder")
model = AutoModelForCausalLM.from_pretrained("a decoder", attn_implementation=name)
```

Prefill runs by the rule; steps of decoding run dense. `example.py` does this with a text.

| param | value |
| --- | --- |
{params}

| score | value |
| --- | --- |
{scores}
"""


def _read(directory: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((directory / CARD).read_text(encoding="utf-8"))
        missing = {"module", "class", "params", "seed", "problem", "scores"} - set(card)
        if missing or card["family"] != FAMILY:
            raise KeyError(sorted(missing)[0] if missing else f"family {card['family']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProblemError(
            f"{directory} is no exported attention: {CARD}: {type(error).__name__} {error}"
        ) from error
    return card


def with_scores(directory: Path, scores: Mapping[str, float]) -> None:
    """Put the measured scores into the card."""
    _write(directory, {**_read(directory), "scores": dict(scores)})


def load(directory: Path) -> Rule[Any]:
    """The rule of an export, ready to select.

    Raises:
        ProblemError: It is no export, or its method cannot be imported.
    """
    card = _read(directory)
    try:
        kind: type[Rule[Any]] = getattr(import_module(card["module"]), card["class"])
        rule = kind.from_params(card["params"])
    except (ImportError, AttributeError, ConfigError) as error:
        raise ProblemError(
            f"{directory} was written by {card['module']}.{card['class']}, which cannot be made "
            f"here: {error}"
        ) from error
    rule.seed_, rule.fidelity_ = int(card["seed"]), float(card["fidelity"])
    return rule
