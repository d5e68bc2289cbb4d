from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lamps_plugins._views.masks import PROTOCOLS, mask_facts, mask_hash, missing_mask

from lamps.errors import ConfigError


@given(
    protocol=st.sampled_from(PROTOCOLS),
    rate=st.floats(0.0, 0.5),
    n=st.integers(1, 60),
    v=st.integers(2, 6),
    seed=st.integers(0, 99),
)
@settings(max_examples=120, deadline=None)
def test_every_row_keeps_a_view_and_seeds_repeat(
    protocol: str, rate: float, n: int, v: int, seed: int
) -> None:
    mask = missing_mask(protocol, rate, n, v, seed)
    assert mask.shape == (n, v)
    assert mask.any(axis=1).all()
    again = missing_mask(protocol, rate, n, v, seed)
    assert mask_hash(mask) == mask_hash(again)
    incomplete = int((~mask.all(axis=1)).sum())
    if protocol == "none":
        assert mask.all()
    if protocol == "sample-rate":
        assert incomplete == int(rate * n)
    if protocol == "no-complete":
        assert incomplete == n
    if protocol == "entry-rate":
        assert int((~mask).sum()) == int(rate * n * v)


def test_entry_rate_reaches_its_bound() -> None:
    mask = missing_mask("entry-rate", 0.75, 100, 4, 0)
    assert (mask.sum(axis=1) == 1).all()


def test_unbalanced_falls_from_the_first_view_to_the_last() -> None:
    share = missing_mask("unbalanced", 0.0, 4000, 4, 0).mean(axis=0)
    assert (np.diff(share) < 0).all()
    assert share[0] == pytest.approx(0.9, abs=0.03)
    assert share[-1] == pytest.approx(0.3, abs=0.03)


def test_equal_rates_leave_very_different_numbers_of_complete_rows() -> None:
    facts = [
        mask_facts(missing_mask(protocol, 0.5, 2000, 6, 0))
        for protocol in ("sample-rate", "entry-rate")
    ]
    assert facts[0]["complete_rows"] == 1000
    assert int(facts[1]["complete_rows"]) < 100


def test_other_seeds_give_other_masks() -> None:
    hashes = {mask_hash(missing_mask("sample-rate", 0.5, 50, 3, s)) for s in range(5)}
    assert len(hashes) == 5


@pytest.mark.parametrize(
    ("protocol", "rate", "views", "culprit"),
    [
        ("sample", 0.5, 3, "sample-rate"),
        ("sample-rate", 1.1, 3, r"1\.1"),
        ("entry-rate", 0.7, 3, r"0\.667"),
        ("sample-rate", 0.5, 1, "2 views"),
    ],
)
def test_what_cannot_be_hidden_is_refused(
    protocol: str, rate: float, views: int, culprit: str
) -> None:
    with pytest.raises(ConfigError, match=culprit):
        missing_mask(protocol, rate, 10, views, 0)
