from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _one_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Derived views of the session's own, so that no test leans on a user's cache."""
    folder: Path = tmp_path_factory.getbasetemp() / "views-cache"
    monkeypatch.setenv("LAMPS_CACHE", str(folder))
