"""Every method: nested landmarks without memory of stops, exact resumption, honest evaluation."""

from __future__ import annotations

import importlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins import text_classification
from lamps_plugins.text_classification import _nets, _training
from lamps_plugins.text_classification._problem import FAMILY, TextProblem

from lamps.errors import ConfigError, MethodFailed, ProblemError
from lamps.method import Method
from lamps.space import as_json, distributions

TUNED = ("full-finetune", "lora", "dora", "ia3", "bitfit", "prompt-tuning")
NAMES = ("tfidf-logreg", "static-logreg", "linear-probe", *TUNED)
CASES = [
    ("tfidf-logreg", None), ("tfidf-logreg:word+char", None), ("static-logreg", "static"),
    ("linear-probe", "encoder"), ("linear-probe", "decoder"),
    *((name, kind) for name in TUNED for kind in ("encoder", "decoder")),
]  # fmt: skip


def method_class(name: str) -> type[Method[Any, Any]]:
    stem = name.partition(":")[0].replace("-", "_")
    module = importlib.import_module(f"lamps_plugins.text_classification.{stem}")
    (found,) = (
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, Method) and v.__module__ == module.__name__
    )
    return found


@pytest.fixture(params=CASES, ids=lambda c: f"{c[0]}-{c[1] or 'none'}")
def make(request: pytest.FixtureRequest) -> Any:
    """A function that makes the case's method, untouched."""
    name, kind = request.param
    params: dict[str, Any] = {}
    if kind:
        params["model"] = request.getfixturevalue(kind)
    if ":" in name:
        params["features"] = name.partition(":")[2]
    if name in TUNED:
        params |= {"epochs": 2, "batch_size": 8}
    return lambda **more: method_class(name).from_params({**params, **more})


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def logits(method: Any, problem: TextProblem) -> np.ndarray:
    return np.asarray(method.logits_of(problem)(problem.texts("val")))


