"""The toy's experts, built once for the whole run, and copies of them that tests may damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lamps_plugins._zoo._build import Zoo, ZooSpec, build
from lamps_plugins.model_merging._problem import FAMILY, MergeProblem
from lamps_plugins.model_merging._refused import copied


@pytest.fixture(scope="session")
def merging_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests of the family: the toy's experts are trained once."""
    folder = tmp_path_factory.getbasetemp() / "merging-cache"
    before = os.environ.get("LAMPS_CACHE")
    os.environ["LAMPS_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["LAMPS_CACHE"]
    else:
        os.environ["LAMPS_CACHE"] = before


@pytest.fixture
def zoo(merging_cache: Path) -> Callable[[str], Zoo]:
    """The toy's zoo of a kind."""
    return lambda kind: build(ZooSpec(kind=kind, profile="toy"), lambda _: None)


@pytest.fixture
def toy(merging_cache: Path) -> Callable[[str], MergeProblem]:
    """The toy problem with experts of a kind."""
    return lambda kind: FAMILY.open_problem("toy", {"experts": kind})


@pytest.fixture
def own(zoo: Callable[[str], Zoo], tmp_path: Path) -> Callable[[str], dict[str, Path]]:
    """Folders and files as a user has them, to be damaged at will."""
    return lambda kind: copied(zoo(kind), tmp_path)
