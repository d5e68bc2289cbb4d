"""Landmarks as Ray tasks, on this machine or a cluster: resources, retries, clean workers.

Ray places the tasks, moves the problem to the nodes once, and tells when a worker has vanished.
Whether to try again is the controller's decision, so Ray's own retries are off.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any

from lamps.errors import ConfigError, MissingExtra, WorkerLost
from lamps.method import Problem
from lamps.plugins import plugin_path_of, registry
from lamps.scheduler.backend import Backend
from lamps.scheduler.orphans import end_children, end_orphans, marked_children
from lamps.scheduler.progress import Listener
from lamps.scheduler.ray_metrics import RayMeter
from lamps.scheduler.ray_token import prepare_token, refuse_passwords, token_path
from lamps.scheduler.signals import signal_kept, undisturbed
from lamps.scheduler.worker import LandmarkResult, LandmarkTask, run_landmark
from lamps.types import Resources

OBJECT_STORE_BYTES = 200 * 1024 * 1024
LANDMARKS_PER_WORKER = 500
"""A worker process ends after so many landmarks.

So that whatever memory methods leak returns to the machine.
"""

MAX_RESTARTS = 3
SLICE_S = 0.05

_log = logging.getLogger("lamps")

_LOST = {"WorkerCrashedError", "ActorDiedError", "OutOfMemoryError", "OwnerDiedError"}
_NODE_LOST = {"NodeDiedError", "LocalRayletDiedError", "ObjectLostError", "RaySystemError"}


class RayBackend(Backend):
    """Runs landmarks as Ray tasks.

    Args:
        workers: Landmarks at once; 0 means one per CPU of the cluster.
        address: Address of a running cluster, or ``auto``; None means ``RAY_ADDRESS``, which Ray
            sets within a job, and without that a cluster that is started on this machine.
        dashboard: Whether a cluster that is started here serves Ray's dashboard, on the loopback
            address only.
    """

    name = "ray"

    def __init__(
        self, workers: int = 0, *, address: str | None = None, dashboard: bool = False
    ) -> None:
        self.workers = workers
        self.address = address or _surrounding()
        self.dashboard = dashboard
        self._ray: Any = None
        self._owned = False
        self._problem: Any = None
        self._run: Any = None
        self._flight: dict[Any, LandmarkTask] = {}
        self._broken = ""
        self._restarts = 0

    def start(self, problem: Problem, demands: Iterable[Resources]) -> None:
        """Start or join a cluster, check the demands, put the problem into the object store."""
        self.check(demands)
        self._source = problem
        self._publish()

    def _publish(self) -> None:
        """Put the problem where workers find it.

        One whose class lives in a loose folder travels pickled: a worker must know the folder
        before it can unpickle anything of it, and only the task says where it is.
        """
        loose = plugin_path_of(type(self._source))
        self._problem = self._ray.put(pickle.dumps(self._source) if loose else self._source)
        entry = run_with_pickled if loose else run_landmark
        self._run = self._ray.remote(max_retries=0, max_calls=LANDMARKS_PER_WORKER)(entry)

    def connect(self) -> None:
        """Join the cluster that this process is in, the one at the address, or start one."""
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("the 'ray' backend", "ray", "ray") from error
        self._ray = ray
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
        if self.address is None:
            prepare_token()
            end_orphans()
            options |= {
                "num_cpus": self._cpus(),
                "include_dashboard": self.dashboard,
                "dashboard_host": "127.0.0.1",
                "object_store_memory": OBJECT_STORE_BYTES,
            }
            if not self.dashboard:
                # Nobody reads Ray's metrics then, of which the driver keeps some for every task
                # name: 30 to 50 kB for each landmark.
                options["_system_config"] = {"enable_metrics_collection": False}
        else:
            refuse_passwords(sys.argv)
            require_listener(self.address)
            options["address"] = self.address
        marked = marked_children() if self.address is None else contextlib.nullcontext()
        with warnings.catch_warnings(), marked, signal_kept(signal.SIGTERM):
            # Ray announces future defaults as FutureWarning; none of them concerns what we set.
            warnings.simplefilter("ignore", FutureWarning)
            self._owned = True  # from here on `close` has something to end, come what may
            try:
                context = ray.init(**options)
            except ray.exceptions.AuthenticationError as error:
                raise ConfigError(
                    f"the Ray cluster at {self.address!r} turns us away: its token is not the one "
                    f"that is found here ({token_path()}). Copy the head's token to that place, "
                    "or name its file in RAY_AUTH_TOKEN_PATH, and set RAY_AUTH_MODE=token"
                ) from error
            except ConnectionError as error:
                raise ConfigError(
                    f"no Ray cluster answers at {self.address!r}: {error}. Start one, or leave "
                    "--address out to use this machine"
                ) from error
        if self.address is None and self.dashboard:
            _log.info(
                "Ray's dashboard: http://%s (it asks for the token in %s)",
                context.dashboard_url,
                token_path(),
            )
        # Ray prints the death of a worker on stdout, which belongs to the answer; the controller
        # learns of it as a result and tells the user on stderr. There is no public switch.
        ray._private.worker._worker_logs_enabled = False

    def check(self, demands: Iterable[Resources]) -> None:
        """Refuse demands that no node set of the cluster adds up to.

        CPUs before Ray is even started.
        """
        asked = set(demands)
        if self.address is None and not self._joined():
            for demand in asked:
                if demand.cpus > self._cpus():
                    raise ConfigError(
                        f"a candidate needs {demand.cpus:g} CPU, this machine has "
                        f"{self._cpus()}; ask for fewer, or leave its method out"
                    )
        self.connect()
        self._check_cluster(asked)

    def _joined(self) -> bool:
        module = sys.modules.get("ray")
        return module is not None and bool(module.is_initialized())

    def _cpus(self) -> int:
        """CPUs of a cluster that is started here: as many landmarks as asked, or all cores."""
        return max(self.workers, os.cpu_count() or 1)

    def _check_cluster(self, demands: set[Resources]) -> None:
        total: dict[str, float] = self._ray.cluster_resources()
        if not self.workers:
            self.workers = max(int(total.get("CPU", 1)), 1)
        for demand in demands:
            asked = _ray_resources(demand)
            for name, amount in asked.items():
                if amount > total.get(name, 0.0):
                    have = {k: v for k, v in total.items() if ":" not in k}
                    raise ConfigError(
                        f"a candidate needs {amount:g} {name}, the cluster has "
                        f"{total.get(name, 0.0):g} in all ({have}); leave its method out or "
                        "add nodes"
                    )

    def meter(self, run: str) -> Listener | None:
        """Ray's metrics of a run, on a cluster or where the dashboard is served.

        Ray's small local cluster without a dashboard exports no metrics.
        """
        watched = self.address is not None or self.dashboard
        return RayMeter(run) if watched else None

    @property
    def free(self) -> int:
        """Workers that have nothing to do."""
        return self.workers - len(self._flight)

    def submit(self, task: LandmarkTask) -> None:
        """Submit one task with its resources; its name is what Ray's pages show."""
        options: dict[str, Any] = {"name": task.label, "num_cpus": task.resources.cpus}
        if task.resources.gpus:
            options["num_gpus"] = task.resources.gpus
        if task.resources.memory_bytes:
            options["memory"] = task.resources.memory_bytes
        reference = self._run.options(**options).remote(task, self._problem)
        self._flight[reference] = task

    def wait(self, timeout_s: float) -> list[LandmarkResult]:
        """All results that are there once the first has come."""
        if not self._flight:
            return []
        ray = self._ray
        pending = list(self._flight)
        deadline = time.monotonic() + timeout_s
        ready, _ = ray.wait(pending, num_returns=1, timeout=min(timeout_s, SLICE_S))
        while not ready and (left := deadline - time.monotonic()) > 0:
            # Ray looks for signals once a second; two that come in between would count as one.
            ready, _ = ray.wait(pending, num_returns=1, timeout=min(left, SLICE_S))
        if ready and len(pending) > 1:
            ready, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
        results = [self._outcome(reference) for reference in ready]
        if self._broken:
            results += self.cancel()
            self._restart()
        return results

    def _restart(self) -> None:
        """Start Ray on this machine again after its only node died; its landmarks are cancelled.

        Raises:
            WorkerLost: It has died too often for this to be chance.
        """
        self._restarts += 1
        if self._restarts > MAX_RESTARTS:
            raise WorkerLost(
                f"Ray on this machine died {self._restarts} times, the last time with: "
                f"{self._broken}. Look for memory, then go on with: lamps resume"
            )
        self._broken = ""
        self._ray.shutdown()
        end_children()
        self.connect()
        self._publish()

    def _outcome(self, reference: Any) -> LandmarkResult:
        task = self._flight.pop(reference)
        exceptions = self._ray.exceptions
        try:
            result: LandmarkResult = self._ray.get(reference)
            return result
        except exceptions.TaskCancelledError:
            return LandmarkResult(key=task.key, kind="cancelled")
        except exceptions.RayTaskError as error:
            # run_landmark catches what methods raise; this is its own transport: a plugin that the
            # worker cannot import, a problem that cannot be unpickled.
            line = str(error.cause if hasattr(error, "cause") else error)
            return LandmarkResult(key=task.key, kind="failed", error=f"in the worker: {line}")
        except exceptions.RayError as error:
            name = type(error).__name__
            line = f"{name}: {' '.join(str(error).split())[:500]}"
            if self._owned and self.address is None and name in _NODE_LOST:
                # The machine's own node is gone, which says nothing about the method.
                self._broken = line
                return LandmarkResult(key=task.key, kind="cancelled", error=line)
            kind = "crashed" if name in _LOST | _NODE_LOST else "failed"
            return LandmarkResult(key=task.key, kind=kind, error=line)  # type: ignore[arg-type]

    def cancel(self) -> list[LandmarkResult]:
        """Kill the workers of all tasks in flight.

        A landmark in the middle of a step cannot be asked.
        """
        abandoned = []
        for reference, task in self._flight.items():
            # It may have ended, or its node may be gone, which is as good.
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
            abandoned.append(LandmarkResult(key=task.key, kind="cancelled"))
        self._flight.clear()
        return abandoned

    def close(self) -> None:
        """Leave the cluster; one that was started here ends with all its processes."""
        if self._ray is not None and self._owned:
            with undisturbed():
                self._ray.shutdown()
                self._ray._private.worker._worker_logs_enabled = True
                end_children()
        self._ray = None
        self._owned = False


def run_with_pickled(task: LandmarkTask, problem: bytes) -> LandmarkResult:
    """`run_landmark` for a problem of a loose folder."""
    registry(task.plugin_path)
    return run_landmark(task, pickle.loads(problem))


def _ray_resources(demand: Resources) -> dict[str, float]:
    asked = {"CPU": demand.cpus, "GPU": demand.gpus, "memory": float(demand.memory_bytes or 0)}
    return {k: v for k, v in asked.items() if v}


def _surrounding() -> str | None:
    """The cluster that this process was started in, as Ray tells it."""
    address = os.environ.get("RAY_ADDRESS", "")
    # The same variable may hold the address of a dashboard, which only the Jobs API can use.
    return None if address in ("", "local") or "http" in address else address


def require_listener(address: str, timeout_s: float = 5.0) -> None:
    """Refuse the address of a cluster that does not answer; Ray itself would try for many minutes.

    Raises:
        ConfigError: Nothing listens there, or it is no address.
    """
    if address == "auto":
        return  # Ray looks on this machine only, and says at once if there is none
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--address is {address!r}, expected HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address!r}: {error}. Start one, or leave --address out "
            "to use this machine"
        ) from error
