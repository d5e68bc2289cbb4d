"""The life of a fine-tuned network: a head on frozen features, then blocks of training.

**Landmark 0.** The classifier's last layer is set by a strongly regularised logistic regression
(`_heads.frozen_head`) on what the frozen network shows of the first block's texts. Those features
are cached, so all candidates of a model share them, and training starts from a head that is right
rather than from noise.

**Landmarks 1..K.** `_training.train_block` goes on from there. Inside the last block the
validation loss is looked at four times; the best weights are kept, and two looks in a row without
a new best end the run.

A method of this kind says which parameters are trained (`adapt`) and, where it adds some, how they
are folded into the network before export (`merged`). What is exported is always a plain folder of
the transformers class.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.random import Generator

from lamps.errors import MethodFailed
from lamps.method import State, substream
from lamps.types import Split
from lamps_plugins.text_classification import _export, _features, _heads, _nets, _training
from lamps_plugins.text_classification._method import (
    LogitsOf,
    TextMethod,
    check_fidelity,
    first_prefix,
)

if TYPE_CHECKING:
    from torch import nn

    from lamps_plugins.text_classification._problem import TextProblem

P = TypeVar("P")

N_CHECKS = 4
"""Looks at the validation loss inside the last block."""

POOLER_LR = 1e-4
"""Largest peak rate of the layer between network and last layer."""

HEAD_SIZE = 0.4
"""Size of features (root mean square) up to which the last layer learns at ``head_lr``. Decoders
end in four times larger ones, on which a step moves the logits four times as far."""

HEAD_FLOOR = 0.2
"""See `_heads.frozen_head`."""

CHECK_TEXTS = 400
"""Validation texts of such a look, at most."""

PATIENCE = 2
"""Looks without a new best after which the last block ends."""


class TunedMethod(TextMethod[P]):
    """A pretrained network trained on the texts; subclasses say which of its parameters move."""

    def __init__(self, params: P) -> None:
        super().__init__(params)
        self.net_: Any = None
        self.optimizer_: Any = None
        self.exported_: Any = None
        self.losses_: dict[str, float] = {}
        self.saved_: dict[str, Any] | None = None
        self.head_scale_ = 1.0

    starts_frozen: ClassVar[bool] = True
    """Whether the untrained network gives the logits of the frozen one on the same tokens."""

    @abstractmethod
    def adapt(self, net: nn.Module, problem: TextProblem) -> nn.Module:
        """Mark what is trained, add what the method adds; torch is seeded by the trial already.

        Args:
            net: The classifier with the head of landmark 0; every parameter requires a gradient.
            problem: The instance.
        """

    def merged(self, net: nn.Module) -> nn.Module:
        """A plain transformers classifier with the same logits; may reuse ``net``, a copy."""
        return net

    def decorate(self, rows: Sequence[np.ndarray], problem: TextProblem) -> Sequence[np.ndarray]:
        """The token ids that training sees for tokenised texts."""
        return rows

    def tokenizer(self, problem: TextProblem) -> Any:
        """The tokenizer that goes with the exported network."""
        return _features.tokenizer_of(self.model_info())

    def limit(self, problem: TextProblem) -> int:
        """Tokens after which the exported tokenizer cuts."""
        return _features.token_limit(self.model_info(), problem.max_length)

    def recipe(self) -> _training.Recipe:
        """How to train, from the params."""
        p: Any = self.params
        return _training.Recipe(
            lr=p.lr,
            head_lr=p.head_lr,
            epochs=p.epochs,
            batch_size=p.batch_size,
            micro_batch=p.micro_batch,
            weight_decay=p.weight_decay,
            balanced=p.class_weights == "balanced",
        )

    def partial_fit(self, problem: TextProblem, fidelity: float, *, rng: Generator) -> Self:
        """See `Method.partial_fit`; a jump goes through the blocks in between."""
        check_fidelity(problem, fidelity)
        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
        self.exported_ = None
        self._build(problem, seed=int(substream(rng, 0).integers(2**62)))
        if self.fidelity_ is None:
            self.fidelity_ = 0.0
        steps = [f for f in problem.fidelities if f > 0]
        blocks = _training.plan([problem.prefix(f) for f in steps], self.recipe().epochs)
        for step, block in zip(steps, blocks, strict=True):
            if self.fidelity_ < step <= fidelity:
                self._train(problem, block, substream(rng, block.number), last=step == steps[-1])
                self.fidelity_ = step
        return self

    def _build(self, problem: TextProblem, *, seed: int = 0) -> None:
        """The network in the state of ``fidelity_``."""
        import torch

        if self.net_ is not None:
            return
        info, p = self.model_info(), self.params
        n_layers = int(getattr(p, "n_layers", 0))
        head = _nets.HeadSpec(
            names=tuple(str(label) for label in problem.labels),
            multi_label=problem.multi_label,
            max_length=problem.max_length,
        )
        pad = _features.tokenizer_of(info).pad_token_id
        net = _nets.load_classifier(info, head, n_layers, pad_id=pad)
        if self.saved_ is None:
            self._set_head(net, problem, n_layers)
        with _nets.quiet():
            torch.manual_seed(seed)  # inside quiet's forked state
            self.net_ = self.adapt(net, problem).to(_nets.device()).eval()
        self.optimizer_ = _training.make_optimizer(self.net_, self._rates(), self.recipe())
        if self.saved_ is not None:
            _training.restore(self.net_, _under(self.saved_, "weight/"))
            _training.set_moments(self.net_, self.optimizer_, _under(self.saved_, "adam/"))
            self.saved_ = None

    def _rates(self) -> dict[str, float]:
        """Peak rates of the head: its last layer's own, and a small one for the layer before.

        That layer starts as an identity in front of a head that already works; at the rates that
        suit adapters and biases it is destroyed within a few steps.
        """
        recipe = self.recipe()
        plain = self.plain(self.net_)
        names = _nets.head_names(plain)
        head = {id(p) for n, p in plain.named_parameters() if n in names}
        last = {id(p) for p in _nets.last_layer(plain).parameters()}
        small = min(recipe.lr, POOLER_LR)
        return {
            name: recipe.head_lr * self.head_scale_ if id(p) in last else small
            for name, p in self.net_.named_parameters()
            if id(p) in head
        }

    def plain(self, net: Any) -> Any:
        """The transformers class inside a wrapper of adapters."""
        return net.base_model.model if hasattr(net, "peft_config") else net

    def _set_head(self, net: Any, problem: TextProblem, n_layers: int) -> None:
        import torch

        n = first_prefix(problem)
        x = _features.features(problem, self.model_info(), "train", n_layers=n_layers, n=n)["head"]
        head, _ = _heads.frozen_head(
            x, problem.targets("train")[:n], problem.n_labels, floor=HEAD_FLOOR
        )
        self.head_scale_ = min(1.0, HEAD_SIZE / max(float(np.sqrt((x**2).mean())), 1e-8))
        last = _nets.last_layer(net)
        with torch.no_grad():
            if last.bias is None:
                last.weight.copy_(torch.from_numpy(_heads.without_bias(head, x)))
            else:
                last.weight.copy_(torch.from_numpy(head[0]))
                last.bias.copy_(torch.from_numpy(head[1]))

    def _train(
        self, problem: TextProblem, block: _training.Block, rng: Generator, *, last: bool
    ) -> None:
        info, recipe = self.model_info(), self.recipe()
        targets = problem.targets("train")[: block.prefix]
        weights = _heads.class_weights(targets, problem.n_labels) if recipe.balanced else None
        looks = _Looks(self, problem) if last else None
        loss = _training.train_block(
            self.net_,
            self.optimizer_,
            self._examples(problem, info, "train", block.prefix),
            block,
            recipe,
            rng=rng,
            weights=weights,
            check=looks,
            n_checks=N_CHECKS,
        )
        self.losses_ = {"train_loss": loss, "examples_seen": float(block.start + block.count)}
        if looks is not None:
            _training.restore(self.net_, looks.best)
            self.losses_ |= {"check_loss": looks.loss, "examples_seen": float(looks.seen)}
            self.optimizer_ = None

    def _examples(self, problem: TextProblem, info: Any, split: Any, n: int) -> _training.Examples:
        rows = self.decorate(_features.tokens(problem, info, split, n), problem)
        pad = _features.tokenizer_of(info).pad_token_id
        return _training.Examples(rows, problem.targets(split)[:n], pad)

    def exported(self, problem: TextProblem) -> Any:
        """The network as it is exported: adapters merged, nothing else changed."""
        self.require_fitted()
        if self.exported_ is None:
            self._build(problem)
            with _nets.quiet():
                net = (
                    copy.deepcopy(self.net_)
                    if self.plain(self.net_) is not self.net_
                    else self.net_
                )
                self.exported_ = self.merged(net).eval()
        return self.exported_

    def logits_of(self, problem: TextProblem) -> LogitsOf:
        """See `TextMethod.logits_of`: the merged network behind the exported tokenizer."""
        net, tokenizer, limit = (
            self.exported(problem),
            self.tokenizer(problem),
            self.limit(problem),
        )
        return lambda texts: _nets.logits_of_tokens(
            net, _features.encode(tokenizer, texts, limit), tokenizer.pad_token_id
        )

    def known_logits(self, problem: TextProblem, split: Split) -> np.ndarray | None:
        """At landmark 0, the head on features that all candidates of this network share."""
        if self.fidelity_ != 0.0 or not self.starts_frozen:
            return None
        self._build(problem)
        depth = int(getattr(self.params, "n_layers", 0))
        x = _features.features(problem, self.model_info(), split, n_layers=depth)["head"]
        last = _nets.last_layer(self.plain(self.net_))
        weight = last.weight.detach().float().cpu().numpy()
        bias = 0.0 if last.bias is None else last.bias.detach().float().cpu().numpy()
        return np.asarray(x @ weight.T + bias, dtype=np.float32)

    def sizes(self, problem: TextProblem) -> tuple[int, int]:
        """Counted from the tensors and the tokenizer's files, without writing the weights."""
        net = self.exported(problem)
        return _export.count(net), _export.transformer_bytes(
            net, self.tokenizer(problem), self.card(problem)
        )

    def signals(self) -> dict[str, float]:
        """Training loss of the last block and examples seen."""
        return dict(self.losses_)

    def state_dict(self) -> State:
        """The trainable parameters, and the optimiser's moments while there is training left."""
        state: State = {
            "fidelity_": self.fidelity_,
            "losses_": dict(self.losses_),
            "head_scale_": self.head_scale_,
        }
        if self.net_ is None:
            return state | (self.saved_ or {})
        state |= {f"weight/{k}": v.cpu() for k, v in _training.snapshot(self.net_).items()}
        if self.optimizer_ is not None and self.fidelity_ != 1.0:
            moments = _training.moments(self.net_, self.optimizer_)
            state |= {f"adam/{k}": v for k, v in moments.items()}
        return state

    def load_state_dict(self, state: State, problem: TextProblem) -> None:
        """See `Method.load_state_dict`; the network itself is loaded when it is needed."""
        self.fidelity_, self.losses_ = state["fidelity_"], dict(state["losses_"])
        self.head_scale_ = float(state["head_scale_"])
        self.net_ = self.optimizer_ = self.exported_ = None
        kept = {k: v for k, v in state.items() if k.startswith(("weight/", "adam/"))}
        self.saved_ = kept or None

    def save(self, problem: TextProblem, directory: Path) -> None:
        """A folder that ``transformers.pipeline("text-classification", FOLDER)`` opens."""
        net = self.exported(problem)
        tokenizer, limit = self.tokenizer(problem), self.limit(problem)
        _export.write_transformer(directory, net, tokenizer, self.card(problem), limit=limit)


class _Looks:
    """Looks at the validation loss that keep the best weights; True asks to stop."""

    def __init__(self, method: TunedMethod[Any], problem: TextProblem) -> None:
        n = min(CHECK_TEXTS, _features.size_of(problem, "val"))
        self.method = method
        self.examples = method._examples(problem, method.model_info(), "val", n)
        self.loss, self.seen, self.waited = float("inf"), 0, 0
        self.best: dict[str, Any] = {}

    def __call__(self, seen: int) -> bool:
        loss = _training.mean_loss(self.method.net_, self.examples)
        if not np.isfinite(loss):
            raise MethodFailed(
                f"the validation loss is {loss} after {seen} examples; give a smaller lr"
            )
        if loss < self.loss:
            self.loss, self.seen, self.waited = loss, seen, 0
            self.best = _training.snapshot(self.method.net_)
        else:
            self.waited += 1
        return self.waited >= PATIENCE


def _under(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    import torch

    return {
        k.removeprefix(prefix): torch.as_tensor(np.asarray(v) if not torch.is_tensor(v) else v)
        for k, v in state.items()
        if k.startswith(prefix)
    }
