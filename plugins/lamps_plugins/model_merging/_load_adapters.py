"""Opens this folder with its adapters: transformers, torch and safetensors, nothing else.

    from load_adapters import load
    model, tokenizer = load("THIS_FOLDER")
    model(**tokenizer("some text", return_tensors="pt")).logits

After block i of the encoder: x <- x - W_up ReLU(W_down x + b_down) - b_up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def attach(model: Any, blocks: Any, adapters: dict[str, Any]) -> list[Any]:
    """Let the blocks of a model answer through adapters; returns handles that remove them."""

    def adapted(i: int) -> Any:
        def hook(_: Any, __: Any, output: Any) -> Any:
            x = output[0] if isinstance(output, tuple) else output
            inner = (x @ adapters["down"][i].T + adapters["down_bias"][i]).relu()
            x = x - inner @ adapters["up"][i].T - adapters["up_bias"][i]
            return (x, *output[1:]) if isinstance(output, tuple) else x

        return hook

    return [block.register_forward_hook(adapted(i)) for i, block in enumerate(blocks)]


def load(folder: str) -> tuple[Any, Any]:
    """The classifier with its adapters, in evaluation mode, and its tokenizer."""
    from safetensors.torch import load_file
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    adapters = load_file(Path(folder) / "adapters.safetensors")
    path = (Path(folder) / "adapters.path").read_text(encoding="utf-8").strip()
    attach(model, model.base_model.get_submodule(path), adapters)
    return model, AutoTokenizer.from_pretrained(folder)
