"""The examples of the family's page run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.lossless_decoding._decode import decode
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._problem import DecodingProblem
from lamps_plugins.lossless_decoding.esp import Esp, Params
from lamps_plugins.lossless_decoding.plain import PlainDrafter

PAGE = Path(__file__).parents[3] / "docs" / "lossless-decoding.md"
USE, DRAFTER = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_an_export_is_used_as_shown(
    toy: DecodingProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("decoder").mkdir()
    method = Esp(Params()).partial_fit(toy, 0.0, rng=np.random.default_rng(0))
    method.save(toy, Path("decoder"))
    exec(USE, {})
    assert capsys.readouterr().out.strip()


def test_a_drafter_of_ones_own_changes_nothing(llama: FrozenLm) -> None:
    names: dict[str, Any] = {}
    exec(DRAFTER, names)
    wanted = decode(llama, PlainDrafter(), [1, 2, 3], max_new=30).tokens
    assert decode(llama, names["RepeatDrafter"](), [1, 2, 3], max_new=30).tokens == wanted
