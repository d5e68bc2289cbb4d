"""Which command lines may be jobs, under what name, and which secrets stay out of them."""

from __future__ import annotations

import re
import socket

import pytest

from lamps.cluster.jobs import Jobs, job_name
from lamps.errors import ConfigError

GOOD = ["search", "d.csv", "--name", "r", "--store", "postgresql://lamps@db/lamps"]


def test_the_name_of_a_run_is_the_name_of_its_job() -> None:
    assert job_name(GOOD) == "r"
    spaced = job_name(["search", "d.csv", "--name=a b/c", "--store=sqlite:////data/l.db"])
    assert re.fullmatch(r"a_b_c-[0-9a-f]{6}", spaced)  # not that of a run called a_b_c
    assert job_name(["resume", "r", "--store", "postgresql://db/lamps"]) == "r"
    assert job_name(["replicate", "lora", "--store", "postgresql://db/lamps"]) == "replicate+lora"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["front", "r"], "lamps search, lamps resume, lamps replicate; got front r"),
        (["search", "d.csv", "--name", "r"], "a job needs --store URL"),
        (GOOD[:2] + GOOD[4:], "needs --name NAME"),
        (["resume", "--store", "postgresql://db/l"], "lamps resume names nothing to work on"),
        ([*GOOD[:4], "--store", "sqlite:///lamps.db"], "relative to a folder that ends with"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        job_name(words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "word",
    [
        "postgresql://lamps:hunter2@db/lamps",
        "--store=postgresql+psycopg://lamps:hunter2@db:5432/lamps",
        "s3://key:hunter2@bucket/lamps",
        "postgresql://:hunter2@db/lamps",
    ],
)
def test_a_password_never_becomes_part_of_a_job(word: str) -> None:
    with pytest.raises(ConfigError, match="holds a password") as caught:
        job_name([*GOOD, "--artifacts", word])
    assert "hunter2" not in str(caught.value)
    assert "pgpass" in str(caught.value)


@pytest.mark.parametrize("address", ["here", "127.0.0.1:8265", "http://here"])
def test_what_is_no_dashboard_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="dashboard"):
        Jobs(address)


def test_where_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConfigError, match="no dashboard answers at http"):
        Jobs(f"http://127.0.0.1:{port}")
