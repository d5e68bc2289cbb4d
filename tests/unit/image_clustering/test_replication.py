"""The replication of MAGIC: that it is found, and that its runs can be made."""

from __future__ import annotations

import pytest
from lamps_plugins.image_clustering import _emoji
from lamps_plugins.image_clustering._replications.magic import MagicReplication

from lamps.errors import ProblemError
from lamps.plugins import registry
from lamps.replication import Ask


def test_it_is_found_beside_its_method() -> None:
    found = registry("").load_replication("image-clustering", "magic")
    assert isinstance(found, MagicReplication)
    assert [c.id for c in found.claims if c.control] == ["N1"]
    assert len(found.seeds("quick")) == 5


def test_what_is_known_is_not_measured_again() -> None:
    units = {"C3": "mnist-text", "C5": "hidden emoji"}
    claims = frozenset(c.id for c in MagicReplication.claims)
    known = frozenset((c, units.get(c, "emoji")) for c in claims)
    ask = Ask(profile="quick", seed=0, claims=claims, known=known)
    assert list(MagicReplication().measure(ask)) == []


def test_profiles_are_told_apart() -> None:
    try:
        _emoji.emoji_folder()
    except ProblemError as error:
        pytest.skip(str(error))
    found = MagicReplication()
    assert found.fingerprint("quick") != found.fingerprint("full")
