"""Faults on purpose: the marker of every test here, the helpers of the integration tests."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

here = Path(__file__).parent
sys.path[:0] = [str(here.parent / name) for name in ("integration", "store")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is kept out of the plain suite."""
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.faults)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture
def moments(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> random.Random:
    """Random moments, whose seed is printed; LAMPS_FAULT_SEED repeats them."""
    seed = int(os.environ.get("LAMPS_FAULT_SEED", random.SystemRandom().randrange(10**6)))
    with capsys.disabled():
        print(f"\n{request.node.name}: LAMPS_FAULT_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints what was measured."""

    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"  {line}")

    return tell
