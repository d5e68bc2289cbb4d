"""Learned tokens in front of every text (prompt tuning).

Paper: Lester, Al-Rfou, Constant, The Power of Scale for Parameter-Efficient Prompt Tuning, EMNLP
2021, arXiv 2104.08691, section 2.

    y = f([P; E(x)]),      P [k, d] trained,  E fixed token embeddings,  f the fixed network    (1)

The k vectors are rows that the embedding table grows, reached by k new tokens that the tokenizer
puts in front of every text (after a first special token). So the export is an ordinary folder that
computes exactly what was trained; the paper's formulation, vectors outside of the table, has no
such folder and does not read the last token of padded texts.

P starts as embeddings of tokens drawn from the training texts (the paper's "sampled vocabulary").
Ours, not the paper's: the head is trained with it. Oracle: after training every row of the old
table is bit for bit the pretrained one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lamps import space as hp
from lamps.errors import MissingExtra
from lamps.method import MethodSpec, Paper
from lamps_plugins.text_classification import _features, _nets
from lamps_plugins.text_classification._method import FAMILY, first_prefix
from lamps_plugins.text_classification._peft import PeftMethod

if TYPE_CHECKING:
    from torch import nn

    from lamps_plugins.text_classification._problem import TextProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of prompt tuning."""

    model: str = hp.model(accepts=("encoder", "decoder"), doc="Pretrained network.")
    n_layers: int = hp.choice(
        0, _nets.DEPTHS, doc="Lower layers that are kept; 0, or more than there are, keeps all."
    )
    n_tokens: int = hp.integer(8, low=2, high=32, log=True, doc="Learned tokens k; eq. (1).")
    lr: float = hp.real(1e-2, low=1e-3, high=5e-2, log=True, doc="Peak learning rate of P.")
    head_lr: float = hp.fixed(1e-3, doc="Peak learning rate of the last layer.")
    epochs: int = hp.integer(3, low=1, high=6, doc="Passes over the training set.")
    batch_size: int = hp.choice(16, (8, 16, 32), doc="Examples a step.")
    micro_batch: int = hp.fixed(0, doc="Examples a forward pass; 0 means the whole batch.")
    weight_decay: float = hp.fixed(0.0, doc="Decoupled weight decay of matrices.")
    class_weights: str = hp.choice(
        "none", ("none", "balanced"), doc="Weight of each label in the loss."
    )


class PromptTuning(PeftMethod[Params]):
    """Learned tokens and the head are trained."""

    Params = Params
    spec = MethodSpec(
        family=FAMILY,
        summary="trains tokens in front of every text",
        paper=Paper(
            title="The Power of Scale for Parameter-Efficient Prompt Tuning",
            arxiv="2104.08691",
            venue="EMNLP 2021",
            section="2",
        ),
    )

    tokenizer_: Any = None
    starts_frozen = False

    def limit(self, problem: TextProblem) -> int:
        """The learned tokens come on top of the problem's bound, as far as there are positions."""
        return _features.token_limit(self.model_info(), problem.max_length + self.params.n_tokens)

    def tokenizer(self, problem: TextProblem) -> Any:
        """The model's tokenizer with the new tokens in its template."""
        if self.tokenizer_ is None:
            tokenizer = copy.deepcopy(_features.tokenizer_of(self.model_info()))
            before, after = _nets.around(tokenizer)
            tokenizer.add_tokens(
                [f"<prompt_{i}>" for i in range(self.params.n_tokens)], special_tokens=True
            )
            new = self._new_ids(tokenizer)
            _nets.set_template(tokenizer.backend_tokenizer, [*before, *new], after)
            self.tokenizer_ = _nets.plain_tokenizer(tokenizer)
        return self.tokenizer_

    def _new_ids(self, tokenizer: Any) -> list[int]:
        names = [f"<prompt_{i}>" for i in range(self.params.n_tokens)]
        return [int(i) for i in tokenizer.convert_tokens_to_ids(names)]

    def decorate(self, rows: Sequence[np.ndarray], problem: TextProblem) -> Sequence[np.ndarray]:
        """The new tokens put into cached token ids, cut as the exported tokenizer cuts."""
        tokenizer, limit = self.tokenizer(problem), self.limit(problem)
        before, after = _nets.around(_features.tokenizer_of(self.model_info()))
        new = np.asarray(self._new_ids(tokenizer), dtype=np.int32)
        head, tail = len(before), len(after)
        result = []
        for row in rows:
            text = row[head : len(row) - tail][: limit - head - tail - len(new)]
            result.append(np.concatenate([row[:head], new, text, row[len(row) - tail :]]))
        return result

    def adapt(self, net: nn.Module, problem: TextProblem) -> nn.Module:
        """Grow the table by the new rows, then let peft train those alone."""
        import torch

        table: Any = net.get_input_embeddings()  # type: ignore[operator]
        old = table.weight.shape[0]
        new = self._new_ids(self.tokenizer(problem))
        seen = np.concatenate(
            _features.tokens(problem, self.model_info(), "train", first_prefix(problem))
        )
        drawn = seen[torch.randint(len(seen), (len(new),)).numpy()]
        if max(new) >= old:
            net.resize_token_embeddings(max(new) + 1, mean_resizing=False)  # type: ignore[operator]
            table = net.get_input_embeddings()  # type: ignore[operator]
        with torch.no_grad():
            table.weight[new] = table.weight[torch.as_tensor(drawn.astype(np.int64))]
        return super().adapt(net, problem)

    def config(self, net: nn.Module) -> Any:
        """The peft configuration for a network."""
        try:
            from peft import TrainableTokensConfig
        except ImportError as error:
            raise MissingExtra(f"method {self.name()!r}", "peft", "text") from error
        table = net.get_input_embeddings()  # type: ignore[operator]
        name = next(n for n, m in net.named_modules() if m is table)
        tokenizer: Any = self.tokenizer_
        return TrainableTokensConfig(token_indices=self._new_ids(tokenizer), target_modules=[name])
