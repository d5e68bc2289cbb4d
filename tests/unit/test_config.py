"""Settings: flag over environment over file over default; what is unknown is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamps.config import Settings, cache_dir, load_settings, parse_duration
from lamps.errors import ConfigError

SOURCES = ("flag", "env", "file")


@pytest.mark.parametrize("given", [(f, e, t) for f in (0, 1) for e in (0, 1) for t in (0, 1)])
@pytest.mark.parametrize("key", ["store", "artifacts", "plugin_path", "workers"])
def test_the_nearest_source_wins(given: tuple[int, ...], key: str, tmp_path: Path) -> None:
    values: dict[str, Any] = dict(
        zip(SOURCES, (7, 8, 9) if key == "workers" else "abc", strict=True)
    )
    flag, env, file = given
    if file:
        text = f"{key} = {values['file']!r}".replace("'", '"')
        (tmp_path / "lamps.toml").write_text(text)
    settings = load_settings(
        {key: values["flag"] if flag else None},
        environ={f"LAMPS_{key.upper()}": str(values["env"])} if env else {},
        directory=tmp_path,
    )
    winner = next((s for s, on in zip(SOURCES, given, strict=True) if on), None)
    expected = values[winner] if winner else getattr(Settings(), key)
    assert getattr(settings, key) == expected
    others = {"store", "artifacts", "plugin_path", "workers"} - {key}
    assert all(getattr(settings, k) == getattr(Settings(), k) for k in others)


def test_the_process_environment_and_folder_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lamps.toml").write_text("workers = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMPS_STORE", "sqlite:///env.db")
    assert load_settings() == Settings(store="sqlite:///env.db", workers=3)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"stor = 'x'", "lamps.toml has an unknown key 'stor'.*Did you mean 'store'"),
        (b"store = ", "lamps.toml is not valid TOML"),
        (b"\xff\xfe", "lamps.toml is not valid TOML"),
        (b"store = 3", "store is 3, expected text"),
        (b"workers = 'many'", "workers is 'many', expected a whole number"),
        (b"workers = -1", "workers is -1, expected 0"),
        (b"workers = 1.5", "workers is 1.5, expected a whole number"),
        (b"[store]\nx = 1", "expected text"),
    ],
)
def test_bad_files_are_refused_in_one_line(content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "lamps.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=text) as caught:
        load_settings(environ={}, directory=tmp_path)
    assert "\n" not in str(caught.value)


def test_bad_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="workers is 'x'"):
        load_settings(environ={"LAMPS_WORKERS": "x"}, directory=tmp_path)


def test_artifacts_lie_beside_a_sqlite_store(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/deep/runs.db")
    assert settings.artifact_root() == f"{tmp_path}/deep/runs-artifacts"
    assert Settings(store="postgresql://h/d", artifacts="s3://b/x").artifact_root() == "s3://b/x"
    with pytest.raises(ConfigError, match="--artifacts URL"):
        Settings(store="postgresql://h/d").artifact_root()


def test_the_cache_is_where_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path / "a"))
    assert cache_dir() == tmp_path / "a"
    assert cache_dir().is_dir()
    monkeypatch.delenv("LAMPS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_dir() == tmp_path / "b" / "lamps"


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_durations_add_up(h: int, m: int, s: int) -> None:
    assert parse_duration(f"{h}h{m}m{s}s") == 3600 * h + 60 * m + s
    assert parse_duration(f" {h}H{m}M ") == 3600 * h + 60 * m


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5h", 5400), ("0.5m", 30), ("2h5", 7205), ("0", 0)],
)
def test_durations_by_example(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "s", "soon", "-5", "5m3h", "1h 30m", "nan", "inf", "1e3"]
)
def test_other_words_are_no_durations(text: str) -> None:
    with pytest.raises(ConfigError, match="write 90s, 30m or 1h30m"):
        parse_duration(text)


def test_the_folder_of_tables_is_named_or_among_the_users_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert Settings().tables_folder() == tmp_path / "data" / "lamps" / "tables"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert Settings().tables_folder() == Path.home() / ".local" / "share" / "lamps" / "tables"
    named = load_settings({}, environ={"LAMPS_TABLES": "~/curves"}, directory=tmp_path)
    assert named.tables_folder() == Path.home() / "curves"
