"""``ray start`` and ``ray stop`` with the token on and the doors closed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from lamps.errors import ConfigError, MissingExtra
from lamps.scheduler.ray import require_listener
from lamps.scheduler.ray_token import prepare_token, token_path, use_token

START_TIMEOUT_S = 180.0
LOOPBACK = "127.0.0.1"
CLIENT_SERVER = "ray.util.client.server"


def start_head(
    *,
    port: int = 6379,
    node_ip: str | None = None,
    cpus: int | None = None,
    dashboard_host: str = LOOPBACK,
    dashboard_port: int = 8265,
    client_port: int = 0,
    object_store_bytes: int | None = None,
    temp_dir: str | None = None,
) -> str:
    """Start the head of a cluster on this machine.

    Args:
        port: Of the head, for other nodes and for ``--address``.
        node_ip: Address of this machine that the other nodes reach; found by Ray if None.
        cpus: CPUs of this node; all if None.
        dashboard_host: Where dashboard and Jobs API listen.
        dashboard_port: Their port.
        client_port: Port for ``ray://`` addresses, on the node's own address; 0 closes it.
        object_store_bytes: Size of the object store; Ray's default if None.
        temp_dir: Folder of sessions and logs; Ray's default if None.

    Returns:
        What ``ray start`` printed.

    Raises:
        ConfigError: Ray did not start; its own words are in the message.
    """
    use_token()
    words = [
        "--head",
        f"--port={port}",
        f"--dashboard-host={dashboard_host}",
        f"--dashboard-port={dashboard_port}",
        *([f"--ray-client-server-port={client_port}"] if client_port else []),
    ]
    said = _ray_start([*words, *_common(node_ip, cpus, object_store_bytes, temp_dir)])
    if not client_port:
        _close_client_server(port)
    return said


def _close_client_server(head_port: int) -> None:
    """End the server for ``ray://`` addresses of the head on this machine.

    Ray starts it with every head, on the node's own address, and has no switch for that.
    """
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            mine = any(w.startswith("--address=") and w.endswith(f":{head_port}") for w in words)
            if CLIENT_SERVER in words and mine:
                process.kill()
                process.wait(10)


def join(
    address: str,
    *,
    node_ip: str | None = None,
    cpus: int | None = None,
    object_store_bytes: int | None = None,
    temp_dir: str | None = None,
) -> str:
    """Make this machine a node of the cluster whose head is at ``address``.

    Raises:
        ConfigError: This machine has no token, the head does not answer, or Ray did not start.
    """
    if not (os.environ.get("RAY_AUTH_TOKEN") or token_path().is_file()):
        raise ConfigError(
            f"this machine has no token for the cluster. Copy {token_path()} of the head to the "
            "same place here, readable by its owner alone (mode 0600), or set RAY_AUTH_TOKEN_PATH"
        )
    require_listener(address)
    prepare_token()  # narrows the modes of a file that was copied
    os.environ["RAY_AUTH_MODE"] = "token"
    return _ray_start(
        [f"--address={address}", *_common(node_ip, cpus, object_store_bytes, temp_dir)]
    )


def stop(*, force: bool = False) -> str:
    """End every process of Ray on this machine that belongs to this user.

    Args:
        force: Kill them at once.
    """
    return _ray(["stop", *(["--force"] if force else [])])


def _common(
    node_ip: str | None, cpus: int | None, object_store_bytes: int | None, temp_dir: str | None
) -> list[str]:
    given = {
        "node-ip-address": node_ip,
        "num-cpus": cpus,
        "object-store-memory": object_store_bytes,
        "temp-dir": temp_dir,
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def _ray_start(words: Sequence[str]) -> str:
    return _ray(["start", "--disable-usage-stats", *words])


def _ray(words: Sequence[str]) -> str:
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("clusters", "ray", "ray")
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"}
    # Ray's daemons outlive this call and may hold a pipe open, so output goes to a file.
    with tempfile.TemporaryFile("w+") as said:
        try:
            code = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=START_TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise ConfigError(
                f"'ray {words[0]}' gave no answer within {START_TIMEOUT_S:g} s; look into the "
                "logs under /tmp/ray/session_latest/logs"
            ) from error
        said.seek(0)
        output = said.read()
    if code:
        raise ConfigError(f"'ray {words[0]}' failed: {_reason(output)}")
    return output


def _reason(output: str) -> str:
    """The last line of an output that says something, without Ray's log prefix."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -\t")]
    errors = [line for line in lines if "Error" in line or "error" in line]
    return ((errors or lines or ["it printed nothing"])[-1])[:500]
