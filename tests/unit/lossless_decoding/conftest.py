from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._problem import FAMILY, DecodingProblem

from ._oracles import Counter, random_llama


@pytest.fixture(scope="session")
def counter() -> FrozenLm:
    return FrozenLm(Counter(vocabulary=23), name="counter")


@pytest.fixture(scope="session")
def llama() -> FrozenLm:
    return FrozenLm(random_llama(), name="llama")


@pytest.fixture(scope="session")
def small_draft() -> FrozenLm:
    return FrozenLm(random_llama(width=16, layers=1, seed=1), name="small")


@pytest.fixture(scope="session")
def decoding_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests of the family: the toys are trained once."""
    folder = tmp_path_factory.getbasetemp() / "decoding-cache"
    before = os.environ.get("LAMPS_CACHE")
    os.environ["LAMPS_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["LAMPS_CACHE"]
    else:
        os.environ["LAMPS_CACHE"] = before


@pytest.fixture(scope="session")
def toy(decoding_cache: Path) -> DecodingProblem:
    return FAMILY.toy_problem()
