"""The texts of a transfer: one labelled task, and unlabelled texts for generic losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamps.errors import ProblemError
from lamps.types import digest
from lamps_plugins.text_classification._problem import TextProblem
from lamps_plugins.text_classification._splits import normalised, text_key


@dataclass(frozen=True)
class Texts:
    """Everything that is read.

    Args:
        task: Labelled texts. Train is what fine-tuning saw, and what Fishers, gradients and the
            refitted head may read; validation and test only measure.
        generic: Unlabelled texts for the generic Fishers of both bases.
        domain: Unlabelled texts for retention; no method reads them.
    """

    task: TextProblem
    generic: tuple[str, ...]
    domain: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("generic", "domain"):
            if not getattr(self, name):
                raise ProblemError(f"no {name} texts, expected at least one")
        if self.task.multi_label:
            raise ProblemError(f"{self.task.name} has several labels a text, expected one")
        self._refuse_shared()

    def _refuse_shared(self) -> None:
        held = {
            text_key(normalised(text), 0): split
            for split in ("val", "test")
            for text in self.task._texts[split]  # not counted as opening the test split
        }
        for name in ("generic", "domain"):
            for text in getattr(self, name):
                if split := held.get(text_key(normalised(text), 0)):
                    raise ProblemError(
                        f"a {name} text is a {split} text of the task too: {text[:40]!r}; take it "
                        "out"
                    )

    @property
    def key(self) -> str:
        """Hash of all texts and labels."""
        return digest([self.task.fingerprint(), list(self.generic), list(self.domain)])

    def labelled(self, n: int | None = None) -> tuple[list[str], np.ndarray]:
        """The first ``n`` training texts and their classes [n] int64."""
        return list(self.task.texts("train")[:n]), np.asarray(self.task.targets("train")[:n])
