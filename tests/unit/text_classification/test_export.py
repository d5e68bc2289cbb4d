"""What is exported computes what was measured, in another process and without lamps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.text_classification import _export
from lamps_plugins.text_classification._problem import FAMILY, TextProblem

from lamps.errors import ProblemError

from .test_methods import CASES, TUNED, method_class

PLAIN = """
import json, sys
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, texts = sys.argv[1], json.load(open(sys.argv[2]))
tokenizer = AutoTokenizer.from_pretrained(folder)
net = AutoModelForSequenceClassification.from_pretrained(folder).eval()
inputs = [tokenizer(text, truncation=True, return_tensors="pt") for text in texts]
with torch.no_grad():
    rows = [net(**i).logits[0].tolist() for i in inputs]
json.dump([rows, net.config.id2label], open(sys.argv[3], "w"))
"""

OURS = """
import json, sys
from pathlib import Path
from lamps_plugins.text_classification import _export
rows = _export.load(Path(sys.argv[1])).logits_of(json.load(open(sys.argv[2]))).tolist()
json.dump([rows, None], open(sys.argv[3], "w"))
"""


def elsewhere(script: str, folder: Path, texts: list[str]) -> tuple[np.ndarray, Any]:
    """Logits and label names by a new process."""
    paths = folder.parent / "texts.json", folder.parent / "answer.json"
    paths[0].write_text(json.dumps(texts))
    command = [sys.executable, "-c", script, str(folder), *map(str, paths)]
    subprocess.run(command, check=True, timeout=200, capture_output=True)
    rows, names = json.loads(paths[1].read_text())
    return np.array(rows), names


def exported(
    name: str, model: str | None, problem: TextProblem, folder: Path, **more: Any
) -> tuple[Any, Path]:
    params = {**({"model": model} if model else {}), **more}
    method: Any = method_class(name).from_params(params)
    method.partial_fit(problem, 1.0, rng=np.random.default_rng(2))
    folder.mkdir()
    method.save(problem, folder)
    return method, folder


@pytest.mark.parametrize(("name", "kind"), [c for c in CASES if ":" not in c[0]])
def test_logits_survive_and_the_size_is_what_was_said(
    name: str, kind: str | None, request: pytest.FixtureRequest, toy: TextProblem, tmp_path: Path
) -> None:
    model = request.getfixturevalue(kind) if kind else None
    method, folder = exported(name, model, toy, tmp_path / "out")
    texts = [*toy.texts("val")[:12], "pan " * 100]
    expected = method.logits_of(toy)(texts)
    np.testing.assert_allclose(_export.load(folder).logits_of(texts), expected, atol=1e-5)

    files = [f for f in folder.rglob("*") if f.is_file()]
    assert {f.suffix for f in files} <= {".json", ".safetensors", ".md"}
    written = sum(f.stat().st_size for f in files)
    assert method.sizes(toy)[1] == pytest.approx(written, rel=0.01)


@pytest.mark.parametrize(("name", "kind"), [("lora", "encoder"), ("prompt-tuning", "decoder")])
def test_plain_transformers_in_a_new_process_gives_the_same_logits(
    name: str, kind: str, request: pytest.FixtureRequest, toy: TextProblem, tmp_path: Path
) -> None:
    method, folder = exported(name, request.getfixturevalue(kind), toy, tmp_path / "out")
    texts = [*toy.texts("val")[:6], "pan " * 100]
    found, names = elsewhere(PLAIN, folder, texts)
    np.testing.assert_allclose(found, method.logits_of(toy)(texts), atol=1e-5)
    assert names == {str(i): label for i, label in enumerate(toy.labels)}


def test_linear_methods_answer_the_same_in_a_new_process(
    encoder: str, toy: TextProblem, tmp_path: Path
) -> None:
    method, folder = exported("linear-probe", encoder, toy, tmp_path / "out")
    texts = list(toy.texts("val")[:6])
    found, _ = elsewhere(OURS, folder, texts)
    np.testing.assert_allclose(found, method.logits_of(toy)(texts), atol=1e-5)


@pytest.mark.parametrize("name", ["full-finetune", "prompt-tuning"])
def test_a_pipeline_opens_the_folder_with_the_labels_of_the_data(
    name: str, encoder: str, toy: TextProblem, tmp_path: Path
) -> None:
    from transformers import pipeline

    assert name in TUNED
    method, folder = exported(name, encoder, toy, tmp_path / "out")
    classify = pipeline("text-classification", str(folder), truncation=True)
    texts = list(toy.texts("val")[:8])
    expected = [toy.labels[i] for i in method.logits_of(toy)(texts).argmax(axis=1)]
    assert [a["label"] for a in classify(texts)] == expected


def test_labels_keep_their_type(tmp_path: Path) -> None:
    rows = "".join(f"{'good fine' if i % 2 else 'bad poor'} word{i},{i % 2}\n" for i in range(60))
    (tmp_path / "data.csv").write_text("text,label\n" + rows)
    problem = FAMILY.open_problem(str(tmp_path / "data.csv"), {"target": "label"})
    _, folder = exported("tfidf-logreg", None, problem, tmp_path / "out")
    (tmp_path / "new.csv").write_text("id,text\n1,a good fine day\n2,\n3,a bad poor day\n")
    answers = list(FAMILY.predict(folder, tmp_path / "new.csv", {"text": "text"}))
    assert [a["label"] for a in (answers[0], answers[2])] == [1, 0]
    assert type(answers[0]["label"]) is int
    assert len(answers) == 3
    for answer in answers:
        scores: Any = answer["scores"]
        assert set(scores) == {"0", "1"}
        assert sum(scores.values()) == pytest.approx(1)
        assert answer["score"] == max(scores.values())


def test_several_labels_are_a_list(several: TextProblem, tmp_path: Path) -> None:
    _, folder = exported("tfidf-logreg", None, several, tmp_path / "out", c=100.0)
    answers = list(_export.load(folder).answers(["pan oven dough goal team coach", "the a we"]))
    assert set(answers[0]["label"]) == {"food", "sport"}  # type: ignore[arg-type]
    assert all(0 <= a["score"] <= 1 for a in answers)  # type: ignore[operator]


def test_the_card_says_where_it_comes_from(encoder: str, toy: TextProblem, tmp_path: Path) -> None:
    _, folder = exported("lora", encoder, toy, tmp_path / "out", rank=4)
    text = (folder / "README.md").read_text()
    for fact in (toy.data_hash("train"), "lora", "rank=4", "cooking", "pipeline", "not recorded"):
        assert fact in text
    _export.with_scores(folder, {"val_error": 0.125})
    assert "val_error 0.125" in (folder / "README.md").read_text()
    meta = _export.read_meta(folder)
    assert meta["scores"] == {"val_error": 0.125}
    assert meta["labels"] == list(toy.labels)


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"no lamps\.json"):
        _export.load(tmp_path)
    (tmp_path / "lamps.json").write_text('{"format": 99}')
    with pytest.raises(ProblemError, match="format 99"):
        _export.load(tmp_path)
    (tmp_path / "lamps.json").write_text('{"format": 1, "kind": "spell"}')
    with pytest.raises(ProblemError, match="kind 'spell'"):
        _export.load(tmp_path)
