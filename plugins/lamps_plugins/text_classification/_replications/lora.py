"""LoRA against full fine-tuning: as good, with few trained weights.

Paper: Hu et al., LoRA, ICLR 2022, arXiv 2106.09685, section 5.2 and table 2: RoBERTa on GLUE, on
par with fine-tuning at a quarter of a percent of its trained weights.

Here the encoder has 3 layers of width 384, and rank-8 updates of all its linear layers are 3 % of
them. Both sides start from the same head, see the same texts in the same order for the same number
of steps, at the default rates of their methods; nothing is tuned on the test split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import digest
from lamps_plugins.text_classification import _nets, _training
from lamps_plugins.text_classification._problem import FAMILY, TextProblem
from lamps_plugins.text_classification._replications._texts import TEXTS, csv_of
from lamps_plugins.text_classification._tuned import TunedMethod
from lamps_plugins.text_classification.full_finetune import FullFinetune
from lamps_plugins.text_classification.full_finetune import Params as FullParams
from lamps_plugins.text_classification.lora import Lora
from lamps_plugins.text_classification.lora import Params as LoraParams

MODEL = "paraphrase-MiniLM-L3-v2"
FULL = FullParams(model=MODEL)
LORA = LoraParams(model=MODEL, targets="all")
HELD = dataclasses.replace(LORA, lr=0.0)
"""The control: B stays zero, so that only the last layer of the head moves."""
SHARE = 0.8
"""Of the gain of full fine-tuning that is asked for; a difference, as that gain may be nothing."""
OPTIONS: dict[Profile, dict[str, Any]] = {
    "quick": {"max_train": 200, "max_val": 60, "max_test": 300, "max_length": 32},
    "full": {"max_train": 960, "max_val": 240, "max_test": 1_000, "max_length": 32},
}


class LoraReplication(Replication):
    """Test accuracy and trained weights on three real tasks."""

    claims = (
        Claim(
            id="C1",
            statement="LoRA on all linear layers is as accurate as full fine-tuning.",
            quantity="test accuracy, LoRA / full fine-tuning",
            compare="ratio",
            direction=">=",
            threshold=0.97,
        ),
        Claim(
            id="C2",
            statement="It trains less than a twentieth of the weights (heads aside).",
            quantity="trained weights, LoRA / full fine-tuning",
            compare="geometric",
            direction="<",
            threshold=0.05,
            certain=False,
        ),
        Claim(
            id="C3",
            statement="It gains at least 80 % of what full fine-tuning gains on the frozen base.",
            quantity="gain in test accuracy, LoRA - 0.8 x full fine-tuning",
            compare="difference",
            direction=">=",
            threshold=0.0,
            source="ours",
        ),
        Claim(
            id="N1",
            statement="The same training gains as much while the adapter is held at zero.",
            quantity="gain in test accuracy, head alone - 0.8 x full fine-tuning",
            compare="difference",
            direction=">=",
            threshold=0.0,
            source="ours",
            control=True,
        ),
    )

    def fingerprint(self, profile: Profile) -> str:
        """Hash of the texts' files and of all settings."""
        files = {name: csv_of(name)[1] for name in TEXTS}
        return digest([files, OPTIONS[profile], repr((FULL, LORA, HELD))])

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """One pair per task; the seed draws texts, splits and order."""
        for name in TEXTS:
            if not ask.wants("C1", "C2", "C3", "N1", unit=name):
                continue
            problem = _problem(name, ask)
            # Landmark 0 is the frozen base behind the same head for all three.
            frozen = _accuracy(FullFinetune(FULL), problem, 0.0, ask.seed)
            found = {}
            for what, method in (
                ("full fine-tuning", FullFinetune(FULL)),
                ("LoRA", Lora(LORA)),
                ("head alone", Lora(HELD)),
            ):
                ask.say(f"seed {ask.seed}: {name}, {what}")
                found[what] = (_accuracy(method, problem, 1.0, ask.seed), _trained(method))
            (full, n_full), (lora, n_lora), (head, _) = found.values()
            yield ask.measured("C1", name, lora, full, frozen=frozen)
            yield ask.measured("C2", name, n_lora, n_full)
            asked = SHARE * (full - frozen)
            yield ask.measured("C3", name, lora - frozen, asked)
            yield ask.measured("N1", name, head - frozen, asked)


def _problem(name: str, ask: Ask) -> TextProblem:
    return FAMILY.open_problem(
        str(csv_of(name)[0]),
        {
            "target": "label",
            "text": "text",
            "landmarks": 1,
            "split_seed": ask.seed,
            **OPTIONS[ask.profile],
        },
    )


def _accuracy(method: TunedMethod[Any], problem: TextProblem, fidelity: float, seed: int) -> float:
    method.partial_fit(problem, fidelity, rng=np.random.default_rng(seed))
    return 1.0 - method.evaluate(problem, "test").objectives["test_error"]


def _trained(method: TunedMethod[Any]) -> int:
    """Trained weights outside the head."""
    plain = method.plain(method.net_)
    names = _nets.head_names(plain)
    head = {id(p) for name, p in plain.named_parameters() if name in names}
    return sum(p.numel() for p in _training.trainable(method.net_).values() if id(p) not in head)
