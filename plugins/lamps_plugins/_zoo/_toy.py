"""A zoo that is made in a second: a BERT of two layers, and three tasks on made-up sentences."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from lamps_plugins._zoo._experts import Recipe
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._labels import LabelReader
from lamps_plugins.text_classification._loading import Parts, parts_of
from lamps_plugins.text_classification._options import DataOptions
from lamps_plugins.text_classification._splits import Sample, normalised, text_key

MAX_LENGTH = 16
WIDTH, DEPTH, BLOCK = 32, 2, 8

TASKS: dict[str, dict[str, str]] = {
    "dish": {
        "sweet": "cake sugar honey syrup cookie jam",
        "salty": "chips bacon olives pretzel broth anchovy",
        "sour": "lemon vinegar pickle lime yoghurt sorrel",
    },
    "game": {
        "ball": "goal racket bat net dribble serve",
        "board": "chess dice pawn domino checkers rook",
        "card": "poker ace bridge joker rummy trump",
    },
    "trip": {
        "air": "airport wing runway pilot cabin gate",
        "rail": "platform carriage track conductor depot signal",
        "sea": "harbour ferry anchor deck sailor lighthouse",
    },
}
"""Words of each class by task."""

_FILLERS = (
    "we they someone nobody guest friend talked asked waited remembered about with before after "
    "the a long new old small big monday evening morning again today slowly gladly"
)
_PER_CLASS = 80
_MISLEADING = 0.15  # share of sentences with one word of another class


def recipe(kind: str) -> Recipe:
    """Eighty small steps."""
    lr = {"full": 3e-3, "lora": 1e-2, "oft": 2e-2}[kind]
    return Recipe(kind=kind, steps=80, batch_size=16, lr=lr, head_lr=1e-2, oft_block=BLOCK)


@functools.lru_cache(maxsize=16)
def toy_parts(task: str, seed: int) -> Parts:
    """Sentences of one task: two words of their class among fillers, sometimes one of another."""
    classes = {label: words.split() for label, words in TASKS[task].items()}
    rng = np.random.default_rng([seed, list(TASKS).index(task)])
    reader = LabelReader("label", None)
    rows: dict[int, Sample] = {}
    for label, words in classes.items():
        others = [w for k, v in classes.items() if k != label for w in v]
        made = 0
        while made < _PER_CLASS:
            marks = list(rng.choice(words, 2))
            if rng.random() < _MISLEADING:
                marks[1] = rng.choice(others)
            chosen = [*rng.choice(_FILLERS.split(), 3), *marks]
            text = " ".join(chosen[i] for i in rng.permutation(len(chosen)))
            key = text_key(normalised(text), seed)
            labels = reader.read(label, task)
            if key not in rows and labels is not None:
                rows[key] = Sample(text, labels, None, key)
                made += 1
    options = DataOptions(
        target="label", split_seed=seed, val_share=0.2, test_share=0.25, max_length=MAX_LENGTH
    )
    ordered = sorted(rows.values(), key=Sample.order)
    return parts_of({"train": ordered}, reader, options, where=task, typed=True)


def write_base(folder: Path, seed: int) -> None:
    """The base with its tokenizer, in hub layout, into an existing empty folder."""
    with _nets.quiet():
        import torch
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        words = [w for task in TASKS.values() for line in task.values() for w in line.split()]
        vocabulary = {
            w: i for i, w in enumerate(dict.fromkeys([*special, *_FILLERS.split(), *words]))
        }
        backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.Whitespace()
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        PreTrainedTokenizerFast(
            tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
            sep_token="[SEP]", model_max_length=MAX_LENGTH,
        ).save_pretrained(folder)  # fmt: skip
        torch.manual_seed(seed)  # inside quiet's forked state
        config = BertConfig(
            vocab_size=len(vocabulary), hidden_size=WIDTH, num_hidden_layers=DEPTH,
            num_attention_heads=2, intermediate_size=2 * WIDTH, initializer_range=0.2,
            max_position_embeddings=MAX_LENGTH, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        net = BertModel(config)
        with torch.no_grad():
            # As the classifier's pooler starts; see the text family's networks.
            net.pooler.dense.weight.copy_(_nets.GAIN * torch.eye(WIDTH))
            net.pooler.dense.bias.zero_()
        net.save_pretrained(folder)
