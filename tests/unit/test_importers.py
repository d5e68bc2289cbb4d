"""Importers of public tables: small samples always, real local copies where they are.

``LAMPS_PUBLIC_TABLES`` names a folder with a sub-folder per source, as they were published.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from lamps_meta_dataset.hooks import lamps_register_table_importers

from lamps.errors import ProblemError
from lamps.tables import Imported, LandmarkTable, check_table, read_tables, write_tables

from ._tables import assert_same

IMPORTERS = lamps_register_table_importers()
PUBLIC = os.environ.get("LAMPS_PUBLIC_TABLES", "")
FOLDERS = {
    "pythia": "pythia-checkpoint-evals",
    "pythia-mmlu": "pythia-checkpoint-evals",
    "gemstones": "gemstones-scaling",
    "gemstones-loss": "gemstones-scaling",
    "taskset": "taskset-text-rnn",
    "matrix": "two-phase-selection",
    "observational": "observational-scaling",
    "open-llm": "open-llm-leaderboard-sloth",
    "scandeval": "scandeval-leaderboard",
}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path.parent


def pythia(task: str) -> str:
    rows = ["model,params,shots,task,metric,step,value"]
    for model, params in (("pythia-70m", 70_426_624), ("pythia-12b", 11_846_072_320)):
        for step, value in ((0, 0.25), (1, 0.25), (512, 0.375), (143_000, 0.75)):
            rows.append(f"{model},{params},0,{task},acc,{step},{value}")
            rows.append(f"{model},{params},0,{task},acc_norm,{step},0.1")
            rows.append(f"{model},{params},5,{task},acc,{step},0.9")
            if task == "lambada_openai":
                rows.append(f"{model},{params},0,{task},ppl,{step},{100 * value}")
    return "\n".join(rows) + "\n"


STEP = (
    '{{"run_name":"PyGemma-{0}_pretrain","params_active_precise":{1},"width":1,"depth":1,'
    '"tokens":{2},"step":{3},"num_nodes":{4},"seconds_per_step":{5},"final_loss":{6}}}'
)


def gemstones(folder: Path) -> Path:
    steps = [
        STEP.format(name, params, 4_194_304 * step, step, nodes, seconds, 9.0 - step / 83_475)
        for name, params, nodes, seconds in (("768x3", 1e8, 16, 0.5), ("256x80", 1.1e8, 8, 2.0))
        for step in range(477, 83_476, 477)
    ]
    write(folder / "wandb_df_for_fitting_hot_100b+_477.jsonl", "\n".join(steps))
    rows = ["checkpoint,arc:easy,mmlu"]
    for name in ("768x3", "256x80"):
        rows += [f"Gemstone-{name}-step_00002385,0.25,0.3", f"Gemstone-{name}-main,0.75,"]
    rows.append("Gemstone-1x1-main,0.5,0.5")
    return write(folder / "light_eval.csv", "\n".join(rows))


def taskset(folder: Path) -> Path:
    header = ["config", "learning_rate", *(f"valid_{k}" for k in range(51)), "test_final"]
    fine = ["0", "0.1", *(repr(2.0 - k / 50) for k in range(51)), "0"]
    diverged = ["1", "9.0", "1.5", "1.25", *["nan"] * 10, "0.5", *["nan"] * 38, "nan"]
    rows = [header, fine, diverged]
    return write(folder / "imdb_x.csv.gz", "\n".join(",".join(r) for r in rows))


def one(name: str, path: Path) -> Imported:
    return IMPORTERS[name].read(path)


def by_name(found: Imported) -> dict[str, LandmarkTable]:
    return {t.name: t for t in found.tables}


def test_pythia_checkpoints(tmp_path: Path) -> None:
    text = pythia("arc_easy") + pythia("lambada_openai").split("\n", 1)[1]
    found = one("pythia", write(tmp_path / "pythia_v1_curves.csv", text))
    tables = by_name(found)
    assert list(tables) == ["pythia/arc_easy", "pythia/lambada_openai"]
    arc, lambada = tables.values()
    assert [o.name for o in arc.objectives] == ["error", "params"]
    assert [o.name for o in lambada.objectives] == ["error", "ppl", "params"]
    assert arc.values[0, :, 0].tolist() == [0.75, 0.75, 0.625, 0.25]
    assert lambada.values[0, :, 1].tolist() == [25.0, 25.0, 37.5, 75.0]
    assert arc.fidelities == pytest.approx(np.array([0, 1, 512, 143_000]) / 143_000)
    assert arc.size.tolist() == [70_426_624, 11_846_072_320]
    # 6 N D operations at 1e15 a second, and an evaluation of 2 N x 1e6 at each checkpoint.
    params, tokens = 70_426_624, 143_000 * 1024 * 2048
    expected = (6 * params * tokens + 4 * 2 * params * 1e6) / 1e15
    assert np.nansum(arc.cost_s[0]) == pytest.approx(expected)
    assert arc.cost_s[0, 0] == pytest.approx(2 * params * 1e6 / 1e15)
    assert "cost modelled" in arc.source
    assert (arc.family, arc.licence, arc.unit) == (
        "pythia", "Apache-2.0", "share of 143000 steps",
    )  # fmt: skip


def test_pythia_mmlu_is_gzipped_and_one_table_a_task(tmp_path: Path) -> None:
    text = pythia("hendrycksTest-anatomy")
    found = one("pythia-mmlu", write(tmp_path / "pythia_v1_mmlu_curves.csv.gz", text))
    assert list(by_name(found)) == ["pythia-mmlu/anatomy"]


def test_gemstones_have_real_seconds(tmp_path: Path) -> None:
    found = one("gemstones", gemstones(tmp_path))
    tables = by_name(found)
    table = tables["gemstones/arc_easy"]
    assert table.candidates == ("Gemstone-768x3", "Gemstone-256x80")
    assert table.values[:, :, 0].tolist() == [[0.75, 0.25]] * 2
    assert np.cumsum(table.cost_s, axis=1)[0].tolist() == [2385 * 8.0, 83_475 * 8.0]
    assert np.cumsum(table.cost_s, axis=1)[1].tolist() == [2385 * 16.0, 83_475 * 16.0]
    # A benchmark without its last value ends early.
    assert tables["gemstones/mmlu"].fidelities.tolist() == [1.0]
    assert found.notes == ["light_eval.csv: 1 checkpoints of unknown models left out"]


def test_gemstone_losses_are_thinned_and_say_so(tmp_path: Path) -> None:
    (table,) = one("gemstones-loss", gemstones(tmp_path)).tables
    assert table.name == "gemstones-loss/pretraining"
    assert table.measured.shape == (2, 28)
    assert table.measured.all()
    assert "thinned to 28 points" in table.source
    assert table.fidelities[0] == pytest.approx(477 / 83_475)
    # What lies between the kept points was paid for.
    assert np.nansum(table.cost_s[0]) == pytest.approx(83_475 * 8.0)


def test_a_diverged_configuration_stays_failed(tmp_path: Path) -> None:
    (table,) = one("taskset", taskset(tmp_path)).tables
    assert table.name == "taskset/imdb_x"
    assert [o.name for o in table.objectives] == ["valid_loss"]
    assert table.values[0, :, 0].tolist() == [2.0 - k / 50 for k in range(51)]
    assert table.failed[1].tolist() == [False] * 2 + [True] * 49
    assert not table.censored.any()
    assert table.cost_s[0] == pytest.approx([0.02, *[1.02] * 50])


def test_matrices_are_one_fidelity_tables(tmp_path: Path) -> None:
    write(tmp_path / "NLP" / "matrix.txt", "a--x\tb\n0.5\t-0.1\n0.7\t0.9\n0.7\n")
    write(tmp_path / "NLP" / "datasets.txt", "cola\nglue/sst2\nrte")
    found = one("matrix", tmp_path)
    tables = by_name(found)
    assert list(tables) == ["matrix-nlp/cola", "matrix-nlp/glue_sst2"]
    assert tables["matrix-nlp/cola"].candidates == ("a/x", "b")
    assert tables["matrix-nlp/cola"].minimised().tolist() == [[[-0.5]], [[0.1]]]
    assert [(b.line, b.reason) for b in found.bad] == [(4, "1 scores, the header has 2 models")]
    write(tmp_path / "NLP" / "datasets.txt", "cola")
    with pytest.raises(ProblemError, match=r"3 lines of scores, its datasets\.txt names 1"):
        one("matrix", tmp_path)


def test_models_without_size_or_score_are_left_out_and_counted(tmp_path: Path) -> None:
    header = "Model,Model Family,Model Size (B),Pretraining Data Size (T),FLOPs (1E21),MMLU,GSM8K"
    rows = "a,x,7.0,2,84,0.4,\nb,x,13.0,2,156,0.5,0.2\ngpt,y,,,,0.9,0.9\nc,x,1.0,2,1,0.1,0.1\n"
    write(tmp_path / "base_llm_benchmark_eval.csv", f"{header}\n{rows}")
    write(tmp_path / "base_llm_leaderboard_v2_eval.csv", "Model,bbh\na,0.3\nb,0.4\nz,0.9\n")
    found = one("observational", tmp_path)
    tables = by_name(found)
    assert tables["observational-base/mmlu"].candidates == ("a", "b", "c")
    assert tables["observational-base/gsm8k"].candidates == ("b", "c")
    assert "2 of 4 models without size or score left out" in (
        tables["observational-base/gsm8k"].source
    )
    assert tables["observational-leaderboard_v2/bbh"].size.tolist() == [7e9, 13e9]
    assert len(found.notes) == 3
    mmlu = tables["observational-base/mmlu"]
    directions = {o.name: o.direction for o in mmlu.objectives}
    assert directions == {"score": "maximize", "params": "minimize"}


def test_the_open_llm_leaderboard_with_its_odd_headers(tmp_path: Path) -> None:
    text = 'T,Model,Average ⬆️,IFEval,Type,#Params (B)\n💬,a/b,1,80.5,"chat, ""x""",77\n'
    text += "💬,c,1,70,x,7\n💬,c,1,71,x,7\n💬,d,1,70,x,0\n"
    found = one("open-llm", write(tmp_path / "open-llm-leaderboard_new.csv", text))
    (table,) = found.tables
    assert table.candidates == ("a/b", "c")
    assert table.minimised(["score"]).tolist() == [[[-80.5]], [[-70.0]]]
    assert [b.line for b in found.bad] == [4]


