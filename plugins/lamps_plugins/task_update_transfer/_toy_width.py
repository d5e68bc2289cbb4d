"""A wider relative of the zoo's toy base: every hidden unit twice, then a little noise."""

from __future__ import annotations

import shutil
from pathlib import Path

from lamps.types import digest
from lamps_plugins._zoo import _build
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._models import folder_info

NOISE = 0.02


def wider(base: Path, seed: int) -> Path:
    """The folder of the wider base, made where it is not there yet."""
    info = folder_info(base, name=base.name)
    folder = _build.root() / f"wide-toy-s{seed}-{digest([1, info.sha256, seed], length=10)}"
    return _build.made(folder, lambda work: _write(base, work, seed))


def _write(base: Path, work: Path, seed: int) -> None:
    with _nets.quiet():
        import torch
        from transformers import BertConfig, BertModel

        net = BertModel.from_pretrained(base)
        config = BertConfig.from_pretrained(base)
        for name in ("hidden_size", "intermediate_size", "num_attention_heads"):
            setattr(config, name, 2 * getattr(config, name))
        torch.manual_seed(seed)  # inside quiet's forked state
        wide = BertModel(config)
        given = dict(net.named_parameters())
        with torch.no_grad():
            for name, parameter in wide.named_parameters():
                value = given[name]
                if value.ndim == 1:
                    value = value.repeat(2)
                elif "embeddings" in name:
                    value = value.repeat(1, 2)
                else:
                    value = value.repeat(2, 2) / 2
                noise = NOISE * value.std().nan_to_num() * torch.randn_like(value)
                parameter.copy_(value + noise)
        wide.save_pretrained(work)
    for file in base.glob("*token*"):
        shutil.copyfile(file, work / file.name)
