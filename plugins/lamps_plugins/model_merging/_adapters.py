"""Small adapters after every block of an encoder: made, run, written and read again.

    A(x) = x - W_up ReLU(W_down x + b_down) - b_up                                              (1)

An export has them beside each task's folder with a file that loads them by plain transformers.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError
from lamps.types import Json
from lamps_plugins.model_merging import _load_adapters
from lamps_plugins.text_classification import _export as text_export
from lamps_plugins.text_classification import _nets

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lamps_plugins.model_merging._problem import MergeProblem

Adapters = dict[str, "torch.Tensor"]
"""``down`` [L, b, d], ``down_bias`` [L, b], ``up`` [L, d, b], ``up_bias`` [L, d]; bottleneck b."""

KIND = "merge+adapter"
"""What an export of a task says of itself in ``lamps.json``."""

WEIGHTS, PLACE, LOADER = "adapters.safetensors", "adapters.path", "load_adapters.py"
_START = 1e-3


def place_of(problem: MergeProblem) -> str:
    """Path of the list of blocks inside the encoder.

    Raises:
        ProblemError: The merged weights do not lie in one list of blocks.
    """
    names = [name for group in problem.groups for name in group.names]
    lists = {found[1] for name in names if (found := re.match(r"(.*?)\.\d+\.", name))}
    if len(lists) != 1:
        raise ProblemError(
            f"adapters need one list of blocks, merged weights lie in {sorted(lists) or 'none'}"
        )
    return lists.pop()


def blocks_of(net: nn.Module, place: str) -> list[Any]:
    """The blocks of a classifier."""
    base: Any = net.base_model
    return list(base.get_submodule(place))


def start(n_blocks: int, width: int, bottleneck: int, seed: int) -> Adapters:
    """Adapters that do nearly nothing: weights of size 1e-3, no bias.

    Raises:
        ProblemError: The bottleneck is no smaller than the width.
    """
    import torch

    if not 1 <= bottleneck < width:
        raise ProblemError(f"bottleneck {bottleneck} of width {width}; expected 1 to {width - 1}")
    rng = np.random.default_rng(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(0.0, _START, shape).astype(np.float32))

    return {
        "down": noise(n_blocks, bottleneck, width),
        "down_bias": torch.zeros(n_blocks, bottleneck),
        "up": noise(n_blocks, width, bottleneck),
        "up_bias": torch.zeros(n_blocks, width),
    }


def count(adapters: Mapping[str, torch.Tensor]) -> int:
    """Number of weights."""
    return sum(value.numel() for value in adapters.values())


@contextmanager
def attached(net: nn.Module, place: str, adapters: Adapters | None) -> Iterator[list[Any]]:
    """Within it blocks answer through adapters, if any; what leaves the top one is collected.

    Yields:
        A list that each forward pass appends to, [b, length, width].
    """
    blocks, seen = blocks_of(net, place), []

    def keep(_: object, __: object, output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    handles = [] if adapters is None else _load_adapters.attach(net, blocks, adapters)
    handles.append(blocks[-1].register_forward_hook(keep))  # behind the adapter's, so it sees it
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def write(folder: Path, adapters: Adapters, place: str) -> None:
    """Put adapters and their loader into the exported folder of a task."""
    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in adapters.items()}, folder / WEIGHTS)
    (folder / PLACE).write_text(place + "\n", encoding="utf-8")
    shutil.copyfile(Path(_load_adapters.__file__), folder / LOADER)
    meta = text_export.read_meta(folder) | {"family": "model-merging", "kind": KIND}
    (folder / text_export.META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    labels = ", ".join(f"`{label}`" for label in meta["labels"])
    (folder / "README.md").write_text(
        "---\nlibrary_name: transformers\npipeline_tag: text-classification\ntags: [lamps, merge]"
        f"\n---\n\n# {meta['data_name']}: merged encoder with adapters\n\n"
        f"Made by {meta['method']}. Labels: {labels}. The encoder's weights are shared by all "
        f"tasks of the export; `{WEIGHTS}` ({count(adapters):,} weights) belongs to this one. "
        "Without the adapters the folder opens too, as another and weaker model.\n\n"
        f"```python\nfrom load_adapters import load  # {LOADER}, beside this file\n\n"
        'model, tokenizer = load("THIS_FOLDER")\n'
        'logits = model(**tokenizer("some text", return_tensors="pt", truncation=True)).logits\n'
        "print(model.config.id2label[int(logits.argmax())])\n```\n",
        encoding="utf-8",
    )


def predict(
    folder: Path, rows: Path | None, options: Mapping[str, Any]
) -> Iterator[Mapping[str, Json]]:
    """Answers of a task with its adapters; see `lamps_plugins.text_classification._export`."""
    import torch

    from lamps_plugins.text_classification._columns import read_texts

    meta = text_export.read_meta(folder)
    with _nets.quiet():
        model, tokenizer = _load_adapters.load(str(folder))

    def logits_of(texts: Sequence[str]) -> np.ndarray:
        inputs = tokenizer(
            list(texts), truncation=True, max_length=meta["max_length"], padding=True,
            return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            found: np.ndarray = model(**inputs).logits.float().numpy()
        return found

    classifier = text_export.Classifier(tuple(meta["labels"]), False, logits_of)
    for text in read_texts(rows, options, likely=None):
        yield from classifier.answers([text])
