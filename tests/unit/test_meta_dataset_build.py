"""Measuring tasks with few, small candidates: resume, cost of one's own, export."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import lamps_meta_dataset
import numpy as np
import pytest
from lamps_meta_dataset import candidates, export, machine
from lamps_meta_dataset.build import (
    PREFIX,
    Place,
    Size,
    Turns,
    build,
    measure,
    own_cache,
    progress,
)
from lamps_meta_dataset.data import FILE
from lamps_meta_dataset.tasks import TASKS, read_task, sample
from lamps_plugins.text_classification._nets import depth

import lamps
from lamps.errors import ConfigError, ProblemError
from lamps.method import cache_dir
from lamps.plugins import registry
from lamps.scheduler.progress import Progress
from lamps.store import Store
from lamps.tables import card_path, check_table, read_tables

SMALL = Size(train=64, val=24, test=24, max_length=8, landmarks=3)
NAMES = ("bbc-news", "election-tweets")
POOL = [
    candidates.of("tfidf-logreg", max_features=100),
    candidates.of("static-logreg", model=candidates.M2V),
    candidates.of("linear-probe", model=candidates.L3, n_layers=1),
]
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_meta_dataset_build import POOL, SMALL, NAMES
from lamps_meta_dataset.build import Place, measure
measure(NAMES[0], Place(folder=Path(sys.argv[1])), candidates=POOL, size=SMALL, warm=False)
"""


def objectives(name: str, place: Place) -> dict[tuple[str, int], tuple[float, ...]]:
    """What does not depend on the clock, by candidate and landmark."""
    with lamps.open_store(place.url) as store:
        return {
            (trial.label, e.landmark): tuple(
                e.values[n] for n in ("val_error", "val_logloss", "size_bytes", "params")
            )
            for trial in store.run(PREFIX + name).trials()
            for e in trial.evaluations
        }


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(folder=tmp_path_factory.mktemp("meta"))
    for name in NAMES:
        measure(name, place, candidates=POOL, size=SMALL, warm=False)
    return place


def test_measure_takes_every_candidate_to_the_end(measured: Place):
    for name in NAMES:
        assert progress(name, measured.url) == ("finished", len(POOL) * (SMALL.landmarks + 1))


def test_finished_tasks_are_skipped(measured: Place):
    before = objectives(NAMES[0], measured)
    assert build(NAMES, measured) == []
    assert objectives(NAMES[0], measured) == before


