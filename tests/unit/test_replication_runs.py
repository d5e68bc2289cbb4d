"""Replications are found by their files, measured once, and go on where they were interrupted."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from _replications import SOURCE, lay

import lamps
from lamps import api, plugins
from lamps.errors import (
    ConfigError,
    ContractError,
    LampsError,
    MethodFailed,
    PluginError,
    StoreError,
    UnknownMethod,
)
from lamps.replication_page import page
from lamps.replication_results import ReplicationResult, newest
from lamps.replication_runs import machine_facts
from lamps.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """A folder with the replication; what was imported from it is forgotten."""
    yield lay(tmp_path)
    for module in [m for m in sys.modules if m.startswith("lamps_folder_plugins")]:
        del sys.modules[module]
    plugins.rescan()


class Replicate:
    """Calls of `lamps.replicate` with one store, and the lines that were said."""

    def __init__(self, store: str, folder: str) -> None:
        self.store, self.folder = store, folder
        self.said: list[str] = []

    def __call__(self, method: str = "curve-replay", **asked: Any) -> ReplicationResult:
        self.said.clear()
        return lamps.replicate(
            method, store=self.store, plugin_path=self.folder, say=self.said.append, **asked
        )

    def measured(self) -> list[str]:
        """Units of the last call that were really measured."""
        return [line.removeprefix("curve ") for line in self.said if line.startswith("curve ")]


@pytest.fixture
def replicate(store_url: str, folder: str) -> Replicate:
    return Replicate(store_url, folder)


def test_a_replication_is_found_without_being_imported(folder: str) -> None:
    before = set(sys.modules)
    found = plugins.registry(folder)
    entry = found.find_replication("curve-replay")
    assert (entry.family, entry.name, entry.distribution) == ("replay", "curve-replay", folder)
    assert found.troubles == []
    assert not [m for m in set(sys.modules) - before if "_replications" in m]
    assert found.method_names("replay") == ["curve-replay"]


def test_what_cannot_be_replicated_is_told_in_one_line(folder: str) -> None:
    found = plugins.registry(folder)
    with pytest.raises(UnknownMethod, match=r"no method 'curve-reply'.*Did you mean 'curve-repl"):
        found.find_replication("curve-reply")
    with pytest.raises(UnknownMethod) as caught:
        found.find_replication("tfidf-logreg")
    assert re.fullmatch(
        r"method 'tfidf-logreg' of family 'text-classification' has no replication\. "
        r"Methods with one: .*replay/curve-replay.*",
        str(caught.value),
    )


def test_a_replication_of_nothing_and_a_second_one_are_listed_as_unusable(
    folder: str, tmp_path: Path
) -> None:
    lay(tmp_path, method="no_such_method")
    lay(tmp_path, method="_helper")
    second = lay(tmp_path / "second")
    found = plugins.registry(f"{folder}:{second}")
    reasons = {t.name: t.reason for t in found.troubles}
    assert reasons == {
        "replication of replay/no-such-method": "there is no such method",
        "replication of replay/curve-replay": f"duplicate: already provided by {folder}",
    }


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError"),
        ("x = 1", "defines 0 replications, expected exactly one"),
        (SOURCE + "\nclass Second(CurveReplayReplication): pass", "defines 2 replications"),
        (SOURCE.replace('claim("C2"', 'claim("C1"'), "claims are .'C1', 'C1', 'N1'., expected"),
        (SOURCE.replace("claims = (", "claims = () and ("), "claims are .., expected at least"),
        (SOURCE.replace('compare="ratio"', 'compare="rato"'), "compare is 'rato'"),
    ],
)
def test_a_broken_file_is_told_in_one_line(
    source: str, said: str, tmp_path: Path, store_url: str
) -> None:
    with pytest.raises(PluginError, match=said) as caught:
        lamps.replicate("curve-replay", store=store_url, plugin_path=lay(tmp_path, source))
    assert "\n" not in str(caught.value)


def test_claims_are_measured_judged_and_kept(replicate: Replicate, store_url: str) -> None:
    result = replicate()
    assert [(c.claim.id, c.verdict.word, c.seeds) for c in result.claims] == [
        ("C1", "held", (0, 1)),
        ("N1", "fails as expected", (0, 1)),
    ]
    assert (result.new, result.broken) == (24, ())
    (first, _) = result.claims
    assert (first.verdict.n_pairs, first.verdict.basis) == (12, "seeds and units")
    assert first.measurements[0].details == {"landmarks": 2}
    assert "1 held, 1 fails as expected" in repr(result)
    assert list(result.to_pandas()["id"]) == ["C1", "N1"]
    json.dumps(result.as_dict(), allow_nan=False)
    with api.open_store(store_url) as opened:
        (stored,) = opened.replications()
        assert opened.check() == []
    assert (stored.method_version, stored.profile, stored.fingerprint) == ("1", "quick", "toy")
    assert set(stored.seeds[0].facts) >= {"cpus", "threads", "machine", "versions"}


def test_nothing_is_measured_twice_unless_asked(replicate: Replicate) -> None:
    first = replicate()
    assert len(replicate.measured()) == 12
    second = replicate()
    assert (replicate.measured(), second.new) == ([], 0)
    assert "prepared" not in replicate.said
    assert second.as_dict() | {"new_measurements": 24} == first.as_dict()
    third = replicate(again=True, seeds=[1], claims=["C1"])
    assert (len(replicate.measured()), third.new) == (6, 6)
    assert replicate().as_dict() == second.as_dict()


def test_a_new_seed_or_claim_measures_only_that(replicate: Replicate) -> None:
    assert replicate(seeds=[0], claims=["C1"]).new == 6
    result = replicate(seeds=[0, 5], claims=["C1"])
    assert (result.new, result.claims[0].seeds) == (6, (0, 5))
    assert replicate(seeds=[0]).new == 6
    (one,) = replicate(seeds=[5], claims=["C1"]).claims
    assert (one.seeds, one.verdict.basis) == ((5,), "units of one seed")


@pytest.mark.parametrize("variable", ["REPLICATION_DATA"])
def test_other_data_count_as_nothing_measured(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    replicate()
    monkeypatch.setenv(variable, "other")
    assert replicate().new == 24
    monkeypatch.delenv(variable)
    assert replicate().new == 0


def test_a_failure_is_one_line_and_keeps_what_was_measured(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICATION_FAULT", "1/c3")
    with pytest.raises(MethodFailed) as caught:
        replicate()
    assert str(caught.value) == (
        "replication of replay/curve-replay at seed 1 failed: ValueError: no such luck; what was "
        "measured before is stored, the same command goes on from there"
    )
    monkeypatch.delenv("REPLICATION_FAULT")
    result = replicate()
    assert replicate.measured() == ["c3", "c4", "c5"]
    assert result.new == 6
    untroubled = Replicate(replicate.store.replace("lamps.db", "other.db"), replicate.folder)
    assert result.as_dict()["claims"] == untroubled().as_dict()["claims"]


def test_what_is_unfinished_counts_nowhere(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICATION_FAULT", "1/c3")
    with pytest.raises(MethodFailed):
        replicate()
    with Store.open(replicate.store) as store:
        text = page(store.replications())
    assert "Begun and not finished: seeds 1." in text
    assert "--seed 0`" in text


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"profile": "slow"}, "profile is 'slow'. Known: full, quick"),
        ({"claims": ["C9"]}, "has no claim 'C9'. Known: C1, C2, N1"),
        ({"claims": ["C2"]}, "is measured at profile 'full'; add --profile full"),
        ({"seeds": [-1]}, "seeds are .-1., expected at least one, each 0 or more"),
    ],
)
def test_what_cannot_be_asked(replicate: Replicate, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replicate(**asked)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("yield ask.measured(", "yield (lambda *a, **k: a)(", "expected a Measurement"),
        ("ask.measured(c.id", "ask.measured('C7'", "names the claim 'C7'. Known: C1, C2, N1"),
        ("ask.measured(c.id, curve", "ask.measured(c.id, 'u'", "two pairs for seed 0 and unit"),
        (
            "for c in self.claims:",
            "for c in self.claims[:1]:",
            "nothing was measured for claim 'N1",
        ),
    ],
)
def test_measurements_that_break_the_contract(
    old: str, new: str, said: str, tmp_path: Path, store_url: str
) -> None:
    source = SOURCE.replace(old, new)
    assert source != SOURCE
    with pytest.raises((ContractError, MethodFailed), match=said) as caught:
        lamps.replicate("curve-replay", store=store_url, plugin_path=lay(tmp_path, source))
    assert isinstance(caught.value, LampsError)


def test_the_page_is_the_same_for_the_same_store(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="no finished replication"):
        page([])
    replicate()
    replicate(profile="full", seeds=[2, 0])
    first = api.replication_page(store=replicate.store)
    assert first == api.replication_page(store=replicate.store)
    with Store.open(replicate.store) as store:
        stored = store.replications()
    assert page(reversed(stored)) == first
    assert first.index("Profile full") < first.index("Profile quick")
    assert "`lamps replicate replay/curve-replay --profile full --seed 0 --seed 2`" in first
    assert (
        "| C1 (paper) | The last error is < the first. | error, last \\| first landmark |" in first
    )
    assert "| N1 (control) |" in first
    assert re.search(
        r"Profile quick, \d{4}-\d\d-\d\d, .* CPUs \d+, threads \d+, .* python 3", first
    )
    assert "nan" not in first


def test_the_page_shows_what_was_finished_last(
    replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicate(seeds=[0])
    monkeypatch.setenv("REPLICATION_DATA", "other")
    replicate(seeds=[4])
    with Store.open(replicate.store) as store:
        stored = store.replications()
    assert [r.fingerprint for r in newest(stored)] == ["other"]
    text = page(stored)
    assert "data `other`" in text
    assert "data `toy`" not in text
    unfinished = replace(stored[1], seeds=[replace(s, finished_at=None) for s in stored[1].seeds])
    assert [r.fingerprint for r in newest([stored[0], unfinished])] == ["toy"]


def test_what_needs_hardware_is_listed_with_its_command(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = 'claim("C2", "<", profile="full")'
    source = SOURCE.replace(old, 'claim("C2", "<", needs="gpu")')
    assert source != SOURCE
    monkeypatch.setattr("lamps.replication._n_gpus", lambda: 0)
    replicate = Replicate(store_url, lay(tmp_path, source))
    result = replicate(seeds=[0])
    assert "C2: not testable on this machine, needs a CUDA GPU" in replicate.said
    assert [c.claim.id for c in result.claims] == ["C1", "N1"]
    assert [c["id"] for c in result.as_dict()["untested"]] == ["C2"]
    text = api.replication_page(store=store_url)
    command = "`lamps replicate replay/curve-replay --profile quick --claim C2`"
    assert f"| < 1 | a CUDA GPU | {command} |" in text
    with pytest.raises(ConfigError, match="claim 'C2' of 'curve-replay' needs a CUDA GPU"):
        replicate(claims=["C2"])
    # With the hardware it is measured like any other.
    monkeypatch.setattr("lamps.replication._n_gpus", lambda: 1)
    assert [c.claim.id for c in replicate(seeds=[0]).claims] == ["C1", "C2", "N1"]
    assert "Not testable" not in api.replication_page(store=store_url)


def test_facts_name_no_machine() -> None:
    import platform

    facts = json.dumps(machine_facts())
    assert '"python"' in facts
    assert platform.node() not in facts
