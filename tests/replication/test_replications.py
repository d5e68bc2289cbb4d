"""Every installed replication runs at its quick profile, controls fail, verdicts are computed.

Not that claims hold: a claim that does not is a result, and stands on the page of results.
"""

from __future__ import annotations

import math

import pytest

import lamps
from lamps import api
from lamps.plugins import registry

pytestmark = [pytest.mark.replication, pytest.mark.timeout(1200)]

FOUND = [f"{family}/{method}" for family, method in sorted(registry("").replications)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all, so that the last test sees a page of everything."""
    return f"sqlite:///{tmp_path_factory.mktemp('replications')}/lamps.db"


@pytest.mark.parametrize("method", FOUND)
def test_a_replication_runs_and_its_controls_fail(method: str, store: str) -> None:
    result = lamps.replicate(method, store=store)
    entry = registry("").find_replication(method)
    claims = registry("").load_replication(entry.family, entry.name).claims
    assert [c.claim for c in result.claims] == [c for c in claims if c.measured_at("quick")]
    assert result.broken == ()
    for found in result.claims:
        assert found.verdict.outcome in ("held", "not held", "undecided")
        assert not math.isnan(found.verdict.value)
        assert found.measurements
    again = lamps.replicate(method, store=store)
    assert (again.new, again.as_dict()["claims"]) == (0, result.as_dict()["claims"])


def test_all_of_them_are_on_the_page(store: str) -> None:
    assert FOUND
    text = api.replication_page(store=store)
    assert [method for method in FOUND if f"| {method} |" not in text] == []
