"""Problems, landmarks, the law in evaluation, exports, and prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins import lossless_decoding
from lamps_plugins._small_lms import folder
from lamps_plugins.lossless_decoding import _equality, _prompts
from lamps_plugins.lossless_decoding._decode import decode
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._export import _method
from lamps_plugins.lossless_decoding._lm import FrozenLm
from lamps_plugins.lossless_decoding._measure import Record, summary
from lamps_plugins.lossless_decoding._opening import read_prompts
from lamps_plugins.lossless_decoding._problem import FAMILY, DecodingProblem, method_names
from lamps_plugins.lossless_decoding._refused import own_options
from lamps_plugins.lossless_decoding._sampling import GREEDY, Sampler
from lamps_plugins.lossless_decoding.esp import Esp, EspDrafter
from lamps_plugins.lossless_decoding.esp import Params as EspParams
from lamps_plugins.lossless_decoding.plain import PlainDrafter

from lamps.errors import ConfigError, MethodFailed, ProblemError


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def fitted(problem: DecodingProblem, fidelity: float = 1.0, **params: Any) -> Esp:
    return Esp(EspParams(**params)).partial_fit(problem, fidelity, rng=rng())


def test_landmarks_are_prefixes_of_the_prompts(toy: DecodingProblem) -> None:
    early, whole = fitted(toy, 0.25), fitted(toy)
    assert [len(early.records_), len(whole.records_)] == [2, 8]
    for a, b in zip(early.records_, whole.records_, strict=False):
        assert (a.calls, a.rows, a.emitted) == (b.calls, b.rows, b.emitted)


def test_a_resumed_method_continues_with_the_next_prompt(toy: DecodingProblem) -> None:
    early = fitted(toy, 0.5)
    again = Esp(EspParams())
    again.load_state_dict(json.loads(json.dumps(early.state_dict())), toy)
    again.partial_fit(toy, 1.0, rng=rng())
    assert [r.as_list() for r in again.records_[:4]] == [r.as_list() for r in early.records_]
    found, whole = again.evaluate(toy), fitted(toy).evaluate(toy)
    assert found.signals["tau"] == whole.signals["tau"]


def test_a_sampled_problem_obeys_the_law(decoding_cache: Path) -> None:
    problem = FAMILY.open_problem("toy", {"temperature": 1.0, "top_p": 0.95, "n_prompts": 3})
    found = fitted(problem, k=2, rows=12).evaluate(problem)
    assert found.signals["near_ties"] == 0.0
    a, b = (problem.sampler("val", number).seed for number in (0, 1))
    assert a != b


def test_the_test_split_has_other_prompts_and_intervals(toy: DecodingProblem) -> None:
    assert not {p.tokens for p in toy.prompts("val")} & {p.tokens for p in toy._prompts["test"]}
    found = fitted(toy, 0.0).evaluate(toy, "test")
    low, high = (found.signals[f"test_rows_per_token_{end}"] for end in ("low", "high"))
    assert low <= found.objectives["test_rows_per_token"] <= high


class Liar(Esp):
    """Emits something else than the model says, as a broken verification would."""

    def drafter(self, draft: FrozenLm | None = None) -> EspDrafter:
        class Broken(EspDrafter):
            def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
                super().begin(lm, prompt, sampler)
                self._calls = 0
                return self._with_masks(type(self)._empty())

            @staticmethod
            def _empty() -> Any:
                from lamps_plugins.lossless_decoding._tree import Tree

                return Tree([], [])

            def observe(self, outcome: Outcome) -> None:
                self._calls += 1
                if self._calls == 4:
                    outcome.emitted[-1] = (outcome.emitted[-1] + 1) % 40
                super().observe(outcome)

        return Broken(k=1, rows=8)


def test_a_method_that_changes_the_text_fails_and_is_named(toy: DecodingProblem) -> None:
    with pytest.raises(
        MethodFailed, match=r"val prompt 0: token \d+ is \d+, plain decoding emits"
    ):
        Liar(EspParams()).partial_fit(toy, 0.0, rng=rng())


def test_a_near_tie_is_counted_and_a_wrong_token_is_not(llama: FrozenLm) -> None:
    prompt = [1, 2, 3]
    reference = decode(llama, PlainDrafter(), prompt, max_new=8).tokens

    def check(found: list[int], tie: float) -> int:
        before = _equality.TIES[llama.dtype]
        _equality.TIES[llama.dtype] = tie
        try:
            return _equality.near_ties(
                llama, prompt, reference, found, max_new=8, sampler=GREEDY, stop=(), where="x"
            )
        finally:
            _equality.TIES[llama.dtype] = before

    other = [*reference[:-1], (reference[-1] + 1) % 61]
    assert check(reference, 1e-4) == 0
    assert check(other, 1e9) == 1
    for wrong in (other, reference[:-1], [*reference, 3]):
        with pytest.raises(MethodFailed, match="must not"):
            check(wrong, 1e-4)


def test_the_summary_is_sums_over_prompts() -> None:
    records = [
        Record("a", 1.0, 2.0, 10, 5, 20.0, 64, 0, {"hit": (3.0, 4.0)}),
        Record("b", 3.0, 2.0, 30, 15, 80.0, 32, 1, {"hit": (1.0, 4.0)}),
    ]
    found = summary(records, "val")
    assert found.objectives == {
        "val_latency_ratio": 1.0, "val_rows_per_token": 2.5, "extra_kv_bytes": 64.0
    }  # fmt: skip
    assert found.signals["tau"] == found.signals["tau_a"] == 2.0
    assert found.signals["hit"] == 0.5
    assert found.signals["near_ties"] == 1.0


def test_a_text_that_ends_at_once_divides_by_nothing() -> None:
    found = summary([Record("a", 1.0, 1.0, 0, 0, 0.0, 0)], "val")
    assert found.objectives["val_rows_per_token"] == found.signals["tau"] == 1.0


def pool(problem: DecodingProblem, names: Sequence[str], **given: Any) -> list[Any]:
    methods = {name: _method(name) for name in names}
    return FAMILY.candidates(problem, methods, (), given=given, per_method=8, seed=1)


def test_the_pool_holds_what_can_run(toy: DecodingProblem, tmp_path: Path) -> None:
    found = pool(toy, method_names())
    assert {c.method for c in found} == set(method_names()) - {"oracle-tree"}
    assert all(c.params["rows"] >= 2 * (c.params["k"] + 1) for c in found if c.method == "esp")
    assert {c.method for c in pool(toy, ["oracle-tree"])} == {"oracle-tree"}
    options = own_options(tmp_path)
    del options["draft"]
    own = FAMILY.open_problem(None, options)
    assert "draft-lm" not in {c.method for c in pool(own, method_names())}
    with pytest.raises(ProblemError, match="--draft"):
        pool(own, ["draft-lm"])


def test_a_given_budget_without_room_reaches_the_method(toy: DecodingProblem) -> None:
    (first, *_) = pool(toy, ["esp"], esp={"rows": 4, "k": 3})
    with pytest.raises(ConfigError, match="at least 8"):
        Esp.from_params(first.params).partial_fit(toy, 0.0, rng=rng())


def test_a_changed_model_is_noticed(decoding_cache: Path, tmp_path: Path) -> None:
    options = own_options(tmp_path)
    problem = FAMILY.open_problem(None, options)
    again = FAMILY.reopen(problem.reference())
    assert again.fingerprint() == problem.fingerprint()
    Path(options["prompts"]).write_text("red bird\nold stone\n", encoding="utf-8")
    with pytest.raises(ProblemError, match="changed"):
        FAMILY.reopen(problem.reference())


@pytest.mark.parametrize("name", ["esp", "draft-lm", "oracle-tree", "plain"])
def test_an_export_writes_the_same_texts(name: str, toy: DecodingProblem, tmp_path: Path) -> None:
    made = _method(name)
    method = made(made.Params()).partial_fit(toy, 0.0, rng=rng())
    method.save(toy, tmp_path)
    opened = lossless_decoding.load(tmp_path)
    prompt = list(toy.prompts("val")[0].tokens)
    wanted = decode(toy.lm(), PlainDrafter(), prompt, max_new=24, stop=toy.lm().stop_ids)
    found = opened.generate(prompt)
    assert list(found.tokens) == wanted.tokens
    sampled = [opened.generate("red bird sings", temperature=1.0, seed=s).text for s in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    assert (name == "plain") == (found.calls == 23)


def test_an_export_opens_in_plain_transformers(toy: DecodingProblem, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    fitted(toy, 0.0).save(toy, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.config.vocab_size == 64
    assert AutoTokenizer.from_pretrained(tmp_path / "model")("red bird")["input_ids"]
    assert {p.name for p in tmp_path.iterdir()} == {"lamps.json", "README.md", "model"}


def test_scores_go_into_the_card(toy: DecodingProblem, tmp_path: Path) -> None:
    fitted(toy, 0.0).save(toy, tmp_path)
    FAMILY.describe_export(tmp_path, {"val_latency_ratio": 0.5})
    assert json.loads((tmp_path / "lamps.json").read_text())["scores"] == {
        "val_latency_ratio": 0.5
    }
    assert "val_latency_ratio 0.5" in (tmp_path / "README.md").read_text()


def test_predictions_continue_prompts(toy: DecodingProblem, tmp_path: Path) -> None:
    member = tmp_path / "member"
    member.mkdir()
    fitted(toy, 0.0).save(toy, member)
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "red bird"}\n{"prompt": "old stone falls"}\n', encoding="utf-8")
    rows = list(FAMILY.predict(member, file, {}))
    assert [row["prompt"] for row in rows] == ["red bird", "old stone falls"]
    assert all(row["continuation"] and row["tokens"] == 24 for row in rows)


@pytest.mark.parametrize(
    ("edit", "culprit"),
    [
        (lambda at: (at / "lamps.json").unlink(), "lamps.json"),
        (lambda at: _edited(at, family="model-merging"), "model-merging"),
        (lambda at: _edited(at, method="../evil"), "no way of decoding"),
        (lambda at: shutil.rmtree(at / "model"), "model"),
    ],
)
def test_a_damaged_export_is_refused(
    edit: Any, culprit: str, toy: DecodingProblem, tmp_path: Path
) -> None:
    fitted(toy, 0.0).save(toy, tmp_path)
    edit(tmp_path)
    with pytest.raises(ProblemError, match=culprit):
        lossless_decoding.load(tmp_path)


def _edited(at: Path, **values: Any) -> None:
    file = at / "lamps.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_a_batch_is_refused(toy: DecodingProblem, tmp_path: Path) -> None:
    fitted(toy, 0.0).save(toy, tmp_path)
    with pytest.raises(ProblemError, match="one by one"):
        lossless_decoding.load(tmp_path).generate([[1, 2], [3]])  # type: ignore[list-item]


def test_prompts_come_in_turn_from_files_of_their_own() -> None:
    tasks = ["code", "docstrings", "lists", "arithmetic", "copy-edit"]
    val, more = (_prompts.texts(tasks, n, part="val", seed=0) for n in (10, 15))
    test = _prompts.texts(tasks, 15, part="test", seed=0)
    assert more[:10] == val
    assert [task for task, _ in val[:5]] == tasks
    assert not {text for _, text in more} & {text for _, text in test}
    assert _prompts.texts(tasks, 10, part="val", seed=1) != val
    assert all(text and len(text) <= 1000 for _, text in more)
    with pytest.raises(ProblemError, match="fewer than"):
        _prompts.texts(["copy-edit"], 100_000, part="val", seed=0)


def test_lines_of_a_file_are_prompts(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("a b\n\n c\n", encoding="utf-8")
    assert list(read_prompts(file)) == ["a b", " c"]
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="UTF-8"):
        list(read_prompts(file))


def test_a_model_that_is_not_built_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path))
    assert not folder("stdlib").exists()
    with pytest.raises(ProblemError, match="lamps small-lms build stdlib"):
        FAMILY.open_problem("stdlib", {})


def test_a_drafter_may_stay_silent() -> None:
    class Silent(Drafter):
        def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
            return Draft()

        def propose(self) -> Draft:
            return Draft()

    assert Silent().foresee([1]) is None
