"""Searches as jobs of a cluster, through Ray's Jobs API: one job per name, however often asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lamps.artifacts import safe_name
from lamps.errors import ConfigError, MissingExtra, StateError
from lamps.scheduler.ray import require_listener
from lamps.scheduler.ray_token import refuse_passwords, token_path

VERBS = ("search", "resume", "replicate")
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_AGAIN, _OF = "~", "+"  # in no name that `safe_name` gives, so that no run is another's attempt
_EXIT = re.compile(r"exit code (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as Ray has it.

    Args:
        id: ``lamps-NAME``, or ``lamps-NAME~2`` and so on for what was submitted again.
        status: Ray's word: PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED.
        message: What Ray says about the end.
        exit_code: Of the command, where it has ended and Ray knows it.
        entrypoint: Its command line.
        fresh: Whether this call has submitted it.
    """

    id: str
    status: str
    entrypoint: str = ""
    message: str = ""
    exit_code: int | None = None
    fresh: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.status in _ENDED


class Jobs:
    """The Jobs API of one cluster.

    Args:
        address: Of the dashboard, such as ``http://127.0.0.1:8265``.

    Raises:
        ConfigError: Nobody answers there, or the token is missing or wrong.
    """

    def __init__(self, address: str = "http://127.0.0.1:8265") -> None:
        try:
            from ray.exceptions import AuthenticationError
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise MissingExtra("jobs on a cluster", "ray", "ray") from error
        if not address.startswith(("http://", "https://")):
            raise ConfigError(
                f"the address of a dashboard is {address!r}, expected http://HOST:PORT, such as "
                "http://127.0.0.1:8265"
            )
        self.address = address
        if not (port := re.search(r":\d+$", address.rstrip("/"))):
            raise ConfigError(f"{address!r} names no port; Ray's dashboard has 8265 by default")
        host = address.split("://", 1)[1].rstrip("/").removesuffix(port.group(0))
        try:
            require_listener(f"{host}{port.group(0)}")
        except ConfigError as error:
            raise ConfigError(
                f"no dashboard answers at {address} ({error.__cause__ or error}). Start a head "
                "with: lamps cluster start --head, or name another dashboard with --dashboard URL "
                "(an SSH tunnel makes a remote one local)"
            ) from error
        try:
            self._client = JobSubmissionClient(address)
        except (RuntimeError, ConnectionError, AuthenticationError) as error:
            raise ConfigError(
                f"the dashboard at {address} refuses: {_line(error)}. The token is looked for in "
                f"RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH and {token_path()}; set RAY_AUTH_MODE=token"
            ) from error

    def submit(
        self,
        words: Sequence[str],
        *,
        python: str = sys.executable,
        working_dir: str | None = None,
        cpus: float = 0.0,
    ) -> Job:
        """Run ``lamps WORDS`` on the cluster, unless that is done or being done already.

        While a job of that name runs, it is the answer, whatever the words; one that has succeeded
        is the answer to the same words only.

        Args:
            words: A command line of lamps: ``search ... --name NAME --store URL``, ``resume NAME
                --store URL`` or ``replicate METHOD --store URL``.
            python: The interpreter on the cluster, an absolute path: a bare ``python`` would be
                whatever the head has on its path.
            working_dir: A folder that travels with the job (100 MiB at most) and is its working
                folder.
            cpus: CPUs that the job's own process occupies beside those of its landmarks.

        Raises:
            ConfigError: The command line cannot be a job: no name, no store, a secret in it.
        """
        name = job_name(words)
        base = f"lamps-{name}"
        again = ["--or-resume"] if words[0] == "search" and "--or-resume" not in words else []
        entrypoint = shlex.join([python, "-m", "lamps", *words, *again])
        # Ray's job id is the key: the newest attempt decides whether another one is wanted.
        known = self._attempts(base)
        if known:
            newest = known[-1]
            done = newest.status == "SUCCEEDED" and newest.entrypoint == entrypoint
            if done or not newest.ended:
                return newest
        attempt = _attempt(known[-1].id, base) + 1 if known else 1
        runtime: dict[str, Any] = {"working_dir": working_dir} if working_dir else {}
        try:
            identity = self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=base if attempt == 1 else f"{base}{_AGAIN}{attempt}",
                runtime_env=runtime or None,
                metadata={"lamps": name},
                entrypoint_num_cpus=cpus or None,
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"the cluster does not take the job: {_line(error)}") from error
        return Job(id=identity, status="PENDING", entrypoint=entrypoint, fresh=True)

    def raw(self) -> list[Any]:
        """All jobs of the cluster as Ray describes them."""
        return list(self._client.list_jobs())

    def all(self) -> list[Job]:
        """The jobs that lamps has submitted, oldest first."""
        found = [d for d in self.raw() if (d.submission_id or "").startswith("lamps-")]
        found.sort(key=lambda d: d.start_time or 0)
        return [_job(d) for d in found]

    def get(self, identity: str) -> Job:
        """One job by its id.

        Raises:
            StateError: There is none of that id.
        """
        try:
            return _job(self._client.get_job_info(identity))
        except RuntimeError as error:
            known = ", ".join(j.id for j in self.all()) or "none"
            raise StateError(
                f"no job {identity!r} on {self.address}; there are: {known}"
            ) from error

    def find(self, text: str) -> Job:
        """A job by its id, or the newest one of a run by the run's name.

        Raises:
            StateError: There is none.
        """
        named = self._attempts(f"lamps-{safe_name(text)}")
        return named[-1] if named else self.get(text)

    def _attempts(self, base: str) -> list[Job]:
        """The jobs of a name, first attempt first."""
        found = [j for j in self.all() if j.id.partition(_AGAIN)[0] == base]
        return sorted(found, key=lambda job: _attempt(job.id, base))

    def follow(self, identity: str, write: Callable[[str], None]) -> Job:
        """Hand on what the job prints until it ends.

        Args:
            identity: The job's id.
            write: Takes pieces of text as they come.
        """
        # Ray's client tells with level INFO that the stream has ended.
        logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)

        async def stream() -> None:
            async for piece in self._client.tail_job_logs(identity):
                write(piece)

        with contextlib.suppress(ConnectionError):  # the job's own status says how it ended
            asyncio.run(stream())
        return self.get(identity)

    def logs(self, identity: str) -> str:
        """All that a job has printed so far."""
        return str(self._client.get_job_logs(self.get(identity).id))

    def stop(self, identity: str) -> bool:
        """Ask a job to end; a search stops gently and can be resumed. False if it had ended."""
        job = self.get(identity)
        return False if job.ended else bool(self._client.stop_job(job.id))


