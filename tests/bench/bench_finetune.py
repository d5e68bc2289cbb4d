"""Fine-tuning throughput beside transformers.Trainer.

Same model, data, batch, optimiser, schedule and epochs; both start from the same network with the
same head. The Trainer pads each batch to its longest text, which is its usual set-up; it is
measured with its own length grouping too. Errors on the validation split stand beside the seconds,
because a loop that is quick and wrong is no use.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from bench_table import Figure, figure
from lamps_meta_dataset.tasks import write_task

from lamps.plugins import registry

MODEL, TEXTS, LENGTH, BATCH, EPOCHS = "all-MiniLM-L6-v2", 192, 128, 16, 1


def _prepared(folder: Path) -> tuple[Any, Any]:
    """The problem, and a full-finetune method that has its head and no training yet."""
    write_task("wikipedia-en", folder / "wikipedia.csv")
    family = registry().load_family("text-classification")
    problem = family.open_problem(
        str(folder / "wikipedia.csv"),
        {
            "target": "label",
            "max_train": TEXTS,
            "max_val": 100,
            "max_length": LENGTH,
            "landmarks": 2,
        },
    )
    cls = registry().load_method("text-classification", "full-finetune")
    method = cls.from_params({"model": MODEL, "epochs": EPOCHS, "batch_size": BATCH, "lr": 1e-4})
    method.partial_fit(problem, 0.0, rng=np.random.default_rng(0))
    return problem, method


def _ours(problem: Any, method: Any, seed: int) -> tuple[float, float]:
    from lamps_plugins.text_classification import _training

    examples = method._examples(problem, method.model_info(), "train", problem.n_train)
    optimizer = _training.make_optimizer(method.net_, method._rates(), method.recipe())
    total = EPOCHS * problem.n_train
    block = _training.Block(1, 0, problem.n_train, 0, total, total)
    start = time.perf_counter()
    _training.train_block(
        method.net_, optimizer, examples, block, method.recipe(), rng=np.random.default_rng(seed)
    )
    seconds = time.perf_counter() - start
    return seconds, _error(problem, method)


def _error(problem: Any, method: Any) -> float:
    method.exported_ = None
    logits = method.logits_of(problem)(list(problem.texts("val")))
    return float((logits.argmax(axis=1) != problem.targets("val")).mean())


def _trainer(problem: Any, method: Any, seed: int, grouped: bool) -> tuple[float, float]:
    import torch
    from lamps_plugins.text_classification import _features
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    info = method.model_info()
    tokenizer = _features.tokenizer_of(info)
    rows = _features.tokens(problem, info, "train", problem.n_train)
    data = [
        {"input_ids": r.tolist(), "attention_mask": [1] * len(r), "labels": int(y)}
        for r, y in zip(rows, problem.targets("train"), strict=True)
    ]
    recipe = method.recipe()
    rates = method._rates()
    groups = [
        {
            "params": [p],
            "lr": rates.get(n, recipe.lr),
            "weight_decay": recipe.weight_decay if p.ndim > 1 else 0.0,
        }
        for n, p in method.net_.named_parameters()
        if p.requires_grad
    ]
    optimizer = torch.optim.AdamW(groups, fused=True)
    with tempfile.TemporaryDirectory() as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            model=method.net_,
            args=TrainingArguments(
                output_dir=out,
                per_device_train_batch_size=BATCH,
                num_train_epochs=EPOCHS,
                seed=seed,
                warmup_steps=0.06,
                lr_scheduler_type="linear",
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                use_cpu=True,
                train_sampling_strategy="group_by_length" if grouped else "random",
            ),
            train_dataset=data,
            data_collator=DataCollatorWithPadding(tokenizer),
            optimizers=(optimizer, None),
        )
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
    method.net_.eval()
    return seconds, _error(problem, method)


def measure() -> list[Figure]:
    """Three rounds in turn."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    rivals = {"Trainer": False, "Trainer, grouped by length": True}
    seconds: dict[str, list[float]] = {"lamps": [], **{r: [] for r in rivals}}
    errors: dict[str, list[float]] = {k: [] for k in seconds}
    with tempfile.TemporaryDirectory() as text:
        problem, method = _prepared(Path(text))
        start = copy.deepcopy(method.net_.state_dict())
        for seed in range(3):
            for name in seconds:
                method.net_.load_state_dict(start)
                if name == "lamps":
                    spent, error = _ours(problem, method, seed)
                else:
                    spent, error = _trainer(problem, method, seed, rivals[name])
                seconds[name].append(spent)
                errors[name].append(error)
    return [
        figure(
            f"fine-tuning throughput, lamps / {name}",
            [b / a for a, b in zip(seconds["lamps"], seconds[name], strict=True)],
            "x",
            1.0,
            at_least=True,
            note=f"val error {np.mean(errors['lamps']):.3f} against "
            f"{np.mean(errors[name]):.3f}, 3 seeds",
        )
        for name in rivals
    ]
