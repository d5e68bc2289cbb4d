"""Discovery: by name without importing, and never fatal.

Distributions are laid out as files, the way pip does it.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lamps import plugins
from lamps.errors import ContractError, PluginError, UnknownMethod
from lamps.plugins import Registry, registry

FAMILY = """
from lamps_plugins.replay._problem import ReplayFamily

class Made(ReplayFamily):
    name = "{name}"
    contract = {contract}

FAMILY = Made()
"""

METHOD = '''
"""Replays a recorded curve under another name."""

from lamps.method import MethodSpec
from lamps_plugins.replay.curve_replay import CurveReplay, Params

class Again(CurveReplay):
    """The same."""

    spec = MethodSpec(family="{family}", summary="the same under another name")
'''

Install = Callable[..., Registry]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lay a distribution's files onto ``sys.path`` as pip would, and scan again."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def lay(
        name: str,
        files: Mapping[str, str],
        points: Mapping[str, str] | None = None,
        *,
        hooks: Mapping[str, str] | None = None,
        requires: str = "lamps-automl>=0.1",
    ) -> Registry:
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {requires}\n"
        (info / "METADATA").write_text(meta)
        lines = ["[lamps]", *(f"{k} = {v}" for k, v in (points or {}).items())]
        lines += ["[lamps.hooks]", *(f"{k} = {v}" for k, v in (hooks or {}).items())]
        (info / "entry_points.txt").write_text("\n".join(lines))
        write(site, files)
        plugins.rescan()
        return registry("")

    yield lay
    for module in set(sys.modules) - before:
        if module.startswith(("made_", "lamps_folder_plugins")):
            del sys.modules[module]
    monkeypatch.undo()
    plugins.rescan()


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(textwrap.dedent(text))


def troubles(found: Registry) -> dict[str, str]:
    return {t.name: f"{t.distribution}: {t.reason}" for t in found.troubles}


def works(found: Registry) -> bool:
    """What lamps ships is untouched by a neighbour."""
    return found.load_method("replay", "curve-replay").name() == "curve-replay"


GOOD = {
    "made_good/__init__.py": "raise RuntimeError('imported too early')",
    "made_good/_problem.py": FAMILY.format(name="made", contract=1),
    "made_good/again.py": METHOD.format(family="made"),
    "made_good/two_words.py": METHOD.format(family="made"),
    "made_good/_helper.py": "raise RuntimeError('private files are no methods')",
}


def test_methods_are_listed_without_importing_anything(install: Install) -> None:
    found = install("made-good", GOOD, {"made": "made_good"})
    assert found.method_names("made") == ["again", "two-words"]
    entry = found.methods["made", "two-words"]
    assert (entry.distribution, entry.version) == ("made-good", "1.0")
    assert "made_good" not in sys.modules
    assert troubles(found) == {}


def test_a_method_is_loaded_when_it_is_asked_for(install: Install) -> None:
    found = install("made-good", GOOD | {"made_good/__init__.py": ""}, {"made": "made_good"})
    method = found.load_method("made", "two-words")
    assert method.name() == "two-words"
    assert "made_good.again" not in sys.modules
    assert found.load_method("made", "two-words") is method
    assert found.load_family("made").name == "made"
    assert found.find_method("made/again").name == "again"


def test_methods_for_somebody_elses_family(install: Install) -> None:
    found = install(
        "made-more",
        {"made_more/__init__.py": "", "made_more/again.py": METHOD.format(family="replay")},
        {"replay": "made_more"},
    )
    assert found.method_names("replay") == ["again", "curve-replay"]
    assert found.families["replay"].distribution == "lamps-automl"
    assert found.load_method("replay", "again").spec.family == "replay"


def test_nobody_replaces_a_method_of_a_familys_owner(install: Install) -> None:
    """Not even a distribution whose name sorts before ours."""
    files = {
        "made_thief/__init__.py": "",
        "made_thief/curve_replay.py": METHOD.format(family="replay"),
        "made_thief/again.py": METHOD.format(family="replay"),
    }
    found = install("a-thief", files, {"replay": "made_thief"})
    assert found.methods["replay", "curve-replay"].distribution == "lamps-automl"
    assert troubles(found) == {
        "replay/curve-replay": "a-thief: duplicate: already provided by lamps-automl"
    }
    assert "again" in found.method_names("replay")


def test_nobody_takes_over_a_family_of_ours(install: Install) -> None:
    files = {
        "made_thief/__init__.py": "",
        "made_thief/_problem.py": FAMILY.format(name="replay", contract=1),
        "made_thief/other.py": METHOD.format(family="replay"),
    }
    found = install("a-thief", files, {"replay": "made_thief"})
    assert found.families["replay"].distribution == "lamps-automl"
    assert "already owned by lamps-automl" in troubles(found)["replay"]
    assert found.method_names("replay") == ["curve-replay"]


def test_a_second_owner_of_a_family_is_named_and_left_out(install: Install) -> None:
    files = {
        "made_rival/__init__.py": "",
        "made_rival/_problem.py": FAMILY.format(name="zz-made", contract=1),
        "made_rival/rival.py": METHOD.format(family="zz-made"),
    }
    install(
        "made-first",
        {k.replace("rival", "first"): v for k, v in files.items()},
        {"zz-made": "made_first"},
    )
    found = install("made-second", files, {"zz-made": "made_rival"})
    assert found.families["zz-made"].distribution == "made-first"
    assert "already owned by made-first" in troubles(found)["zz-made"]
    assert found.method_names("zz-made") == ["first"]


@pytest.mark.parametrize(
    ("requires", "outdated"),
    [
        ("lamps-automl>=99", True),
        ("LAMPS_automl >=99", True),
        ("lamps-automl<0.1", True),
        ("lamps-automl>=99; extra == 'future'", False),
        ("lamps-automl>=99; sys_platform == 'none'", False),
        ("lamps-automl", False),
        ("numpy>=99", False),
    ],
)
def test_plugins_for_another_lamps_are_named(
    requires: str, outdated: bool, install: Install
) -> None:
    found = install("made-old", GOOD, {"made": "made_good"}, requires=requires)
    assert ("made" not in found.families) == outdated
    assert troubles(found).get("made", "").startswith("made-old: outdated: needs") == outdated
    if outdated:
        with pytest.raises(PluginError, match=r"family made .*outdated: needs lamps-automl"):
            found.load_family("made")
    assert works(found)


def test_another_contract_is_refused_upon_load(install: Install) -> None:
    files = GOOD | {
        "made_good/__init__.py": "",
        "made_good/_problem.py": FAMILY.format(name="made", contract=0),
    }
    found = install("made-good", files, {"made": "made_good"})
    with pytest.raises(
        ContractError, match=r"made-good 1\.0.*plugin contract 0, this lamps has 1"
    ):
        found.load_family("made")
    assert works(found)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(
    content: str, text: str, install: Install
) -> None:
    files = GOOD | {"made_good/__init__.py": "", "made_good/broken.py": content}
    found = install("made-good", files, {"made": "made_good"})
    assert "broken" in found.method_names("made")
    with pytest.raises(PluginError, match="made/broken cannot be imported: ") as caught:
        found.load_method("made", "broken")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert found.load_method("made", "again").name() == "again"
    assert works(found)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('"""Nothing."""', "defines 0 classes with a spec, expected exactly one"),
        (
            METHOD.format(family="made") + METHOD.format(family="made").replace("Again", "More"),
            "defines 2 classes with a spec",
        ),
        (METHOD.format(family="replay"), "spec.family is 'replay', expected 'made'"),
    ],
)
def test_a_file_that_holds_no_method_is_refused(content: str, text: str, install: Install) -> None:
    files = GOOD | {"made_good/__init__.py": "", "made_good/again.py": content}
    found = install("made-good", files, {"made": "made_good"})
    with pytest.raises(ContractError, match=text):
        found.load_method("made", "again")


def test_a_family_file_without_a_family_is_refused(install: Install) -> None:
    files = GOOD | {"made_good/__init__.py": "", "made_good/_problem.py": "FAMILY = 3"}
    found = install("made-good", files, {"made": "made_good"})
    with pytest.raises(ContractError, match="has no FAMILY"):
        found.load_family("made")


def test_an_entry_point_to_nowhere_is_named(install: Install) -> None:
    found = install("made-gone", {}, {"made": "made_gone", "made2": "made_gone.deeper:x"})
    assert troubles(found) == {
        "made": "made-gone: package 'made_gone' is not importable",
        "made2": "made-gone: package 'made_gone.deeper:x' is not importable",
    }
    assert works(found)


def test_methods_for_a_family_that_nobody_owns_are_named(install: Install) -> None:
    files = {"made_orphan/__init__.py": "", "made_orphan/x.py": METHOD.format(family="nobody")}
    found = install("made-orphan", files, {"nobody": "made_orphan"})
    assert troubles(found) == {
        "nobody": "made-orphan: no installed package owns the family 'nobody'"
    }


@pytest.mark.parametrize("content", ["def broken(:", "import no_such_package", "raise SystemExit"])
def test_hooks_that_cannot_be_imported_are_named(content: str, install: Install) -> None:
    install("made-hooks", {"made_hooks.py": content}, hooks={"bad": "made_hooks"})
    assert "bad" not in dict(plugins.hooks().list_name_plugin())
    reason = troubles(registry(os.environ.get("LAMPS_PLUGIN_PATH", "")))["bad"]
    assert reason.startswith("made-hooks: hooks cannot be used: ")


def test_hooks_bring_policies_and_never_replace_ours(install: Install) -> None:
    from lamps import policy as policies
    from lamps.policy.exhaustive import Exhaustive

    content = """
    from lamps.hookspecs import hookimpl
    from lamps.policy.round_robin import RoundRobin

    class Mine(RoundRobin):
        name = "mine"
        summary = "mine"

    @hookimpl
    def lamps_register_policies():
        return {"mine": Mine, "exhaustive": Mine}
    """
    install("made-hooks", {"made_hooks.py": content}, hooks={"good": "made_hooks"})
    assert policies.names()[-1] == "mine"
    assert policies.make("mine").name == "mine"
    assert policies.load("exhaustive") is Exhaustive


# --- loose folders -------------------------------------------------------------------------------


def test_a_folder_adds_methods_and_families(tmp_path: Path, install: Install) -> None:
    write(
        tmp_path / "loose",
        {
            "replay/extra.py": METHOD.format(family="replay"),
            "made_family/_problem.py": FAMILY.format(name="made-family", contract=1),
            "made_family/one.py": METHOD.format(family="made-family"),
            ".hidden/x.py": "",
            "README.md": "",
        },
    )
    found = registry(str(tmp_path / "loose"))
    assert found.method_names("replay") == ["curve-replay", "extra"]
    assert found.method_names("made-family") == ["one"]
    assert found.methods["replay", "extra"].version == "folder"
    assert found.load_method("replay", "extra").name() == "extra"
    assert found.load_family("made-family").name == "made-family"
    assert registry("").method_names("replay") == ["curve-replay"]


def test_two_folders_with_equal_names_do_not_mix(tmp_path: Path, install: Install) -> None:
    """Also when they are used one after the other in one process."""
    for word in ("first", "second"):
        text = METHOD.format(family="replay").replace("the same under", word)
        write(tmp_path / word, {"replay/extra.py": text})
    summaries = [
        registry(str(tmp_path / word)).load_method("replay", "extra").spec.summary
        for word in ("first", "second", "first")
    ]
    assert [s.split()[0] for s in summaries] == ["first", "second", "first"]
    both = registry(f"{tmp_path / 'first'}{os.pathsep}{tmp_path / 'second'}")
    assert both.load_method("replay", "extra").spec.summary.startswith("first")
    assert "duplicate" in troubles(both)["replay/extra"]


def test_a_loose_method_knows_where_it_was_found(tmp_path: Path, install: Install) -> None:
    write(tmp_path / "loose", {"replay/extra.py": METHOD.format(family="replay")})
    path = str(tmp_path / "loose")
    assert plugins.plugin_path_of(registry(path).load_method("replay", "extra")) == path
    assert plugins.plugin_path_of(registry("").load_method("replay", "curve-replay")) == ""


def test_the_environment_names_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    write(tmp_path / "loose", {"replay/extra.py": METHOD.format(family="replay")})
    monkeypatch.setenv("LAMPS_PLUGIN_PATH", str(tmp_path / "loose"))
    assert "extra" in registry().method_names("replay")


def test_a_folder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PluginError, match="plugin folder '/nowhere' does not exist"):
        registry("/nowhere")


# --- names ---------------------------------------------------------------------------------------


def test_unknown_names_are_refused_with_a_hint() -> None:
    found = registry("")
    with pytest.raises(UnknownMethod, match=r"no family 'repley'.*Did you mean 'replay'"):
        found.load_family("repley")
    with pytest.raises(UnknownMethod, match=r"in family 'replay'.*Did you mean 'curve-replay'"):
        found.load_method("replay", "curve-repla")
    with pytest.raises(UnknownMethod, match="Did you mean 'curve-replay'"):
        found.find_method("curve-repla")
    with pytest.raises(UnknownMethod, match="no method 'nofamily/lora'"):
        found.find_method("nofamily/lora")


def test_a_name_in_two_families_must_be_qualified(install: Install) -> None:
    files = {
        "made_good/__init__.py": "",
        "made_good/_problem.py": FAMILY.format(name="made", contract=1),
        "made_good/curve_replay.py": METHOD.format(family="made"),
    }
    found = install("made-good", files, {"made": "made_good"})
    with pytest.raises(UnknownMethod, match="several families; write one of"):
        found.find_method("curve-replay")
    assert found.find_method("made/curve-replay").family == "made"
    assert found.find_method("replay/curve-replay").family == "replay"


def test_scanning_is_quick_and_loads_no_heavy_package() -> None:
    import subprocess

    script = (
        "import sys; from lamps.plugins import registry; registry('');"
        "print([m for m in ('torch', 'ray', 'transformers', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
