"""What all mergers share: landmarks, streams, checkpoints, export, and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import FAMILY, Merger, Update
from lamps_plugins.model_merging._problem import FIDELITIES, MergeProblem
from lamps_plugins.model_merging.average import Average
from lamps_plugins.model_merging.average import Params as AverageParams
from lamps_plugins.model_merging.task_arithmetic import Params, TaskArithmetic
from numpy.random import Generator

from lamps.errors import ContractError, MethodFailed, ProblemError
from lamps.method import MethodSpec, Tags

Toy = Callable[[str], MergeProblem]
SPEC = MethodSpec(family=FAMILY, summary="of a test", tags=Tags(data_free=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class None_:
    """Nothing to choose."""


def rng() -> Generator:
    return np.random.default_rng(5)


class Noise(Merger[None_]):
    """A rule that draws: what a group gets must not depend on the landmarks before."""

    spec = SPEC

    def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> torch.Tensor:
        noise = rng.normal(size=(len(group.names), *group.shape)).astype(np.float32)
        return torch.from_numpy(noise)


def same(a: Merger[Any], b: Merger[Any]) -> None:
    assert set(a.updates_) == set(b.updates_)
    for name, update in a.updates_.items():
        assert torch.equal(update, b.updates_[name]), name


@pytest.mark.parametrize("kind", ["full", "lora", "oft"])
def test_average_is_the_mean_of_weights(toy: Toy, kind: str) -> None:
    problem = toy(kind)
    made = Average(AverageParams()).partial_fit(problem, 1.0, rng=rng())
    groups = (*problem.groups, *problem.vectors)
    assert set(made.updates_) == {name for group in groups for name in group.names}
    for group in groups:
        mean = (problem.base_weights(group) + problem.deltas(group)).mean(0)
        for i, name in enumerate(group.names):
            torch.testing.assert_close(
                problem.base_weights(group)[i] + made.updates_[name], mean[i]
            )


def test_task_arithmetic_with_1_over_k_is_the_average(toy: Toy) -> None:
    problem = toy("full")
    average = Average(AverageParams()).partial_fit(problem, 1.0, rng=rng())
    summed = TaskArithmetic(Params(scale=1 / 3)).partial_fit(problem, 1.0, rng=rng())
    for name, update in average.updates_.items():
        torch.testing.assert_close(summed.updates_[name], update)


def test_first_landmark_merges_its_groups_only(toy: Toy) -> None:
    problem = toy("full")
    made = Average(AverageParams())
    assert not made.partial_fit(problem, 0.0, rng=rng()).updates_
    first = {name for group in problem.groups if group.first for name in group.names}
    assert set(made.partial_fit(problem, FIDELITIES[1], rng=rng()).updates_) == first


def test_streams_belong_to_groups_and_not_to_landmarks(toy: Toy) -> None:
    problem = toy("full")
    steps, leap = Noise(None_()), Noise(None_())
    for fidelity in FIDELITIES:
        steps.partial_fit(problem, fidelity, rng=rng())
    same(steps, leap.partial_fit(problem, 1.0, rng=rng()))
    twin = Noise(None_())
    twin.partial_fit(problem, FIDELITIES[1], rng=rng())
    resumed = Noise(None_())
    resumed.load_state_dict(twin.state_dict(), problem)
    same(steps, resumed.partial_fit(problem, 1.0, rng=rng()))
    drawn = [steps.updates_[name].flatten()[0].item() for name in problem.groups[0].names]
    assert len(set(drawn)) == len(drawn)


def test_labels_are_counted_once_for_each_text(toy: Toy) -> None:
    class Reader(Noise):
        """Looks at labels twice."""

        def merge_all(
            self, problem: MergeProblem, groups: Sequence[Group], rng: Generator
        ) -> Iterator[Update]:
            """See `Merger.merge_all`."""
            for n in (5, 3):
                for task in problem.tasks:
                    self.labelled(problem, task, n)
            return super().merge_all(problem, groups, rng)

    problem = toy("full")
    made = Reader(None_()).partial_fit(problem, 0.5, rng=rng())
    assert made.evaluate(problem).objectives["labels"] == 15.0
    twin = Reader(None_())
    twin.load_state_dict(made.state_dict(), problem)
    assert twin.labels_ == {"dish": 5, "game": 5, "trip": 5}


def test_answers_of_an_earlier_landmark_are_taken_over(toy: Toy) -> None:
    problem = toy("full")
    steps, leap = Average(AverageParams()), Average(AverageParams())
    for fidelity in FIDELITIES[:3]:
        steps.partial_fit(problem, fidelity, rng=rng()).evaluate(problem)
    half = {task: problem.n_val(task, 0.5) for task in problem.tasks}
    assert {task: len(found) for task, found in steps.answers_.items()} == half
    resumed = Average(AverageParams())
    resumed.load_state_dict(steps.state_dict(), problem)
    whole = leap.partial_fit(problem, 1.0, rng=rng()).evaluate(problem).signals
    for made in (steps, resumed):
        found = made.partial_fit(problem, 1.0, rng=rng()).evaluate(problem).signals
        assert found == whole
    # New weights make old answers void.
    early = Average(AverageParams()).partial_fit(problem, FIDELITIES[1], rng=rng())
    early.evaluate(problem)
    early.answers_ = {task: np.zeros((1, 3), np.float32) for task in problem.tasks}
    assert not early.partial_fit(problem, 0.5, rng=rng()).answers_


def test_wrong_updates_are_refused(toy: Toy) -> None:
    problem = toy("full")

    class Short(Noise):
        """Forgets the layers."""

        def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> torch.Tensor:
            return torch.zeros(group.shape)

    class Infinite(Noise):
        """Divides by zero."""

        def merge(self, problem: MergeProblem, group: Group, rng: Generator) -> torch.Tensor:
            return torch.zeros(len(group.names), *group.shape) / 0.0

    class Empty(Merger[None_]):
        """Has no rule."""

        spec = SPEC

    for kind, error, words in (
        (Short, ContractError, r"shape \[32, 32\] .* expected \[2, 32, 32\]"),
        (Infinite, MethodFailed, "not finite"),
        (Empty, ContractError, "neither merge nor merge_all"),
    ):
        with pytest.raises(error, match=words):
            kind(None_()).partial_fit(problem, 1.0, rng=rng())
    with pytest.raises(MethodFailed, match="never fitted"):
        Noise(None_()).evaluate(problem)
    with pytest.raises(ProblemError, match="no landmark"):
        Noise(None_()).partial_fit(problem, 0.3, rng=rng())


def exported(folder: Path, task: str, texts: Sequence[str], limit: int) -> np.ndarray:
    """Logits of an exported task by plain transformers, one text at a time."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    net = AutoModelForSequenceClassification.from_pretrained(folder / task).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / task)
    with torch.no_grad():
        rows = [
            net(**tokenizer(t, truncation=True, max_length=limit, return_tensors="pt")).logits[0]
            for t in texts
        ]
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("kind", ["full", "lora", "oft"])
def test_export_opens_with_plain_transformers(toy: Toy, tmp_path: Path, kind: str) -> None:
    problem = toy(kind)
    made = Average(AverageParams()).fit(problem, rng=rng())
    made.save(problem, tmp_path)
    for task in problem.tasks:
        texts = problem.task(task).texts("val")[:8]
        ours = problem.logits(made.network(problem, task), task, "val", 8)
        np.testing.assert_allclose(exported(tmp_path, task, texts, 16), ours, atol=1e-5)
    shards = [tmp_path / task / "model-00001.safetensors" for task in problem.tasks]
    assert len({file.stat().st_ino for file in shards}) == 1
    blobs = {f.stat().st_ino: f.stat().st_size for f in tmp_path.rglob("*.safetensors")}
    assert problem.size_bytes < sum(blobs.values()) < 1.25 * problem.size_bytes


