"""The helpers of the store and integration tests, and the database server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

here = Path(__file__).parent
sys.path[:0] = [str(here.parent / name) for name in ("integration", "store")]

from _postgres import PostgresServer, find_binaries  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server whose user has a password."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (looked for initdb and pg_ctl)")
    with PostgresServer(binaries) as running:
        yield running
