"""Secrets around Ray: its token, and passwords that must not become part of a command line.

The token is made by us before Ray does, readable by its owner alone: Ray up to 2.60.0 writes it
readable for everyone, and ``ray start --head`` starts an open cluster where there is none.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from lamps.errors import ConfigError

_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def token_path() -> Path:
    """Where Ray looks for the token: ``RAY_AUTH_TOKEN_PATH``, or ``~/.ray/auth_token``."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(named) if named else Path.home() / ".ray" / "auth_token"


def prepare_token() -> None:
    """Make the token file with mode 0600 in a folder with mode 0700, before Ray does.

    Nothing is done where a token comes from the environment.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = token_path()
    path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
    path.parent.chmod(FOLDER_MODE)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        path.chmod(FILE_MODE)
        return
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32))


def use_token() -> None:
    """Make the token and set ``RAY_AUTH_MODE=token`` for this process and what it starts."""
    prepare_token()
    os.environ["RAY_AUTH_MODE"] = "token"


def refuse_passwords(words: Iterable[str]) -> None:
    """Refuse a command line that Ray's dashboard would show with a password in it.

    Ray keeps the command line of every driver and job, and shows it to all who see the cluster.

    Raises:
        ConfigError: A word holds a URL with a password, which the message does not repeat.
    """
    secret = next((w for w in words if _PASSWORD.search(w)), None)
    if secret is not None:
        raise ConfigError(
            f"{_PASSWORD.sub('://...:...@', secret)} holds a password, and everybody who sees the "
            "cluster's dashboard sees the command line. Leave it out of the URL: put it into "
            "~/.pgpass or a service of pg_service.conf, or name the store in LAMPS_STORE"
        )
