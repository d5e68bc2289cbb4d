"""Small encoders distilled from a sentence encoder: bases of any width, and their continuations.

A student of width ``d`` has three layers of four heads. Its word embeddings are the teacher's,
projected on their ``d`` principal directions, turned by a random rotation of the student's own (so
that two students share no coordinates by accident) and frozen. Attention starts by passing tokens
on as they are, so that the token which is read receives their mean from the first step: after 120
steps the loss is 0.49 instead of 1.41. Everything else is trained so that
what a classifier's last layer receives, ``f(x)``, matches the teacher's sentence vector ``t(x)``
through a linear map ``M``:

    loss = 1 - mean cos(M f, t) + 5 mean (cos(f_i, f_j) - cos(t_i, t_j))^2                      (1)

`shifted` goes on with (1) on the texts of one domain with ``M`` held, which gives a base of the
same lineage: the amount of shift is the number of steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps.errors import ProblemError, did_you_mean
from lamps.method import ModelInfo
from lamps.types import digest
from lamps_plugins._zoo import _build, _domains, _experts, _tasks
from lamps_plugins._zoo._build import Say, on_stderr
from lamps_plugins.text_classification import _export, _features, _nets, _training
from lamps_plugins.text_classification._models import CATALOGUE, folder_info

if TYPE_CHECKING:
    import torch
    from torch import nn

FORMAT = 2
"""Raised when students get other weights; they are then built again."""

TEACHER = "all-MiniLM-L6-v2"
MAP = "teacher_map.npy"
"""File of ``M`` [teacher's width, d] float32 in a student's folder."""

BATCH, LR = 48, 1.5e-3
"""Texts a step, and peak rate of distilling a new student."""

N_LAYERS, N_HEADS = 3, 4


@dataclass(frozen=True, slots=True)
class Size:
    """How much a profile trains.

    Args:
        texts: Texts of each domain.
        student: Steps of distilling a student.
        tuned: Steps of fine-tuning one on a task.
    """

    texts: int
    student: int
    tuned: int


SIZES = {"quick": Size(1_000, 300, 100), "full": Size(3_000, 900, 150)}
SHIFTS = {"small": 20, "medium": 80, "large": 300}
"""Steps of further distillation by name of the shift."""

TUNED_LR, HEAD_LR = 7e-4, 1e-2
"""Peak rates of fine-tuning a student's blocks and its head."""

SHIFT_LR = 5e-4
"""Peak rate of going on; that of distillation would first undo what was learned."""


def size_of(profile: str) -> Size:
    """The amounts of a profile.

    Raises:
        ProblemError: There is no such profile.
    """
    if profile not in SIZES:
        raise ProblemError(f"the zoo has no profile {profile!r}. {did_you_mean(profile, SIZES)}")
    return SIZES[profile]


def student(width: int, seed: int, profile: str, say: Say = on_stderr) -> Path:
    """The folder of a student, distilled where it is not there yet.

    Args:
        width: ``d``, a multiple of four.
        seed: Of its weights, its rotation and the order of the texts.
        profile: ``quick`` or ``full``.
        say: Told before something is trained.
    """
    how, teacher = size_of(profile), CATALOGUE.resolve(TEACHER)
    key = digest([FORMAT, teacher.sha256, _corpus(profile), width, seed, how.student], length=10)
    folder = _build.root() / f"student-{width}-{profile}-s{seed}-{key}"

    def make(work: Path) -> None:
        say(f"zoo: distilling a student of width {width} ({how.student} steps, seed {seed})")
        _distil(work, None, _domains.SEEN, how.student, profile, seed, width)

    return _build.made(folder, make)


def shifted(
    base: Path, domain: str, steps: int, seed: int, profile: str, say: Say = on_stderr
) -> Path:
    """A student after further steps on one domain.

    Args:
        base: Folder of a student.
        domain: One of `lamps_plugins._zoo._domains.DOMAINS`.
        steps: How far.
        seed: Order of the texts.
        profile: How many texts of the domain there are.
        say: Told before something is trained.
    """
    texts = _domains.domain(domain, size_of(profile).texts).train
    info = folder_info(base, name=base.name)
    key = digest([FORMAT, info.sha256, list(texts), steps, SHIFT_LR, seed], length=10)
    folder = _build.root() / f"shift-{domain}-{steps}-{profile}-s{seed}-{key}"

    def make(work: Path) -> None:
        say(f"zoo: going on with a student on {domain} ({steps} steps, seed {seed})")
        _distil(work, base, (domain,), steps, profile, seed, 0)

    return _build.made(folder, make)


def tuned(base: Path, task: str, seed: int, profile: str, say: Say = on_stderr) -> Path:
    """A base fine-tuned on a task of the zoo, as a classifier in hub layout."""
    info, problem = folder_info(base, name=base.name), _tasks.zoo_task(task)
    how = _experts.Recipe(kind="full", steps=size_of(profile).tuned, lr=TUNED_LR, head_lr=HEAD_LR)
    parts = [
        _experts.FORMAT,
        info.sha256,
        problem.fingerprint(),
        seed,
        how.steps,
        how.lr,
        how.head_lr,
    ]
    folder = _build.root() / f"{task}-tuned-{profile}-s{seed}-{digest(parts, length=10)}"

    def make(work: Path) -> None:
        say(f"zoo: fine-tuning {base.name} on {task} ({how.steps} steps, seed {seed})")
        facts = _experts.train_expert(info, problem, how, seed=seed, folder=work)
        (work / "lamps-student.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")

    return _build.made(folder, make)


def _corpus(profile: str) -> str:
    n = size_of(profile).texts
    return digest([list(_domains.domain(name, n).train) for name in _domains.SEEN])


def _distil(
    work: Path,
    base: Path | None,
    names: Sequence[str],
    steps: int,
    profile: str,
    seed: int,
    width: int,
) -> None:
    """Train a student, a new one where ``base`` is None, and write its folder."""
    import torch

    teacher = CATALOGUE.resolve(TEACHER)
    parts = [_domains.domain(name, size_of(profile).texts).train for name in names]
    wanted = np.concatenate([_domains.teacher_vectors(teacher, texts) for texts in parts])
    tokenizer = _features.tokenizer_of(teacher)
    texts = [text for part in parts for text in part]
    rows = _features.encode(tokenizer, texts, _tasks.MAX_LENGTH)
    with _nets.quiet():
        torch.manual_seed(int(np.random.default_rng([seed, FORMAT, width]).integers(2**62)))
        if base is None:
            net: Any = _new(teacher, rows, width, seed)
            map_ = torch.nn.Linear(width, wanted.shape[1], bias=False)
        else:
            from transformers import BertModel

            net = BertModel.from_pretrained(base)
            known = torch.from_numpy(np.load(base / MAP, allow_pickle=False))
            map_ = torch.nn.Linear(known.shape[1], known.shape[0], bias=False)
            map_.weight.data.copy_(known)
            map_.requires_grad_(False)
        lr = LR if base is None else SHIFT_LR
        pad_id = tokenizer.pad_token_id
        _train(net, map_, rows, torch.from_numpy(np.array(wanted)), pad_id, steps, lr, seed)
        net.save_pretrained(work)
    np.save(work / MAP, map_.weight.detach().numpy(), allow_pickle=False)
    _export.write_tokenizer(work, tokenizer, _tasks.MAX_LENGTH)


def _new(teacher: ModelInfo, rows: Sequence[np.ndarray], width: int, seed: int) -> nn.Module:
    """An untrained student; global random state is forked and seeded by the caller."""
    import torch
    from transformers import BertConfig, BertModel

    source: Any = _nets.load_encoder(teacher)
    words = source.get_input_embeddings().weight.detach().double()
    seen = torch.from_numpy(np.unique(np.concatenate(list(rows))).astype(np.int64))
    centre = words[seen].mean(0)
    _, directions = torch.linalg.eigh(torch.cov((words[seen] - centre).T))
    turn, _ = np.linalg.qr(np.random.default_rng([seed, width, 1]).standard_normal((width, width)))
    table = (words - centre) @ directions[:, -width:] @ torch.from_numpy(turn)
    config = BertConfig(
        vocab_size=len(words), hidden_size=width, num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS, intermediate_size=4 * width,
        max_position_embeddings=_tasks.MAX_LENGTH, pad_token_id=source.config.pad_token_id,
    )  # fmt: skip
    net: nn.Module = BertModel(config)
    parts: Any = net
    with torch.no_grad():
        parts.embeddings.word_embeddings.weight.copy_(table / table.std() * 0.1)
        parts.pooler.dense.weight.copy_(_nets.GAIN * torch.eye(width))
        parts.pooler.dense.bias.zero_()
        for layer in parts.encoder.layer:
            for module in (layer.attention.self.value, layer.attention.output.dense):
                module.weight.add_(torch.eye(width))
    return net


def _train(
    net: Any,
    map_: nn.Module,
    rows: Sequence[np.ndarray],
    wanted: torch.Tensor,
    pad_id: int,
    steps: int,
    lr: float,
    seed: int,
) -> None:
    """Equation (1), without dropout, in batches of similar length."""
    import torch

    for name, parameter in net.named_parameters():
        parameter.requires_grad_("word_embeddings" not in name and not name.startswith("pooler."))
    learned = [p for p in (*net.parameters(), *map_.parameters()) if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=lr, weight_decay=0.01, fused=True)
    rng = np.random.default_rng([seed, 2])
    lengths = np.array([len(row) for row in rows])
    todo: list[np.ndarray] = []
    net.eval()
    for step in range(steps):
        todo = todo or _training.batches(rng.permutation(len(rows)), lengths, BATCH, rng)
        chosen = todo.pop()
        for group in optimizer.param_groups:
            group["lr"] = lr * _training.rate(step + 1, steps + 1)
        ids, mask = _nets.pad_batch([rows[i] for i in chosen], pad_id)
        found = net(input_ids=ids, attention_mask=mask).pooler_output
        loss = distance(found, wanted[torch.from_numpy(chosen)], map_)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learned, _training.CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def distance(found: torch.Tensor, wanted: torch.Tensor, map_: Any) -> torch.Tensor:
    """The loss of equation (1).

    Shape:
        found: [b, d] what the student says;  wanted: [b, width], rows of length one.
    """
    from torch.nn import functional

    own = functional.normalize(found, dim=1)
    mapped = functional.normalize(map_(found), dim=1)
    likeness = (own @ own.T - wanted @ wanted.T).square().mean()
    loss: torch.Tensor = 1.0 - (mapped * wanted).sum(1).mean() + 5.0 * likeness
    return loss
