"""Clusters of Ray with several nodes on one machine: each in a network namespace of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

HEAD_PORT = 6385
DASHBOARD_PORT = 8275
STORE_BYTES = 90_000_000


def can_make_namespaces() -> bool:
    """Whether this machine lets us make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"lamps-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made.returncode == 0


class Network:
    """Machines that reach each other over a bridge; machine 0 is this one.

    Args:
        n: Namespaces, the addresses of which end in 11, 12 and so on.
    """

    def __init__(self, n: int) -> None:
        self.tag = f"lm{os.getpid() % 100_000}"
        self.subnet = f"10.{os.getpid() // 256 % 100 + 100}.{os.getpid() % 256}"
        self.names = [f"{self.tag}n{i}" for i in range(n)]
        self.host = f"{self.subnet}.1"

    def address(self, i: int) -> str:
        """Address of namespace ``i``."""
        return f"{self.subnet}.{11 + i}"

    def __enter__(self) -> Network:
        bridge = f"{self.tag}b"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self.host}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for i, name in enumerate(self.names):
            outside, inside = f"{self.tag}o{i}", f"{self.tag}i{i}"
            _ip("netns", "add", name)
            _ip("link", "add", outside, "type", "veth", "peer", "name", inside)
            _ip("link", "set", inside, "netns", name)
            _ip("link", "set", outside, "master", bridge)
            _ip("link", "set", outside, "up")
            _ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", inside)
            _ip("-n", name, "link", "set", inside, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for i, name in enumerate(self.names):
            self.kill(i)
            subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", f"{self.tag}b"], check=False)

    def command(self, i: int, words: Sequence[str]) -> list[str]:
        """A command line that runs on machine ``i``."""
        return ["ip", "netns", "exec", self.names[i], *words]

    def processes(self, i: int) -> list[psutil.Process]:
        """All processes of machine ``i``."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.names[i]], capture_output=True, text=True, check=False
        )
        return [psutil.Process(int(p)) for p in found.stdout.split() if psutil.pid_exists(int(p))]

    def signal(self, i: int, number: int) -> list[psutil.Process]:
        """Send a signal to every process of machine ``i``."""
        processes = self.processes(i)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return processes

    def kill(self, i: int) -> None:
        """Power off machine ``i``: every process at once, without warning."""
        psutil.wait_procs(self.signal(i, signal.SIGKILL), timeout=20)

    def kill_while(self, i: int, busy: Callable[[list[str]], bool]) -> None:
        """Power off machine ``i`` at a moment when its command lines say that it works."""
        while True:
            processes = self.signal(i, signal.SIGSTOP)  # time stands still while we look
            if busy([_line(p) for p in processes]):
                return self.kill(i)
            self.signal(i, signal.SIGCONT)
            time.sleep(0.2)


class Cluster:
    """A head on machine 0 of a network and workers on the others.

    Args:
        network: Its machines.
        home: The users' home folder with the token, shared by all machines here.
        variables: More environment of every process.
    """

    def __init__(self, network: Network, home: Path, variables: Mapping[str, str]) -> None:
        self.network = network
        self.temp = Path(tempfile.mkdtemp(prefix="lr", dir="/tmp"))  # sockets need short paths
        self.environment = os.environ | {
            "HOME": str(home),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Deaths are noticed within seconds instead of half a minute; a node that starts slowly
            # on a busy machine is not taken for a dead one.
            "RAY_health_check_initial_delay_ms": "10000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "6",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
            **variables,
        }

    @property
    def address(self) -> str:
        """Of the head."""
        return f"{self.network.address(0)}:{HEAD_PORT}"

    @property
    def dashboard(self) -> str:
        """Of the Jobs API; it listens on the loopback address of the head."""
        return f"http://127.0.0.1:{DASHBOARD_PORT}"

    def start(self, i: int, *more: str, cpus: int = 1) -> None:
        """Start the node of machine ``i`` through the command line."""
        where = ["--head", "--port", str(HEAD_PORT), "--dashboard-port", str(DASHBOARD_PORT)]
        self.lamps(
            i, "cluster", "start", *(where if i == 0 else ["--address", self.address]),
            "--node-ip", self.network.address(i), "--cpus", str(cpus),
            "--object-store", f"{STORE_BYTES}", "--temp-dir", f"{self.temp}/{i}", *more,
        )  # fmt: skip

    def words(self, i: int, *words: str) -> list[str]:
        """The command line of ``lamps WORDS`` on machine ``i``."""
        return self.network.command(i, [sys.executable, "-m", "lamps", *words])

    def lamps(self, i: int, *words: str, code: int = 0, timeout_s: float = 240) -> Any:
        """Run ``lamps WORDS`` on machine ``i`` to its end."""
        done = subprocess.run(
            self.words(i, *words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def begin(self, i: int, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Begin ``lamps WORDS`` on machine ``i``; stdout and stderr go to a file."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self.words(i, *words),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def close(self) -> None:
        """Remove sessions and logs."""
        shutil.rmtree(self.temp, ignore_errors=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def wait_for(condition: Any, timeout_s: float) -> None:
    """Wait until a condition holds; fails when it does not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout_s:g} s"
        time.sleep(0.2)
