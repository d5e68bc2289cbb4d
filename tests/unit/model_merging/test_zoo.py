"""The zoo: real tasks without shared texts, experts that are built once."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from lamps_plugins._zoo import _experts, _tasks, _toy
from lamps_plugins._zoo._build import Zoo, ZooSpec, build, listing
from lamps_plugins.text_classification._splits import normalised

from lamps import plugins
from lamps.errors import ProblemError

TOY = ZooSpec(profile="toy")


def silent(line: str) -> None:
    """Says nothing."""


def test_toy_experts_learn_what_the_base_does_not_know(merging_cache: Path) -> None:
    for kind in ("full", "lora", "oft"):
        made = build(ZooSpec(kind=kind, profile="toy"), silent)
        assert tuple(made.experts) == tuple(_toy.TASKS)
        found = {str(r["folder"]): r for r in listing()}
        for folder in made.experts.values():
            facts: Any = found[str(folder)]
            assert facts["val_accuracy"] > 0.6 > facts["base_val_accuracy"]


def test_what_is_built_is_not_built_again(
    zoo: Callable[[str], Zoo], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = zoo("full")

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("an expert was trained again")

    monkeypatch.setattr(_experts, "train_expert", fail)
    assert build(TOY, silent) == made


def test_a_build_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path))
    trained: list[str] = []
    real = _experts.train_expert

    def stops(base: Any, task: Any, how: Any, **more: Any) -> Any:
        if len(trained) == 1:
            trained.append("stop")
            raise KeyboardInterrupt
        trained.append(task.name)
        return real(base, task, how, **more)

    monkeypatch.setattr(_experts, "train_expert", stops)
    with pytest.raises(KeyboardInterrupt):
        build(TOY, silent)
    assert not list((tmp_path / "zoo").glob(".new-*"))
    build(TOY, silent)
    assert trained == ["dish", "stop", "game", "trip"]


def _build_there(cache: str) -> list[str]:
    import os

    os.environ["LAMPS_CACHE"] = cache
    return [str(p) for p in build(TOY, silent).experts.values()]


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.map(_build_there, [str(tmp_path)] * 2)
    assert first == second
    assert len(list((tmp_path / "zoo").glob("*/lamps-expert.json"))) == 3


def test_another_seed_gives_other_experts(zoo: Callable[[str], Zoo]) -> None:
    one, two = zoo("full"), build(ZooSpec(profile="toy", seed=1), silent)
    assert set(one.experts.values()).isdisjoint(two.experts.values())


def test_unknown_words_are_refused() -> None:
    for call, culprit in (
        (lambda: _experts.recipe("lroa", "quick"), "Did you mean 'lora'"),
        (lambda: _experts.recipe("lora", "quik"), "Did you mean 'quick'"),
        (lambda: _tasks.task_names(9), "expected 2 to 8"),
        (lambda: _tasks.task_names(1), "expected 2 to 8"),
        (lambda: _tasks.zoo_task("r9"), "no task 'r9'. Known: election"),
    ):
        with pytest.raises(ProblemError, match=culprit):
            call()


def test_the_order_of_tasks_is_that_of_the_protocol() -> None:
    assert _tasks.task_names(2) == ("r8", "sent-tweet")
    assert _tasks.task_names(4) == ("r8", "sent-tweet", "ng-sci", "election")
    assert len(_tasks.task_names(8)) == 8


def test_command_builds_and_lists(merging_cache: Path) -> None:
    group = click.Group("lamps")
    manager = plugins.hooks()
    from lamps_plugins._zoo import hooks

    if not manager.is_registered(hooks):
        manager.register(hooks)
    manager.hook.lamps_register_commands(cli=group)
    run = CliRunner()
    done = run.invoke(group, ["zoo", "build", "--profile", "toy", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert [row["task"] for row in document["experts"]] == ["dish", "game", "trip"]
    listed = json.loads(run.invoke(group, ["zoo", "list", "--json"]).stdout)
    assert {r["folder"] for r in document["experts"]} <= {r["folder"] for r in listed["experts"]}
    table = run.invoke(group, ["zoo", "list"]).stdout.splitlines()
    assert table[0].split()[:3] == ["task", "kind", "profile"]
    assert len(table) == 1 + len(listed["experts"])
    for command in (["zoo"], ["zoo", "build"], ["zoo", "list"]):
        assert "Example" in run.invoke(group, [*command, "--help"]).output


def test_our_hooks_name_the_command() -> None:
    points = metadata.entry_points(group="lamps.hooks", name="zoo")
    assert [point.value for point in points] == ["lamps_plugins._zoo.hooks"]


@pytest.mark.slow
def test_real_tasks_share_no_text_between_pools(merging_cache: Path) -> None:
    try:
        data = {name: _tasks.zoo_task(name) for name in _tasks.TASKS}
    except ProblemError as error:
        pytest.skip(str(error))
    tests = {normalised(t) for task in data.values() for t in task.texts("test")}
    for name, task in data.items():
        train = {normalised(t) for t in task.texts("train")}
        val = {normalised(t) for t in task.texts("val")}
        assert len(val) == _tasks.MOST_VAL
        assert len(task.texts("test")) >= 900, name
        assert not tests & (train | val)
        assert not train & val
        assert task.n_labels == len(task.labels) > 1
    assert data["r8"].n_labels == 8
    tell_tale = re.compile(r"https?://\w|@\w")
    assert not [t for t in data["election"].texts("train") if tell_tale.search(t)]
    _tasks.zoo_parts.cache_clear()  # what the cache on disk gives is the same
    assert _tasks.zoo_task("r8").fingerprint() == data["r8"].fingerprint()
    few = _tasks.zoo_task("ng-sci", most_train=50)
    assert few.texts("train") == data["ng-sci"].texts("train")[:50]
