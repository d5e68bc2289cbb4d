"""A real PostgreSQL server for the test session, started from the binaries of the machine."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

PASSWORD = "s3cret-of-the-tests"


def find_binaries() -> Path | None:
    """The folder with ``initdb`` and ``pg_ctl``; None where no server is installed."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    if shutil.which("pg_config"):
        answer = subprocess.run(
            ["pg_config", "--bindir"], capture_output=True, text=True, check=True
        )
        folders.append(answer.stdout.strip())
    for folder in folders:
        if all((Path(folder) / name).exists() for name in ("initdb", "pg_ctl")):
            return Path(folder)
    return None


class PostgresServer:
    """A server on a free port, in a temporary folder that is removed at the end.

    PostgreSQL refuses to run as root, so there it runs as ``postgres`` or ``nobody``.

    Args:
        binaries: See `find_binaries`.
        host: Address to listen on.
        network: Clients beside this machine, such as ``10.0.0.0/24``.
    """

    def __init__(self, binaries: Path, host: str = "127.0.0.1", network: str = "") -> None:
        self.binaries = binaries
        self.host, self.network = host, network
        self.folder = Path(tempfile.mkdtemp(prefix="lamps-pg-"))
        self.user: str | None = None
        if os.getuid() == 0:
            self.user = _first_user("postgres", "nobody")
            record = pwd.getpwnam(self.user)
            os.chown(self.folder, record.pw_uid, record.pw_gid)
        with socket.socket() as free:
            free.bind((self.host, 0))
            self.port = free.getsockname()[1]

    def __enter__(self) -> PostgresServer:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data = str(self.folder / "data")
        self._run(
            "initdb", "-D", data, "-U", "lamps", "-A", "scram-sha-256", "--pwfile", str(secret),
            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        if self.network:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {self.network} scram-sha-256\n")
        self.start()
        return self

    def start(self) -> None:
        """Start the server; it was stopped, or never ran."""
        options = f"-p {self.port} -c listen_addresses={self.host} -k {self.folder} -c fsync=off"
        log, data = str(self.folder / "log"), str(self.folder / "data")
        self._run("pg_ctl", "-D", data, "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: ``immediate`` as in a crash, ``fast`` as an administrator does it."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "stop")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://lamps:{password}@{self.host}:{self.port}/{database}"

    def open_url(self, database: str = "postgres") -> str:
        """The URL without its password, which a client finds in `pass_file`."""
        return f"postgresql://lamps@{self.host}:{self.port}/{database}"

    def pass_file(self, path: Path) -> Path:
        """A file for ``PGPASSFILE``."""
        path.write_text(f"*:*:*:lamps:{PASSWORD}\n")
        path.chmod(0o600)
        return path

    def _run(self, program: str, *arguments: str) -> None:
        # The server outlives pg_ctl and would hold a pipe open, so output goes to a file.
        with (self.folder / f"{program}.out").open("w+") as out:
            code = subprocess.run(
                [str(self.binaries / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                user=self.user,
                group=pwd.getpwnam(self.user).pw_gid if self.user else None,
                extra_groups=[] if self.user else None,
                check=False,
            ).returncode
            out.seek(0)
            if code:
                raise RuntimeError(f"{program} ended with {code}: {out.read()}")


def _first_user(*names: str) -> str:
    known = {record.pw_name for record in pwd.getpwall()}
    for name in names:
        if name in known:
            return name
    raise RuntimeError(f"PostgreSQL refuses root, and none of the users {names} exists")
