"""Who can reach what on this machine: Ray's version, its token, and the ports it listens on."""

from __future__ import annotations

import json
import os
import stat
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from lamps.cluster.findings import Finding, bad, good, warn
from lamps.cluster.nodes import CLIENT_SERVER
from lamps.scheduler.ray_token import FILE_MODE, FOLDER_MODE, token_path

OLDEST, TOO_NEW = Version("2.59"), Version("2.62")
LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})

_SERVERS = {
    CLIENT_SERVER: "the ray:// server",
    "dashboard/dashboard.py": "the dashboard",
}


def version_finding() -> Finding:
    """Whether the installed Ray is one whose known holes are closed."""
    found = Version(metadata.version("ray"))
    if found < OLDEST:
        return bad(
            "ray version",
            str(found),
            f"before {OLDEST} the token is off by default and a web page can submit jobs "
            f"(CVE-2025-62593, CVE-2026-27482); pip install 'ray>={OLDEST},<{TOO_NEW}'",
        )
    if found >= TOO_NEW:
        return warn("ray version", str(found), f"lamps is tested below {TOO_NEW}")
    return good("ray version", str(found))


def token_findings() -> list[Finding]:
    """Mode of authentication, and who can read the token."""
    mode = os.environ.get("RAY_AUTH_MODE", "")
    findings = []
    if mode == "disabled":
        findings.append(
            bad("token mode", "RAY_AUTH_MODE=disabled", "export RAY_AUTH_MODE=token everywhere")
        )
    elif mode != "token":
        findings.append(
            warn(
                "token mode",
                "RAY_AUTH_MODE is not set here",
                "export RAY_AUTH_MODE=token on every node and client; lamps does it for what it "
                "starts itself",
            )
        )
    else:
        findings.append(good("token mode", "RAY_AUTH_MODE=token"))
    if os.environ.get("RAY_AUTH_TOKEN"):
        findings.append(
            warn(
                "token",
                "it is in the variable RAY_AUTH_TOKEN, which every child process inherits",
                "prefer a file, named by RAY_AUTH_TOKEN_PATH",
            )
        )
        return findings
    return [*findings, *file_findings(token_path())]


def file_findings(path: Path) -> list[Finding]:
    """Whether a token file and its folder belong to their owner alone."""
    if not path.is_file():
        return [bad("token", f"{path} does not exist", "run: lamps cluster start --head")]
    findings = []
    for what, wanted in ((path, FILE_MODE), (path.parent, FOLDER_MODE)):
        state = what.stat()
        mode = stat.S_IMODE(state.st_mode)
        name = "token file" if what is path else "token folder"
        if mode & 0o077:
            findings.append(
                bad(name, f"{what} has mode {mode:04o}", f"chmod {wanted:04o} '{what}'")
            )
        elif state.st_uid != os.getuid():
            findings.append(
                warn(name, f"{what} belongs to user {state.st_uid}", "it should be yours")
            )
        else:
            findings.append(good(name, f"{what} has mode {mode:04o}"))
    return findings


def dashboard_finding(address: str, timeout_s: float = 10.0) -> Finding:
    """Whether the Jobs API turns away who comes without a token."""
    url = f"{address.rstrip('/')}/api/jobs/"
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            count = len(json.load(answer))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return good("jobs api", f"{url} answers {error.code} without a token")
        return warn("jobs api", f"{url} answers {error.code} {error.reason}", "look at its log")
    except (OSError, ValueError) as error:
        return warn("jobs api", f"{url} does not answer: {error}", "is the dashboard running?")
    return bad(
        "jobs api",
        f"{url} shows {count} jobs to everybody, so everybody can run code here (CVE-2023-48022)",
        "stop the cluster, export RAY_AUTH_MODE=token, start it with: lamps cluster start --head",
    )


def port_findings() -> list[Finding]:
    """Whether dashboard and client server of this machine listen on loopback only."""
    import psutil

    findings = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            what = next((n for sign, n in _SERVERS.items() if any(sign in w for w in words)), None)
            if what is None:
                continue
            # The metrics port of the dashboard is another one, open to all by Ray's design.
            port = next(int(w.partition("=")[2]) for w in words if w.startswith("--port="))
            hosts = {
                c.laddr.ip
                for c in process.net_connections(kind="inet")
                if c.status == psutil.CONN_LISTEN and c.laddr.port == port
            }
        except (psutil.Error, StopIteration):
            continue  # it has just ended, or is another user's
        where = f"{what} (process {process.pid}, port {port})"
        if outside := sorted(hosts - LOOPBACK):
            findings.append(
                warn(
                    "ports",
                    f"{where} listens on {', '.join(outside)}",
                    "a token is no encryption: keep it on 127.0.0.1 and use an SSH tunnel, or a "
                    "private network with RAY_USE_TLS=1",
                )
            )
        else:
            findings.append(good("ports", f"{where} listens on loopback only"))
    return findings
