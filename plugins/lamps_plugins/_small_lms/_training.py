"""Training of a small model: resumable at any step, the same weights with and without a stop.

The order of the data and the learning rate depend on the step alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from lamps.errors import ProblemError
from lamps_plugins._small_lms import _tokens
from lamps_plugins._small_lms._circuit import set_lookup_heads
from lamps_plugins._small_lms._specs import LmSpec
from lamps_plugins.text_classification._nets import quiet

__all__ = ["train"]

_WARM_UP, _COOL_DOWN = 0.02, 0.4  # shares of all steps
_EVERY_S = 60.0
_STATE = "state.pt"

Say = Callable[[str], None]


def new_model(spec: LmSpec) -> Any:
    """The untrained model; a transformers ``LlamaForCausalLM``."""
    with quiet():
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(spec.seed)  # inside quiet's forked state
        config = LlamaConfig(
            vocab_size=spec.vocabulary, hidden_size=spec.width, intermediate_size=spec.inner,
            num_hidden_layers=spec.layers, num_attention_heads=spec.heads,
            num_key_value_heads=spec.kv_heads, max_position_embeddings=spec.context,
            rope_parameters={"rope_type": "default", "rope_theta": spec.theta},
            tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=None,
            attention_bias=spec.material == "recall",
        )  # fmt: skip
        model = LlamaForCausalLM(config)
        if spec.material == "recall":
            set_lookup_heads(model)
        return model


def rate(spec: LmSpec, step: int) -> float:
    """Factor on the learning rate at a step: up, level, and down to a hundredth."""
    done = step / spec.steps
    return min(1.0, (done + 1 / spec.steps) / _WARM_UP, 0.01 + 0.99 * (1 - done) / _COOL_DOWN)


def train(spec: LmSpec, work: Path, *, minutes: float | None, resume: bool, say: Say) -> Any:
    """Train on from where the last call stopped.

    Args:
        spec: Which model.
        work: Folder of the state, written every minute.
        minutes: Stop after so many, with the state written; None trains to the end.
        resume: Whether to go on from a state that is there.
        say: Told every minute how far it is.

    Returns:
        The trained model, or None where ``minutes`` ended first.
    """
    import torch

    model = new_model(spec)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=spec.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    step = _restored(work, model, optimizer) if resume else 0
    model.train()
    began = told = time.monotonic()
    total, counted = 0.0, 0
    while step < spec.steps:
        rng = np.random.default_rng([spec.seed, step])
        tokens, targets = _tokens.sequences(spec, spec.phase_at(step), rng)
        optimizer.param_groups[0]["lr"] = spec.lr * rate(spec, step)
        loss = _loss(model, torch.from_numpy(tokens), torch.from_numpy(targets))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        total, counted = total + float(loss.detach()), counted + 1
        now = time.monotonic()
        over = minutes is not None and now - began >= 60.0 * minutes and step < spec.steps
        if now - told >= _EVERY_S or over:
            say(
                f"{spec.name}: step {step} of {spec.steps}, loss {total / counted:.3f} nats a "
                f"token, {(now - began) / 60:.1f} min"
            )
            _keep(work, model, optimizer, step)
            told, total, counted = now, 0.0, 0
        if over:
            return None
    return model.eval()


def _loss(model: Any, tokens: Any, targets: Any) -> Any:
    """Mean cross entropy over the places that are asked; others cost no logits."""
    import torch

    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    asked = targets >= 0
    logits = model.lm_head(hidden[asked])
    return torch.nn.functional.cross_entropy(logits, targets[asked])


def _keep(work: Path, model: Any, optimizer: Any, step: int) -> None:
    import torch

    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    work.mkdir(parents=True, exist_ok=True)
    new = work / f".{_STATE}"
    torch.save(state, new)
    os.replace(new, work / _STATE)


def _restored(work: Path, model: Any, optimizer: Any) -> int:
    import torch

    file = work / _STATE
    if not file.is_file():
        return 0
    try:
        state = torch.load(file, weights_only=True)
    except (RuntimeError, EOFError, ValueError, OSError, UnpicklingError) as error:
        raise ProblemError(
            f"{file} is damaged ({type(error).__name__}); build again with --no-resume"
        ) from error
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
