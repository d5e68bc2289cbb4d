"""What the replication is made of, at sizes that take seconds."""

from __future__ import annotations

import pytest
from lamps_plugins.sparse_attention._items import Item
from lamps_plugins.sparse_attention._replications.unisparse import (
    UniSparseReplication,
    density_of,
    gpu,
    oracles,
    randoms,
    windows,
)
from lamps_plugins.sparse_attention._topics import Topics
from lamps_plugins.sparse_attention.unisparse import UniSparse

from lamps.replication import Ask


def asked(*claims: str) -> Ask:
    return Ask(profile="quick", seed=0, claims=frozenset(claims))


def test_every_claim_has_a_name_of_its_own_and_controls_exist() -> None:
    claims = UniSparseReplication.claims
    assert len({claim.id for claim in claims}) == len(claims)
    assert {claim.id for claim in claims if claim.control} == {"N1", "N2", "N3"}
    assert {claim.id for claim in claims if claim.needs == "gpu"} == {"G1", "G2"}


def test_comparisons_grow_denser() -> None:
    layers = Topics(segment=64).heads(Item("test", 2048, 0))
    wanted = density_of(UniSparse.from_params({}), layers)
    for rules in (windows(), randoms(wanted, 0), oracles()):
        found = [density_of(rule, layers) for rule in rules]
        assert found[-1] >= wanted
        assert found == sorted(found)


@pytest.mark.parametrize("claim", ["G1", "G2"])
def test_what_needs_a_gpu_is_code_that_runs(claim: str) -> None:
    (found,) = gpu(asked(claim), device="cpu", lengths=(256, 256), width=32)
    assert found.claim == claim
    assert found.newcomer > 0
    assert found.comparison > 0
