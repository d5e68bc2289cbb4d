"""Paths stay below their root, statements keep their shape, files hold no code."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lamps
from lamps import artifacts
from lamps.errors import LampsError, StoreError

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    p
    for folder in ("lamps", "plugins/lamps_plugins", "kernels", "meta_dataset")
    for p in (ROOT / folder).rglob("*.py")
)
EVIL = ["../../evil", "/etc/evil", "..", ".", "a/../../b", "x\x00y", "CON", "~/evil", "%2e%2e/x"]


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a module with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


# -- files ---------------------------------------------------------------------------------------

UNPICKLES = {
    "lamps/scheduler/ray.py": "a problem of a loose folder, from the driver to its own workers",
    "lamps/integrations/tune.py": "the scheduler's own state, as Ray Tune's interface has it",
    "lamps/testing/transport.py": "checks that a problem survives pickling",
    "lamps/testing/policies.py": "checks that a policy survives pickling",
    "lamps/testing/tools.py": "checks that a method survives pickling",
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_source_file_runs_code_from_data(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    for called, node in calls(ast.parse(path.read_text())):
        assert called not in ("eval", "exec", "os.system", "marshal.loads"), (name, node.lineno)
        if called in ("pickle.load", "pickle.loads", "joblib.load", "dill.loads"):
            assert name in UNPICKLES, (name, node.lineno)
        if called == "torch.load":
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert given.get("weights_only") == "True", (name, node.lineno)
        if called == "yaml.load":
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            loader = given.get("Loader") or ast.unparse(node.args[1])
            assert "SafeLoader" in loader, (name, node.lineno)
        if called in ("subprocess.run", "subprocess.Popen"):
            assert all(k.arg != "shell" for k in node.keywords), (name, node.lineno)
        if called in ("np.load", "numpy.load"):
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert given.get("allow_pickle") != "True", (name, node.lineno)


def test_a_checkpoint_that_is_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    path = tmp_path / "t00000-l0-a1.safetensors"
    path.write_bytes(pickle.dumps(Bomb(bomb)))
    with pytest.raises(StoreError):
        artifacts.read_checkpoint(str(path))
    assert not bomb.exists()


# -- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVIL)
def test_a_name_cannot_leave_the_artifact_root(name: str, curves: Path, tmp_path: Path) -> None:
    root = tmp_path / "deep" / "er" / "root"
    outside = {p for p in tmp_path.rglob("*") if root not in p.parents}
    try:
        run = lamps.search(
            problem=f"replay:{curves}",
            backend="local",
            policy="exhaustive",
            store=f"sqlite:///{tmp_path}/lamps.db",
            artifacts=str(root),
            name=name,
        )
    except LampsError:
        assert "\x00" in name or name.strip(".") == ""
    else:
        assert run.name == name
        assert any(p.suffix == ".safetensors" for p in root.rglob("*"))
    new = {p for p in tmp_path.rglob("*") if root not in p.parents and p not in outside}
    expected = {"lamps.db", "lamps.db-wal", "lamps.db-shm", "deep", "er", "root", "lamps.db.lock"}
    assert {p.name for p in new} <= expected
    assert not Path("/etc/evil").exists()


def test_a_label_cannot_leave_the_folder_of_an_export(tmp_path: Path, curves: Path) -> None:
    text = curves.read_text().replace("\na,", "\n../../evil,")
    curves.write_text(text)
    store = f"sqlite:///{tmp_path}/lamps.db"
    run = lamps.search(
        problem=f"replay:{curves}", backend="local", policy="exhaustive", store=store, name="r"
    )
    before = set(tmp_path.parent.iterdir())
    lamps_report = tmp_path / "out.html"
    done = subprocess.run(
        [sys.executable, "-m", "lamps", "report", "r", str(lamps_report), "--store", store],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(tmp_path.parent.iterdir()) == before
    assert len(run.front())


# -- statements ----------------------------------------------------------------------------------

WRITTEN_OUT = {
    "lamps/store/engine.py": "PRAGMA with a constant",
    "lamps/store/schema.py": "names of our own tables",
    "lamps/store/integrity.py": "names of our own tables",
}


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if "store" in p.parts], ids=lambda p: str(p.relative_to(ROOT))
)
def test_no_statement_is_put_together_from_text(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    for called, node in calls(ast.parse(path.read_text())):
        last = called.rsplit(".", 1)[-1]
        if last in ("text", "exec_driver_sql", "execute", "executescript") and node.args:
            made = isinstance(node.args[0], (ast.JoinedStr, ast.BinOp)) or (
                isinstance(node.args[0], ast.Call)
                and ast.unparse(node.args[0].func).endswith(".format")
            )
            assert not made or name in WRITTEN_OUT, (name, node.lineno)


@pytest.mark.parametrize("name", ["'; DROP TABLE runs; --", 'x" OR 1=1', "%s :name ?", "\\'"])
def test_names_are_values_and_nothing_else(name: str, curves: Path, store_url: str) -> None:
    run = lamps.search(problem=f"replay:{curves}", backend="local", store=store_url, name=name)
    with lamps.open_store(store_url) as store:
        assert [r.name for r in store.runs()] == [name]
        assert store.run(name).record.state == run.record.state
        assert store.check() == []
        assert len(store.run(name).front(where={"error": "< 1"}))
        with pytest.raises(LampsError):
            store.run(name).front(where={"error": "< 1; DROP TABLE runs"})


# -- plugins -------------------------------------------------------------------------------------


def test_only_a_folder_that_is_named_gives_plugins(tmp_path: Path) -> None:
    family = tmp_path / "stranger"
    family.mkdir()
    flag = tmp_path / "imported"
    (family / "__init__.py").write_text(f"import pathlib\npathlib.Path({str(flag)!r}).touch()\n")
    (family / "evil.py").write_text(f"import pathlib\npathlib.Path({str(flag)!r}).touch()\n")
    (tmp_path / "lamps.toml").write_text("")

    def list_methods(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lamps", "method", "list", *more],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    quiet = list_methods()
    assert quiet.returncode == 0
    assert "stranger" not in quiet.stdout
    assert not flag.exists()
    named = list_methods("--plugins", str(tmp_path))
    assert flag.exists() or "stranger" in named.stdout + named.stderr