def test_killed_measurement_resumes_to_the_same_numbers(measured: Place, tmp_path: Path):
    place = Place(folder=tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert child.stderr is not None
    for line in child.stderr:  # the first landmarks are done, more are to come
        if "landmark 1" in line:
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stderr.close()
    state, landmarks = progress(NAMES[0], place.url)
    assert state != "finished"
    assert landmarks >= 2
    measure(NAMES[0], place, candidates=POOL, warm=False)
    assert objectives(NAMES[0], place) == objectives(NAMES[0], measured)


def test_each_candidate_starts_without_what_others_cached(tmp_path: Path):
    with own_cache(tmp_path):
        turns = Turns("task", POOL)
        leftover = cache_dir() / "features" / "entry"
        for trial, kept in ((0, False), (0, True), (1, False), (1, True), (2, False)):
            leftover.mkdir(parents=True, exist_ok=True)
            turns(Progress(event="decide", trial=trial))
            assert leftover.exists() is kept


def test_own_cache_leaves_the_shared_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shared = tmp_path / "shared"
    (shared / "features" / "entry").mkdir(parents=True)
    monkeypatch.setenv("LAMPS_CACHE", str(shared))
    with own_cache(tmp_path / "build"):
        assert cache_dir() != shared
        assert (cache_dir() / "models").resolve() == shared / "models"
    assert cache_dir() == shared
    assert (shared / "features" / "entry").exists()


def test_pool_is_large_varied_and_valid():
    pool = candidates.pool()
    assert len({c.key for c in pool}) == len(pool) >= 42
    assert len({c.label for c in pool}) == len(pool)
    for candidate in pool:
        method = registry("").load_method(candidate.family, candidate.method)
        method.from_params(candidate.params)
    assert len({c.method for c in pool}) == 9


def test_every_probe_has_a_network_and_depth_of_its_own():
    models = registry("").load_family("text-classification").models()
    layers = {m.name: m for m in models.list()}
    probes = [c.params for c in candidates.pool() if c.method == "linear-probe"]
    seen = {(p["model"], depth(layers[p["model"]], p.get("n_layers", 0))) for p in probes}
    assert len(seen) == len(probes)


def test_unknown_task_is_refused_before_anything_is_measured(tmp_path: Path):
    place = Place(folder=tmp_path / "none")
    with pytest.raises(ConfigError, match="no task 'bbc'"):
        build(["bbc"], place)
    assert not place.folder.exists()


def test_export_keeps_every_number_and_no_text(measured: Place, tmp_path: Path):
    file = tmp_path / "out.parquet"
    missing = export.export(measured, file, [*NAMES, "fine-foods"])
    assert missing == ["fine-foods"]
    tables = read_tables(file)
    assert [t.name for t in tables] == list(NAMES)
    for table in tables:
        stored = objectives(table.name, measured)
        columns = table.columns(["val_error", "val_logloss", "size_bytes", "params"])
        assert table.values.shape[:2] == (len(POOL), SMALL.landmarks + 1)
        for (i, k), _ in np.ndenumerate(table.measured):
            label = table.candidates[i]
            assert tuple(table.values[i, k, columns]) == stored[label, k]
        assert (np.diff(table.values[:, :, table.columns(["cpu_s"])[0]]) >= 0).all()
        assert (table.cost_s > 0).all()
        assert not table.censored.any()
    card = json.loads(card_path(file).read_text(encoding="utf-8"))
    assert card["machine"] == machine.recorded(measured.folder)
    assert card["tasks"]["bbc-news"]["texts"].keys() == {"train", "val", "test"}
    assert [card["tasks"][name]["classes"] for name in NAMES] == [5, 2]


def test_the_two_clocks_change_places(measured: Place):
    with Store.open(measured.url) as store:
        run = PREFIX + NAMES[0]
        wall = export.table_of(store, run, clock="wall")
        cpu = export.table_of(store, run, clock="cpu")
    assert (wall.objectives[-1].name, cpu.objectives[-1].name) == ("cpu_s", "wall_s")
    assert np.allclose(wall.elapsed_s(), cpu.values[:, :, -1], rtol=1e-12)
    assert np.allclose(cpu.elapsed_s(), wall.values[:, :, -1], rtol=1e-12)


def test_export_without_a_measurement_says_what_to_do(tmp_path: Path):
    with pytest.raises(ProblemError, match="nothing was measured there; run build first"):
        export.export(Place(folder=tmp_path), tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())


def test_failed_landmark_is_measured_and_nan(tmp_path: Path):
    place = Place(folder=tmp_path)
    diverging = candidates.of(
        "full-finetune", model=candidates.L3, n_layers=1, lr=5e-4, head_lr=1e38, epochs=1
    )
    measure("election-tweets", place, candidates=[POOL[0], diverging], size=SMALL, warm=False)
    with Store.open(place.url) as store:
        table = export.table_of(store, PREFIX + "election-tweets")
    assert table.failed[1].sum() == 1
    assert np.isfinite(table.values[1, 0]).all()
    assert table.cost_s[1, table.failed[1]] > 0
    assert not table.censored[1]


def test_shipped_tables_are_whole():
    tables = lamps_meta_dataset.tables()
    assert FILE.stat().st_size < 1_000_000
    assert len(tables) >= 12
    for table in tables:
        assert not [f for f in check_table(table) if f.level == "error"], table.name
        assert len(table.candidates) >= 40
        assert table.fidelities[0] == 0.0
        assert table.fidelities[-1] == 1.0


@pytest.mark.parametrize("table", lamps_meta_dataset.other_tables(), ids=lambda t: t.name)
def test_tables_of_other_families_are_whole_and_apart(table):
    assert not [f for f in check_table(table) if f.level == "error"]
    assert table.family != "text-classification"
    assert table.name not in {t.name for t in lamps_meta_dataset.tables()}


def test_the_table_of_mergers_says_where_it_was_stopped():
    (table,) = lamps_meta_dataset.other_tables("model-merging")
    assert len(table.candidates) == 20
    assert table.censored.sum() == 1


def test_shipped_tables_are_split_into_training_and_held_out():
    held = {t.name for t in lamps_meta_dataset.tables(held_out=True)}
    rest = {t.name for t in lamps_meta_dataset.tables(held_out=False)}
    assert held == {t.name for t in TASKS.values() if t.held_out}
    assert not held & rest
    assert held | rest == {t.name for t in lamps_meta_dataset.tables()}


def test_shipped_files_hold_no_text_of_the_corpora():
    content = card_path(FILE).read_text(encoding="utf-8")
    content += "".join(c for t in lamps_meta_dataset.tables() for c in t.candidates)
    for name, task in TASKS.items():
        for text, _ in sample(read_task(name), 200, most_of_class=task.most_of_class):
            assert len(text) < 25 or text[:60] not in content


def test_command_line_lists_writes_and_refuses(tmp_path: Path):
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lamps_meta_dataset", *arguments],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    listed = call("list")
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in TASKS)
    file = tmp_path / "bbc.csv"
    for arguments in (("bbc-news",), ("task", "bbc-news")):
        assert call(*arguments, str(file)).returncode == 0
        assert file.stat().st_size > 1_000_000
        file.unlink()
    refused = call("build", "--tasks", "bbc", "--folder", str(tmp_path / "b"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("ConfigError: no task 'bbc'")
