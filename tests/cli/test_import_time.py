"""Starting is quick, because what is heavy is loaded where it is used."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "transformers", "ray", "sqlalchemy", "alembic", "optuna", "pandas", "sklearn")
HELP = "from lamps.cli.main import entry\ntry: entry(['{}'])\nexcept SystemExit: pass"
SLACK = 3.0  # the figures hold on an idle core; a test machine is not idle


def modules(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    "code",
    [
        "import lamps",
        HELP.format("--help"),
        HELP.format("--version"),
    ],
    ids=["import", "help", "version"],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert modules(code) & set(HEAVY) == set()


def test_help_of_search_shows_every_family_without_torch_or_ray() -> None:
    assert (
        modules(HELP.format("search', '--help")) & {"torch", "transformers", "ray", "sklearn"}
        == set()
    )


@pytest.mark.parametrize(
    ("words", "figure_s"),
    [(["-c", "import lamps"], 0.2), (["-m", "lamps", "--help"], 0.4)],
    ids=["import", "help"],
)
def test_the_time_to_start(
    words: list[str], figure_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    times, bare = [], []
    for _ in range(5):
        for store, arguments in ((bare, ["-c", "pass"]), (times, words)):
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            store.append(time.perf_counter() - started)
    with capsys.disabled():
        print(
            f"\n{' '.join(words)}: {min(times):.3f} s, of which the interpreter {min(bare):.3f} s "
            f"(figure: {figure_s} s)"
        )
    assert min(times) < SLACK * figure_s