def test_export_answers_by_task(toy: Toy, tmp_path: Path) -> None:
    from lamps_plugins.model_merging._problem import FAMILY as family
    from lamps_plugins.text_classification._problem import FAMILY as text_family

    problem = toy("full")
    made = Average(AverageParams()).fit(problem, rng=rng())
    folder = tmp_path / "merge"
    folder.mkdir()
    made.save(problem, folder)
    rows = tmp_path / "rows.csv"
    rows.write_text("text\n" + "\n".join(problem.task("game").texts("val")[:5]) + "\n")
    answers = list(family.predict(folder, rows, {"task": "game"}))
    assert answers == list(text_family.predict(folder / "game", rows, {}))
    logits = problem.logits(made.network(problem, "game"), "game", "val", 5)
    labels = problem.task("game").labels
    assert [a["label"] for a in answers] == [labels[i] for i in logits.argmax(axis=1)]
    with pytest.raises(ProblemError, match="answers 3 tasks"):
        list(family.predict(folder, rows, {}))
    with pytest.raises(ProblemError, match=r"no task 'gmae'.*Did you mean 'game'"):
        list(family.predict(folder, rows, {"task": "gmae"}))
    family.describe_export(folder, {"test_error": 0.25})
    assert "test_error 0.25" in (folder / "README.md").read_text()


