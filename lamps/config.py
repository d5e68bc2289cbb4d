"""Settings: flag over environment (``LAMPS_*``) over ``lamps.toml`` over default.

Unknown keys are errors with a suggestion. The effective settings are stored with every run.
"""

from __future__ import annotations

import operator
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lamps.errors import ConfigError, did_you_mean


def cache_dir() -> Path:
    """Folder for converted models, tokens and features: ``LAMPS_CACHE`` or ``~/.cache/lamps``."""
    root = os.environ.get("LAMPS_CACHE")
    path = (
        Path(root)
        if root
        else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lamps"
    )
    path.mkdir(parents=True, exist_ok=True)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every command can be told besides its own options.

    Args:
        store: SQLAlchemy URL of the database (``LAMPS_STORE``).
        artifacts: fsspec URL of the folder for checkpoints; empty means ``lamps-artifacts`` beside
            a SQLite store.
        plugin_path: Folders with loose plugins, separated by ``os.pathsep``
            (``LAMPS_PLUGIN_PATH``).
        tables: Folder of landmark tables (``LAMPS_TABLES``); empty means ``lamps/tables`` among
            the user's data.
        workers: Landmarks that run at once; 0 means one per core.
    """

    store: str = "sqlite:///lamps.db"
    artifacts: str = ""
    plugin_path: str = ""
    tables: str = ""
    workers: int = 0

    def tables_folder(self) -> Path:
        """The folder of landmark tables: ``tables``, or ``~/.local/share/lamps/tables``."""
        if self.tables:
            return Path(self.tables).expanduser()
        data = os.environ.get("XDG_DATA_HOME")
        return (Path(data) if data else Path.home() / ".local" / "share") / "lamps" / "tables"

    def artifact_root(self) -> str:
        """The artifact root that belongs to the store when none is named."""
        if self.artifacts:
            return self.artifacts
        if self.store.startswith("sqlite:///"):
            database = Path(self.store.removeprefix("sqlite:///"))
            return str((database.parent / f"{database.stem}-artifacts").absolute())
        raise ConfigError(
            "a store that is not SQLite needs an artifact root that all workers reach: "
            "give --artifacts URL or set LAMPS_ARTIFACTS"
        )


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """The effective settings.

    Args:
        flags: Values given on the command line or to the API; None values are not given.
        environ: Environment; ``os.environ`` if None.
        directory: Where ``lamps.toml`` is looked for; the working directory if None.

    Raises:
        ConfigError: An unknown key, a value of the wrong type, or a file that is not TOML.
    """
    known = {f.name for f in fields(Settings)}
    values: dict[str, Any] = {}
    file = (directory or Path.cwd()) / "lamps.toml"
    if file.is_file():
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is not valid TOML: {error}") from error
        for key, value in content.items():
            if key not in known:
                raise ConfigError(f"{file} has an unknown key {key!r}. {did_you_mean(key, known)}")
            values[key] = value
    env = os.environ if environ is None else environ
    for name in known:
        if (text := env.get(f"LAMPS_{name.upper()}")) is not None:
            values[name] = text
    values.update({k: v for k, v in (flags or {}).items() if v is not None})
    return Settings(**{k: _typed(k, v) for k, v in values.items()})


def _typed(name: str, value: Any) -> Any:
    if name == "workers":
        try:
            number = int(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"workers is {value!r}, expected a whole number") from error
        if number < 0:
            raise ConfigError(f"workers is {number}, expected 0 (one per core) or more")
        return number
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}, expected text")
    return value


_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|tb)?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Bytes from ``500MB``, ``4gb`` or a plain number; units are powers of 1,000.

    Example:
        >>> parse_bytes("1.5GB"), parse_bytes("42")
        (1500000000, 42)
    """
    match = _BYTES.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{text!r} is not an amount of memory; write 500MB or 4GB")
    number, unit = match.groups()
    return int(float(number) * 1000 ** ("b", "kb", "mb", "gb", "tb").index((unit or "b").lower()))


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``30m``, ``1h30m``.

    Example:
        >>> parse_duration("1h30m"), parse_duration("45")
        (5400.0, 45.0)
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if not match or not any(match.groups()):
        raise ConfigError(f"{text!r} is not a duration; write 90s, 30m or 1h30m")
    hours, minutes, seconds = (float(g or 0) for g in match.groups())
    return hours * 3600 + minutes * 60 + seconds
