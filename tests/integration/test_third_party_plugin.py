"""A plugin from outside: installed by pip into a folder, used through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import lamps
from lamps.errors import PluginError
from lamps.types import Candidate

EXAMPLE = Path(__file__).parents[1] / "data/third_party_plugin"
FAMILY = "example-curve-fitting"

Done = subprocess.CompletedProcess[str]
Lamps = Callable[..., Done]


def python(*arguments: object, site: Path | None, cwd: Path, **environment: str) -> Done:
    env = os.environ | environment
    if site is not None:
        env["PYTHONPATH"] = str(site)
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        cwd=cwd,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the example, built from its source as a user would."""
    target = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", target]
    done = python("-m", "pip", "install", "--quiet", *options, EXAMPLE, site=None, cwd=target)
    assert done.returncode == 0, done.stderr
    assert (target / "lamps_example_plugin-0.3.0.dist-info/entry_points.txt").is_file()
    return target


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Lamps:
    """``lamps ...`` in an environment where the example is installed."""

    def call(*arguments: object, **environment: str) -> Done:
        return python("-m", "lamps", *arguments, site=site, cwd=tmp_path, **environment)

    return call


def answer(done: Done, *, code: int = 0) -> Any:
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_its_methods_are_listed_without_being_imported(
    run: Lamps, site: Path, tmp_path: Path
) -> None:
    listed = answer(run("method", "list", "--json"))
    assert listed["unusable"] == []
    rows = {(r["family"], r["method"]): (r["from"], r["version"]) for r in listed["methods"]}
    ours = ("lamps-example-plugin", "0.3.0")
    assert rows[FAMILY, "polynomial-ridge"] == rows[FAMILY, "nearest-neighbours"] == ours
    assert rows["replay", "noisy-replay"] == ours
    assert rows["replay", "curve-replay"][0] == "lamps-automl"
    script = """
    import sys
    from lamps.plugins import registry
    assert registry().method_names("example-curve-fitting")
    print([m for m in sys.modules if m.startswith("lamps_example_plugin")])
    """
    done = python("-c", textwrap.dedent(script), site=site, cwd=tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", ["polynomial-ridge", "replay/noisy-replay"])
def test_its_methods_keep_the_contract(name: str, run: Lamps) -> None:
    rows = answer(run("method", "check", name, "--json"))
    assert {r["outcome"] for r in rows} == {"passed"}
    assert len(rows) > 15


def test_what_its_paper_claims_is_measured_and_reported(run: Lamps, tmp_path: Path) -> None:
    listed = answer(run("replicate", "--list", "--json"))
    mine = [r for r in listed if r["family"] == FAMILY]
    assert [(r["method"], r["from"]) for r in mine] == [
        ("polynomial-ridge", "lamps-example-plugin")
    ]
    found = answer(run("replicate", "polynomial-ridge", "--json"))
    assert [(c["id"], c["verdict"]) for c in found["claims"]] == [
        ("C1", "held"),
        ("C2", "fails as expected"),
    ]
    assert found["new_measurements"] == len(found["measurements"]) > 10
    assert answer(run("replicate", "polynomial-ridge", "--json"))["new_measurements"] == 0
    answer(run("replicate", "--report", "--json"))
    assert "Biased Estimation" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")


def test_its_family_keeps_its_promises(site: Path, tmp_path: Path) -> None:
    script = """
    from lamps.plugins import registry
    from lamps.testing import check_family
    results = check_family(registry().load_family("example-curve-fitting"))
    print([r for r in results if r.outcome != "passed"], len(results))
    """
    done = python("-c", textwrap.dedent(script), site=site, cwd=tmp_path)
    assert done.stdout.strip() == "[] 7", done.stderr


def test_a_search_of_its_family_ends_in_a_front_that_can_be_taken_away(
    run: Lamps, tmp_path: Path
) -> None:
    found = answer(
        run(
            *("search", "--problem", f"{FAMILY}:sine", "--n-points", 64, "--samples", 3),
            *("--backend", "local", "--policy", "cheapest-first", "--name", "r", "--json"),
        )
    )
    assert found["state"] == "finished"
    assert found["finished"] == 6
    members = found["front"]["members"]
    assert members
    assert all("test_error" in m["test"] for m in members)
    best = members[0]["index"]
    exported = answer(run("export", "r", best, "best", "--json"))
    assert {"lamps.json", "member.json"} <= set(exported["files"])
    (tmp_path / "new.csv").write_text("x\n0.0\n0.2\n")
    rows = answer(run("predict", "best", "new.csv", "--json"))
    # A sine of 4 x: at 0 it is 0, at 0.2 it is 0.72.
    assert rows[0]["y"] == pytest.approx(0.0, abs=0.3)
    assert rows[1]["y"] == pytest.approx(0.72, abs=0.3)


def test_its_refusals_are_one_line(run: Lamps) -> None:
    done = run("search", "--problem", f"{FAMILY}:sinus", "--backend", "local")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("Did you mean 'sine'?")
    assert done.stdout == ""


def test_its_policy_and_its_command_are_there(run: Lamps) -> None:
    rows = answer(run("policy", "list", "--json"))
    assert [r["policy"] for r in rows][-1] == "cheapest-first"
    assert run("example", "--name", "you").stdout == "hello you, from the example plugin\n"
    assert "example" in run("--help").stdout


def test_its_method_joins_the_pool_of_a_family_of_ours(run: Lamps, curves: Path) -> None:
    found = answer(
        run("search", "--problem", f"replay:{curves}", "--backend", "local", "--json", "-q")
    )
    assert found["finished"] + found["failed"] > 0
    names = answer(run("method", "list", "--family", "replay", "--json"))["methods"]
    assert [r["method"] for r in names] == ["curve-replay", "noisy-replay"]


# --- broken neighbours ---------------------------------------------------------------------------

METHOD = '''
"""Replays a recorded curve under another name, for tests."""

from lamps.method import MethodSpec
from lamps_plugins.replay.curve_replay import CurveReplay, Params


class Again(CurveReplay):
    """The same."""

    spec = MethodSpec(family="{family}", summary="the same under another name")
'''
PROBLEM = '''
from lamps_plugins.replay._problem import ReplayFamily


class Made(ReplayFamily):
    """The family replay under another name."""

    name = "{family}"
    contract = {contract}


FAMILY = Made()
'''


def lay(site: Path, name: str, points: Mapping[str, str], requires: str = "lamps-automl") -> Path:
    """A distribution as pip leaves it: metadata and an empty package of the same name."""
    package = name.replace("-", "_")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {requires}\n"
    )
    lines = [f"{k} = {v}" for k, v in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[lamps]", *lines]))
    folder = site / package
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    return folder


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with one distribution for everything that can be wrong with a plugin."""
    site = tmp_path / "broken"
    site.mkdir()
    lay(site, "bad-syntax", {"bad-family": "bad_syntax"})
    (site / "bad_syntax/_problem.py").write_text(PROBLEM.format(family="bad-family", contract=1))
    (site / "bad_syntax/bad.py").write_text("def broken(:\n")
    (site / "bad_syntax/needs_more.py").write_text("import no_such_package\n")
    (site / "bad_syntax/good.py").write_text(METHOD.format(family="bad-family"))
    lay(site, "bad-package", {"gone": "no_such_module"})
    folder = lay(site, "dup-family", {"replay": "dup_family"})
    (folder / "_problem.py").write_text(PROBLEM.format(family="replay", contract=1))
    folder = lay(site, "dup-method", {"replay": "dup_method"})
    (folder / "curve_replay.py").write_text(METHOD.format(family="replay"))
    folder = lay(site, "from-the-future", {"future": "from_the_future"}, "lamps-automl>=99")
    (folder / "_problem.py").write_text(PROBLEM.format(family="future", contract=1))
    folder = lay(site, "old-contract", {"old": "old_contract"})
    (folder / "_problem.py").write_text(PROBLEM.format(family="old", contract=0))
    (folder / "again.py").write_text(METHOD.format(family="old"))
    return site


def test_broken_plugins_are_named_and_the_rest_works(
    broken: Path, curves: Path, tmp_path: Path
) -> None:
    def run(*arguments: object) -> Done:
        return python("-m", "lamps", *arguments, site=broken, cwd=tmp_path)

    done = run("method", "list", "--json")
    listed = answer(done)
    unusable = {(t["from"], t["name"]): t["reason"] for t in listed["unusable"]}
    assert set(unusable) == {
        ("bad-package", "gone"),
        ("dup-family", "replay"),
        ("dup-method", "replay/curve-replay"),
        ("from-the-future", "future"),
    }
    for (distribution, name), reason in unusable.items():
        assert f"unusable: {name} ({distribution}): {reason}" in done.stderr
    assert "needs lamps-automl>=99, this is" in unusable["from-the-future", "future"]

    # What only shows when it is loaded is named then.
    for name, text in (
        ("bad-family/bad", "bad-family/bad cannot be imported: SyntaxError"),
        ("needs-more", "ModuleNotFoundError: No module named 'no_such_package'"),
    ):
        done = run("method", "show", name)
        assert done.returncode == 1
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
    done = run("search", "--problem", f"old:{curves}", "--backend", "local")
    assert done.returncode == 1
    assert "old-contract 1.0 is written for plugin contract 0" in done.stderr

    assert run("method", "show", "bad-family/good").returncode == 0
    found = answer(
        run("search", "--problem", f"replay:{curves}", "--backend", "local", "--json", "-q")
    )
    assert found["state"] == "finished"
    assert len(found["front"]["members"]) >= 2


# --- loose folders -------------------------------------------------------------------------------


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    folder = tmp_path / "loose"
    (folder / "replay").mkdir(parents=True)
    (folder / "replay/again.py").write_text(METHOD.format(family="replay"))
    return folder


def test_a_loose_folder_is_named_by_flag_or_environment(
    loose: Path, curves: Path, tmp_path: Path
) -> None:
    common = [
        *("search", "--problem", f"replay:{curves}", "--method", "again"),
        *("--backend", "local", "--json", "-q"),
    ]
    for arguments, environment in (
        (("--plugins", loose), {}),
        ((), {"LAMPS_PLUGIN_PATH": str(loose)}),
    ):
        done = python("-m", "lamps", *common, *arguments, site=None, cwd=tmp_path, **environment)
        found = answer(done)
        assert {m["method"] for m in found["front"]["members"]} == {"again"}
    done = python("-m", "lamps", *common, site=None, cwd=tmp_path)
    assert done.returncode == 1
    assert "no method 'again' in family 'replay'" in done.stderr


def test_a_loose_method_can_be_checked(loose: Path, tmp_path: Path) -> None:
    arguments = ("method", "check", "again", "--plugins", loose, "--json")
    rows = answer(python("-m", "lamps", *arguments, site=None, cwd=tmp_path))
    assert {r["outcome"] for r in rows} == {"passed"}


def pool(method: str) -> list[Candidate]:
    return [Candidate("replay", method, {"curve": c}) for c in "abcd"]


def test_a_run_remembers_its_loose_folder(loose: Path, curves: Path, store_url: str) -> None:
    options: dict[str, Any] = {"problem": f"replay:{curves}", "backend": "local", "name": "r"}
    run = lamps.search(
        **options,
        candidates=pool("again"),
        plugin_path=str(loose),
        store=store_url,
        budget=lamps.Budget(landmarks=5),
    )
    assert run.record.state == "exhausted"
    run = lamps.resume("r", store=store_url, budget=lamps.Budget(landmarks=99))
    assert run.record.state == "finished"
    (loose / "replay/again.py").rename(loose / "replay/other.py")
    with pytest.raises(PluginError, match="does not exist"):
        lamps.search(**options, store=store_url, plugin_path=str(loose.parent / "nowhere"))


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_cluster")
def test_a_loose_folder_reaches_the_workers_of_ray(
    loose: Path, curves: Path, store_url: str
) -> None:
    run = lamps.search(
        problem=f"replay:{curves}",
        candidates=pool("again"),
        policy="exhaustive",
        backend="ray",
        workers=2,
        plugin_path=str(loose),
        store=store_url,
    )
    assert [t.state for t in run.trials()] == ["complete"] * 4
    assert {m.candidate.params["curve"] for m in run.front()} == {"a", "b", "d"}