def test_scandeval_has_three_objectives(tmp_path: Path) -> None:
    header = "model,parameters_M,vocab_k,context,speed,dataset,primary,primary_ci\n"
    rows = 'a 🙂,110,1,512,1000,dansk,50,1\n"b, c",560,1,512,500,dansk,60,1\nd,,1,1,,dansk,1,1\n'
    (table,) = one("scandeval", write(tmp_path / "germanic_nlu_long.csv", header + rows)).tables
    assert table.name == "scandeval/dansk"
    assert table.candidates == ("a 🙂", "b, c")
    assert {o.name for o in table.objectives} == {"score", "speed", "params"}
    assert table.cost_s.tolist() == [[100.0], [200.0]]


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_folder_of_something_else_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    write(tmp_path / "other.txt", "hello")
    with pytest.raises(ProblemError) as caught:
        one(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_file_with_other_content_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    for file in (
        "pythia_v1_curves.csv", "pythia_v1_mmlu_curves.csv", "light_eval.csv", "imdb_x.csv",
        "wandb_df_for_fitting_hot_100b+_477.jsonl", "matrix.txt", "data_v2.csv",
        "base_llm_benchmark_eval.csv", "germanic_nlu_long.csv",
    ):  # fmt: skip
        write(tmp_path / file, "a,b\n1,2\n")
    with pytest.raises(ProblemError) as caught:
        one(name, tmp_path)
    assert "\n" not in str(caught.value)


SHAPES = {
    "pythia": (8, (16, 27)),
    "pythia-mmlu": (57, (16, 27)),
    "gemstones": (9, (22, 35)),
    "gemstones-loss": (5, None),
    "taskset": (12, (1000, 51)),
    "matrix": (27, None),
    "observational": (31, None),
    "open-llm": (20, None),
    "scandeval": (34, None),
}


@pytest.mark.skipif(not PUBLIC, reason="LAMPS_PUBLIC_TABLES names no folder of public tables")
@pytest.mark.parametrize("name", FOLDERS)
def test_real_copies_import_whole_and_come_back(name: str, tmp_path: Path) -> None:
    folder = Path(PUBLIC) / FOLDERS[name]
    if not folder.is_dir():
        pytest.skip(f"{FOLDERS[name]} is not among the public tables here")
    found = one(name, folder)
    count, shape = SHAPES[name]
    assert len(found.tables) == count
    for table in found.tables:
        assert shape is None or table.measured.shape == shape
        assert table.family
        assert table.source
        assert table.licence
        assert [f for f in check_table(table) if f.level == "error"] == []
        spent = np.nan_to_num(table.cost_s)
        assert (spent >= 0).all()
        assert (spent.sum(axis=1) > 0).all()
    write_tables(tmp_path / "t.parquet", found.tables)
    for before, after in zip(found.tables, read_tables(tmp_path / "t.parquet"), strict=True):
        assert_same(before, after)
    if name == "taskset":
        failed = {t.name: int(t.failed.sum()) for t in found.tables}
        assert max(failed.values()) == 11_832
    json.dumps(found.notes)