def test_merging_straight_into_an_export_equals_fit_and_save(toy: Toy, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    problem = toy("full")
    fitted, straight = tmp_path / "fitted", tmp_path / "straight"
    fitted.mkdir()
    straight.mkdir()
    Noise(None_()).fit(problem, rng=rng()).save(problem, fitted)
    made = Noise(None_())
    made.merge_into(problem, straight, rng=rng())
    assert made.fidelity_ is None
    files = sorted(p.relative_to(fitted) for p in fitted.rglob("*.safetensors"))
    assert files == sorted(p.relative_to(straight) for p in straight.rglob("*.safetensors"))
    for file in files:
        ours, theirs = load_file(straight / file), load_file(fitted / file)
        assert set(ours) == set(theirs)
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_methods_that_read_texts_cannot_merge_straight(toy: Toy, tmp_path: Path) -> None:
    class Reader(Noise):
        """Reads texts."""

        spec = MethodSpec(family=FAMILY, summary="of a test")

    with pytest.raises(ProblemError, match="reads texts"):
        Reader(None_()).merge_into(toy("full"), tmp_path, rng=rng())


_MERGE = """
import sys
from pathlib import Path
import numpy as np, torch
from lamps_plugins.model_merging._opening import task_problem
from lamps_plugins._zoo._toy import toy_parts
from lamps_plugins.model_merging._problem import MergeProblem
from lamps_plugins.model_merging._sets import open_set
from lamps_plugins.model_merging.average import Average, Params
import transformers, safetensors.torch, peft
from lamps_plugins.model_merging import _export
from transformers import AutoModelForSequenceClassification, AutoTokenizer
root, out = map(Path, sys.argv[1:])
names = ("dish", "game", "trip")
def merge(parent, target):
    experts = open_set(parent / "base", {n: parent / n for n in names}, max_group_bytes=1)
    tasks = [task_problem(n, toy_parts(n, 0), 16, 0) for n in names]
    problem = MergeProblem(name="large", experts=experts, tasks=tasks, source={})
    target.mkdir()
    Average(Params()).merge_into(problem, target, rng=np.random.default_rng(0))
merge(root / "small", out / "small")           # imports and first-use costs
Path("/proc/self/clear_refs").write_text("5")
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(l for l in lines if l.startswith("VmHWM")).split()[1]) * 1024
before = peak()
merge(root / "large", out / "large")
print(peak() - before)
"""


def test_peak_memory_is_that_of_a_few_layers(
    own: Callable[[str], dict[str, Path]], tmp_path: Path
) -> None:
    """Experts of 12 large and 24 smaller matrices are merged in the memory of a few."""
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForSequenceClassification

    at = own("full")
    names = ("dish", "game", "trip")
    layer_bytes = 4 * 512 * 2048
    for size in ("small", "large"):
        for name in ("base", *names):
            folder = tmp_path / size / name
            folder.mkdir(parents=True)
            for file in at[name].iterdir():
                if file.suffix == ".json":
                    (folder / file.name).write_bytes(file.read_bytes())
            config = AutoConfig.from_pretrained(at["dish"])
            if name != "base":
                config.id2label = AutoConfig.from_pretrained(at[name]).id2label
            if size == "large":
                config.hidden_size, config.intermediate_size = 512, 2048
                config.num_hidden_layers, config.num_attention_heads = 6, 8
            config.save_pretrained(folder)
            with torch.device("meta"):
                net = AutoModelForSequenceClassification.from_config(config)
            seeded = torch.Generator().manual_seed(names.index(name) + 1 if name in names else 0)
            common = torch.Generator().manual_seed(0)
            save_file(
                {
                    key: 0.1 * torch.randn(value.shape, generator=common)
                    + (0.01 * torch.randn(value.shape, generator=seeded) if name != "base" else 0)
                    for key, value in net.state_dict().items()
                },
                folder / "model.safetensors",
                {"format": "pt"},
            )
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _MERGE, str(tmp_path), str(tmp_path / "out")],
        capture_output=True, text=True, check=False, timeout=200,
        # What is held counts here, not what the allocator keeps for the next time.
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    peak = int(done.stdout.split()[-1])
    checkpoint = (tmp_path / "large" / "base" / "model.safetensors").stat().st_size
    assert checkpoint > 18 * layer_bytes
    # Base and K = 3 experts of one layer, twice while they are stacked, and what is written.
    assert peak < 11 * layer_bytes, f"{peak / layer_bytes:.1f} layers"
    assert peak < checkpoint
    assert (tmp_path / "out" / "large" / "dish" / "model.safetensors.index.json").is_file()