def job_name(words: Sequence[str]) -> str:
    """The name under which a command line runs once.

    Raises:
        ConfigError: It cannot be a job.
    """
    if not words or words[0] not in VERBS:
        raise ConfigError(
            f"a job runs one of: lamps {', lamps '.join(VERBS)}; got {' '.join(words[:2]) or '-'}"
        )
    refuse_passwords(words)
    store = _option(words, "--store")
    if store is None:
        raise ConfigError(
            "a job needs --store URL, so that its results can be found from anywhere"
        )
    if re.fullmatch(r"sqlite:///[^/].*", store):
        raise ConfigError(
            f"--store {store} is relative to a folder that ends with the job; "
            "give an absolute path, or a PostgreSQL URL"
        )
    name = _option(words, "--name") if words[0] == "search" else _positional(words)
    if not name:
        raise ConfigError(
            "a search as a job needs --name NAME: a second submission of the same name joins the "
            "first"
            if words[0] == "search"
            else f"lamps {words[0]} names nothing to work on"
        )
    # A replication and a run may have one name, but are two things.
    return f"replicate{_OF}{safe_name(name)}" if words[0] == "replicate" else safe_name(name)


def _option(words: Sequence[str], flag: str) -> str | None:
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _positional(words: Sequence[str]) -> str | None:
    return words[1] if len(words) > 1 and not words[1].startswith("-") else None


def _attempt(identity: str, base: str) -> int:
    return int(identity.removeprefix(base).lstrip(_AGAIN) or 1)


def _job(details: Any) -> Job:
    message = details.message or ""
    code = getattr(details, "driver_exit_code", None)
    if code is None and (found := _EXIT.search(message)):
        code = int(found.group(1))
    return Job(
        id=str(details.submission_id),
        status=str(getattr(details.status, "value", details.status)),
        entrypoint=str(details.entrypoint or ""),
        message=" ".join(message.split()),
        exit_code=code,
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
