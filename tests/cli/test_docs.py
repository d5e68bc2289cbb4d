"""Every command is documented, and the documentation is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from _lamps_cli import commands, run

README = Path(__file__).parents[2] / "README.md"
ALL = {" ".join(words): command for words, command in commands()}
LEAVES = {name: c for name, c in ALL.items() if not isinstance(c, click.Group)}


def example(command: click.Command) -> list[str]:
    """The lines of a command's example."""
    text = (command.help or "").partition("Example:")[2]
    return [line.strip() for line in text.splitlines() if line.strip().startswith("lamps ")]


@pytest.mark.parametrize("name", ALL)
def test_help_says_what_it_does_and_exits_0(name: str) -> None:
    answer = run(*name.split(), "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"Usage: lamps {name}" in answer.out
    assert len((ALL[name].help or "").split("\n")[0]) > 15


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_an_example_that_it_accepts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best-model").mkdir()  # the folder that the example of predict reads
    lines = example(LEAVES[name])
    assert lines
    for line in lines:
        words = shlex.split(line)
        assert words[1 : 1 + len(name.split())] == name.split()
        LEAVES[name].make_context(name, words[1 + len(name.split()) :])


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_is_explained(name: str) -> None:
    command = LEAVES[name]
    with click.Context(command) as context:
        options = [p for p in command.get_params(context) if isinstance(p, click.Option)]
    assert [o.name for o in options if not o.help] == []


def test_the_overview_lists_every_command_with_a_line() -> None:
    answer = run("--help")
    for name in {words.split()[0] for words in ALL}:
        assert re.search(rf"^  {name}  +\S", answer.out, re.MULTILINE), name


def test_no_command_at_all_prints_the_overview() -> None:
    answer = run()
    assert "Commands:" in answer.out + answer.err
    assert answer.code in (0, 2)


def test_the_readme_mentions_every_command() -> None:
    text = README.read_text(encoding="utf-8")
    if not text.strip():
        pytest.skip("README.md has no text yet")
    assert [name for name in LEAVES if f"lamps {name}" not in text] == []
