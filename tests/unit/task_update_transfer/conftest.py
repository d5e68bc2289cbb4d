"""The toy's models, made once for the whole run, and copies of them that tests may change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lamps_plugins.task_update_transfer import _refused
from lamps_plugins.task_update_transfer._problem import FAMILY, TransferProblem


@pytest.fixture(scope="session")
def transfer_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests of the family: the toy's models are trained once."""
    folder = tmp_path_factory.getbasetemp() / "transfer-cache"
    before = os.environ.get("LAMPS_CACHE")
    os.environ["LAMPS_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["LAMPS_CACHE"]
    else:
        os.environ["LAMPS_CACHE"] = before


@pytest.fixture
def toy(transfer_cache: Path) -> Callable[..., TransferProblem]:
    """A built-in toy: ``toy`` or ``toy-width``, with options."""
    return lambda name="toy", **options: FAMILY.open_problem(name, options)


@pytest.fixture
def own(transfer_cache: Path, tmp_path: Path) -> Callable[..., TransferProblem]:
    """A problem of folders that ``edit`` may change first, opened with ``options``."""

    def opened(edit: Callable[[dict[str, Path]], object], **options: Any) -> TransferProblem:
        places = _refused.copies(tmp_path)
        edit(places)
        file, given = _refused.opened_with(places)
        return FAMILY.open_problem(file, given | options)

    return opened
