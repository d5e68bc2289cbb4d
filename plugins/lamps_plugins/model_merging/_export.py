"""Writing a merge: the encoder once, and for each task a folder that plain transformers opens.

    DIR/lamps.json, README.md      what was merged how, and what it scored
    DIR/TASK/config.json           labels of the task
    DIR/TASK/model-*.safetensors   shards of the encoder, hard links to one set of files
    DIR/TASK/head.safetensors      the head of the task's expert
    DIR/TASK/model.safetensors.index.json, tokenizer files, lamps.json, README.md

``AutoModelForSequenceClassification.from_pretrained("DIR/TASK")`` loads it. Where the file system
knows no hard links, shards are copied. Shards are written one group of layers at a time, so
writing needs the memory of a group and not of the model.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamps.errors import ProblemError, did_you_mean
from lamps.types import Json
from lamps_plugins.model_merging._checkpoints import Checkpoint, TensorInfo
from lamps_plugins.text_classification import _export as text_export
from lamps_plugins.text_classification import _features, _nets

if TYPE_CHECKING:
    import torch

    from lamps_plugins.model_merging._experts import Expert
    from lamps_plugins.model_merging._merger import Update
    from lamps_plugins.model_merging._problem import MergeProblem

FAMILY = "model-merging"
HEAD, INDEX = "head.safetensors", "model.safetensors.index.json"
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_SHARD_BYTES = 256 * 1024**2


def weight_bytes(problem: MergeProblem) -> int:
    """Bytes of all weights of an export, the encoder counted once."""
    infos = [*problem.experts.base.encoder.values()]
    infos += [i for expert in problem.experts.experts for i in expert.head_infos.values()]
    return sum(math.prod(info.shape) * _BYTES[info.dtype] for info in infos)


def write(
    problem: MergeProblem,
    directory: Path,
    updates: Iterable[Update],
    card: Mapping[str, Json],
) -> None:
    """Write an export; see the module docstring.

    Args:
        problem: Where base and heads come from.
        directory: An existing empty folder.
        updates: What is added to the base, group by group; consumed as it is written.
        card: Method, params and fidelity.
    """
    experts = problem.experts.experts
    folders = [directory / expert.name for expert in experts]
    for folder in folders:
        folder.mkdir()
    files = _write_encoder(problem.experts.base, folders[0], updates)
    for folder in folders[1:]:
        for name in sorted(set(files.values())):
            _link(folders[0] / name, folder / name)
    tokenizer = _features.tokenizer_of(problem.tokenizer_info)
    for expert, folder in zip(experts, folders, strict=True):
        data = problem.task(expert.name)
        _write_head(expert, folder, files)
        limit = _features.token_limit(problem.tokenizer_info, data.max_length)
        text_export.write_tokenizer(folder, tokenizer, limit)
        text_export.write_card(folder, _task_card(problem, expert, card), kind="transformer")
    meta: dict[str, Json] = {
        "format": text_export.FORMAT,
        "family": FAMILY,
        "kind": "merge",
        **card,
        "tasks": [expert.name for expert in experts],
        "data_name": problem.name,
        "base": str(problem.experts.base.folder),
        "experts": problem.experts.kind,
        "experts_hash": problem.experts.key,
        "scores": {},
    }
    _write_card(directory, meta)


def _write_encoder(base: Checkpoint, folder: Path, updates: Iterable[Update]) -> dict[str, str]:
    """Write the shards of the encoder; returns the file of each tensor by its full name."""
    written: dict[str, str] = {}
    number = 0

    def shard(tensors: dict[str, torch.Tensor]) -> None:
        nonlocal number
        number += 1
        name = f"model-{number:05d}.safetensors"
        _save(tensors, folder / name)
        written.update(dict.fromkeys(tensors, name))

    for group, update in updates:
        shard(
            {
                base.full_name(name): _typed(base.tensor(name) + one, base.encoder[name])
                for name, one in zip(group.names, update, strict=True)
            }
        )
    for names in _portions(base, written):
        shard({base.full_name(n): _typed(base.tensor(n), base.encoder[n]) for n in names})
    return written


def _portions(base: Checkpoint, written: Mapping[str, str]) -> Iterator[list[str]]:
    """Tensors that were not merged, in portions of bounded size."""
    portion: list[str] = []
    size = 0
    for name, info in base.encoder.items():
        if base.full_name(name) in written:
            continue
        own = 4 * math.prod(info.shape)
        if portion and size + own > _SHARD_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(name)
        size += own
    if portion:
        yield portion


def _typed(value: torch.Tensor, info: TensorInfo) -> torch.Tensor:
    """A tensor in the type that the base stores it in."""
    import torch

    kinds = {"F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
    return value.to(kinds.get(info.dtype, torch.float32)).contiguous()


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _write_head(expert: Expert, folder: Path, encoder: Mapping[str, str]) -> None:
    """Head, index and config of a task."""
    head = {k: _typed(v, expert.head_infos[k]) for k, v in expert.head().items()}
    _save(head, folder / HEAD)
    names = {**encoder, **dict.fromkeys(head, HEAD)}
    total = sum((folder / file).stat().st_size for file in set(names.values()))
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(names.items()))}
    _write_json(folder / INDEX, index)
    with _nets.quiet():
        from transformers import AutoConfig, AutoModelForSequenceClassification

        values = dict(expert.config)
        config = AutoConfig.for_model(values.pop("model_type"), **values)
        kind = AutoModelForSequenceClassification._model_mapping[type(config)]
        config.architectures = [kind.__name__]
        config.save_pretrained(folder)


def _task_card(
    problem: MergeProblem, expert: Expert, card: Mapping[str, Json]
) -> text_export.Card:
    data = problem.task(expert.name)
    params: Any = card["params"]
    return text_export.Card(
        family="text-classification",
        method=f"merged by {card['method']}",
        params=params,
        labels=tuple(data.labels),
        multi_label=False,
        max_length=data.max_length,
        data_hash=data.data_hash("train"),
        data_name=expert.name,
        fidelity=float(str(card["fidelity"])),
        model=problem.experts.base.folder.name,
        model_source=str(problem.experts.base.folder),
    )


def _write_card(directory: Path, meta: Mapping[str, Json]) -> None:
    _write_json(directory / text_export.META, meta)
    tasks: Any = meta["tasks"]
    params: Any = meta["params"]
    scores: Any = meta["scores"]
    facts = {
        "Method": f"{meta['method']}, {float(str(meta['fidelity'])):.0%} of a full run",
        "Params": ", ".join(f"{k}={v}" for k, v in sorted(params.items())) or "none",
        "Experts": f"{len(tasks)} ({meta['experts']}), one head each: {', '.join(tasks)}",
        "Base": meta["base"],
        "Problem": meta["data_name"],
        "Scores": ", ".join(f"{k} {v:.4g}" for k, v in scores.items()) or "not recorded here",
    }
    table = "\n".join(f"| {k} | {v} |" for k, v in facts.items())
    (directory / "README.md").write_text(
        "---\nlibrary_name: transformers\ntags: [lamps, merge]\n---\n\n"
        f"# {meta['data_name']}: merged encoder\n\n| | |\n| --- | --- |\n{table}\n\n"
        "```python\nfrom transformers import pipeline\n\n"
        f'classify = pipeline("text-classification", "THIS_FOLDER/{tasks[0]}", truncation=True)\n'
        "```\n",
        encoding="utf-8",
    )


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def with_scores(directory: Path, scores: Mapping[str, float]) -> None:
    """Put measured scores into the card of an export."""
    _write_card(directory, text_export.read_meta(directory) | {"scores": dict(scores)})


def predict(
    directory: Path, rows: Path | None, options: Mapping[str, Any]
) -> Iterator[Mapping[str, Json]]:
    """Answers of one task's head; see `lamps_plugins.text_classification._export.predict`.

    Raises:
        ProblemError: No task was named, or there is none of that name.
    """
    from lamps_plugins.model_merging import _adapters

    meta = text_export.read_meta(directory)
    if meta["kind"] == _adapters.KIND:
        yield from _adapters.predict(directory, rows, options)
        return
    tasks: Sequence[str] = meta["tasks"]
    task = options.get("task")
    if task is None:
        raise ProblemError(
            f"{directory} answers {len(tasks)} tasks; name the folder of one: "
            f"{', '.join(str(directory / t) for t in tasks)}"
        )
    if task not in tasks:
        raise ProblemError(f"{directory} has no task {task!r}. {did_you_mean(str(task), tasks)}")
    rest = {k: v for k, v in options.items() if k != "task"}
    if text_export.read_meta(directory / str(task))["kind"] == _adapters.KIND:
        yield from _adapters.predict(directory / str(task), rows, rest)
        return
    yield from text_export.predict(directory / str(task), rows, rest)