def travelled(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A state as a checkpoint stores it: arrays as files, everything else as JSON."""
    result: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for i, (key, value) in enumerate(state.items()):
        if hasattr(value, "shape"):
            np.save(folder / f"{i}.npy", np.asarray(value), allow_pickle=False)
            result[key] = np.load(folder / f"{i}.npy")
        else:
            rest[key] = value
    return result | json.loads(json.dumps(rest))


def test_the_files_are_the_methods() -> None:
    folder = Path(str(text_classification.__file__)).parent
    found = {p.stem.replace("_", "-") for p in folder.glob("*.py") if not p.stem.startswith("_")}
    assert found == set(NAMES)
    for name in NAMES:
        cls = method_class(name)
        assert cls.name() == name
        assert cls.spec.family == "text-classification"
        assert distributions(cls.Params)
        assert cls.__doc__
        json.dumps(as_json(cls.Params()))


def test_the_baseline_is_marked() -> None:
    tags = {name: method_class(name).spec.tags for name in NAMES}
    assert [n for n, t in tags.items() if t.baseline] == ["tfidf-logreg"]
    assert [n for n, t in tags.items() if t.cheap] == ["tfidf-logreg", "static-logreg"]


def test_landmarks_do_not_depend_on_stops(make: Any, toy: TextProblem, tmp_path: Path) -> None:
    straight = make().partial_fit(toy, 1.0, rng=rng())
    stepwise = make()
    assert stepwise.fidelity_ is None
    for fidelity in toy.fidelities:
        stepwise.partial_fit(toy, fidelity, rng=rng())
        stepwise.evaluate(toy)  # looking must not change anything
        again = make()
        again.load_state_dict(travelled(stepwise.state_dict(), tmp_path), toy)
        assert again.fidelity_ == fidelity
        np.testing.assert_array_equal(logits(again, toy), logits(stepwise, toy))
        stepwise = again
    np.testing.assert_array_equal(logits(straight, toy), logits(stepwise, toy))


def test_every_landmark_moves_something(make: Any, toy: TextProblem) -> None:
    method = make()
    seen = [logits(method.partial_fit(toy, f, rng=rng()), toy) for f in toy.fidelities]
    assert all(np.isfinite(z).all() and z.shape == (len(toy.texts("val")), 3) for z in seen)
    assert not np.array_equal(seen[1], seen[2])
    before = method.state_dict()
    method.partial_fit(toy, 0.5, rng=rng())  # reached long ago
    assert set(before) == set(method.state_dict())
    np.testing.assert_array_equal(logits(method, toy), seen[-1])


def test_an_evaluation_is_complete(make: Any, toy: TextProblem) -> None:
    found = make().partial_fit(toy, 0.0, rng=rng()).evaluate(toy)
    expected = {o.name for o in toy.objectives} - {"train_s", "peak_bytes"}
    assert set(found.objectives) == expected
    assert found.is_finite()
    assert found.objectives["params"] > 0


def test_several_labels_a_text(make: Any, several: TextProblem) -> None:
    method = make().partial_fit(several, 1.0, rng=rng())
    found = method.evaluate(several)
    assert found.is_finite()
    assert logits(method, several).shape == (len(several.texts("val")), 3)


def test_global_states_and_streams_are_quiet(
    make: Any, toy: TextProblem, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    before, legacy = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    make().partial_fit(toy, 1.0, rng=rng()).evaluate(toy)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(legacy, np.random.get_state()[1])  # noqa: NPY002
    assert capfd.readouterr() == ("", "")


def test_a_fitted_method_travels(make: Any, toy: TextProblem) -> None:
    method = make().partial_fit(toy, 0.5, rng=rng())
    copy = pickle.loads(pickle.dumps(method))
    np.testing.assert_array_equal(logits(copy, toy), logits(method, toy))


def test_seeds_matter_only_where_there_is_chance(encoder: str, toy: TextProblem) -> None:
    for name, same in (("linear-probe", True), ("lora", False)):
        make = method_class(name).from_params
        one, two = (
            make({"model": encoder}).partial_fit(toy, 1.0, rng=np.random.default_rng(seed))
            for seed in (0, 1)
        )
        assert np.array_equal(logits(one, toy), logits(two, toy)) is same


def test_the_baseline_equals_scikit_learns_pipeline(toy: TextProblem) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    ours = method_class("tfidf-logreg").from_params({"c": 3.0}).partial_fit(toy, 1.0, rng=rng())
    theirs = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"),
        LogisticRegression(C=3.0, max_iter=1_000),
    ).fit(toy.texts("train"), toy.targets("train"))
    expected = theirs.decision_function(toy.texts("val"))
    found = logits(ours, toy)  # softmax ignores a common shift
    centred = [z - z.mean(axis=1, keepdims=True) for z in (found, expected)]
    np.testing.assert_allclose(*centred, atol=1e-4)


def test_adapters_start_where_the_base_is(encoder: str, toy: TextProblem) -> None:
    found = []
    for name in ("full-finetune", "lora", "dora", "ia3", "bitfit"):
        method = method_class(name).from_params({"model": encoder})
        found.append(logits(method.partial_fit(toy, 0.0, rng=rng()), toy))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)


@pytest.mark.parametrize("name", ["lora", "dora"])
def test_a_cut_network_can_be_tuned(name: str, encoder: str, toy: TextProblem) -> None:
    """DoRA divides by the length of rows, so a cut network must not have rows of zeros."""
    method: Any = method_class(name).from_params({"model": encoder, "n_layers": 1, "epochs": 1})
    method.partial_fit(toy, 1.0, rng=rng())
    assert np.isfinite(logits(method, toy)).all()


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_what_is_frozen_stays_bit_for_bit(
    kind: str, request: pytest.FixtureRequest, toy: TextProblem
) -> None:
    from safetensors.torch import load_file

    folder = request.getfixturevalue(kind)
    base = load_file(Path(folder) / "model.safetensors")
    for name in ("bitfit", "prompt-tuning"):
        method: Any = method_class(name).from_params({"model": folder})
        net = method.partial_fit(toy, 1.0, rng=rng()).exported(toy)
        moved = {k.removeprefix("bert."): v for k, v in net.state_dict().items()}
        compared = 0
        for key, value in base.items():
            if value.ndim < 2 or key not in moved:
                continue
            compared += 1
            assert np.array_equal(moved[key][: len(value)].numpy(), value.numpy()), (name, key)
        assert compared > 5


def test_the_last_landmark_keeps_the_best_look(encoder: str, toy: TextProblem) -> None:
    method: Any = method_class("full-finetune").from_params({"model": encoder, "lr": 5e-4})
    method.partial_fit(toy, 1.0, rng=rng())
    signals = method.signals()
    examples = method._examples(toy, method.model_info(), "val", len(toy.texts("val")))
    assert _training.mean_loss(method.net_, examples) == pytest.approx(signals["check_loss"])
    assert not [k for k in method.state_dict() if k.startswith("adam/")]


def test_fewer_layers_make_a_smaller_network(encoder: str, toy: TextProblem) -> None:
    def size(n_layers: int) -> int:
        params = {"model": encoder, "n_layers": n_layers}
        method: Any = method_class("lora").from_params(params).partial_fit(toy, 0.0, rng=rng())
        return int(method.sizes(toy)[0])

    assert size(1) < size(2) < size(3) == size(0) == size(20)


def test_a_learning_rate_out_of_range_is_refused_and_nan_fails(
    encoder: str, toy: TextProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = method_class("lora")
    with pytest.raises(ConfigError, match="lr=5"):
        cls.from_params({"model": encoder, "lr": 5.0})
    method = cls.from_params({"model": encoder})
    monkeypatch.setattr(_training, "rate", lambda *_: float("nan"))
    with pytest.raises(MethodFailed, match="loss is nan"):
        method.partial_fit(toy, 1.0, rng=rng())


def test_a_fidelity_without_landmark_is_refused(make: Any, toy: TextProblem) -> None:
    with pytest.raises(ProblemError, match=r"0\.3 is no landmark"):
        make().partial_fit(toy, 0.3, rng=rng())
    with pytest.raises(MethodFailed, match="never fitted"):
        make().evaluate(toy)


def test_bfloat16_only_where_it_is_native() -> None:
    import torch

    assert _nets.autocast_dtype() in (None, torch.bfloat16)


@pytest.mark.slow
def test_tuning_a_real_encoder_beats_the_constant_answer(zoo: Any) -> None:
    toy = FAMILY.toy_problem(seed=0)
    model = zoo("paraphrase-MiniLM-L3-v2")
    for name in ("linear-probe", *TUNED):
        method = method_class(name).from_params({"model": model}).partial_fit(toy, 1.0, rng=rng())
        assert method.evaluate(toy).objectives["val_error"] < toy.floor()["val_error"], name
