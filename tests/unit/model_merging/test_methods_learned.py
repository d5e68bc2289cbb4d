"""Methods that read unlabelled texts: what they may read, gradients, adapters and their export."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lamps_plugins.model_merging import _adapters
from lamps_plugins.model_merging._combination import Adam, Combination
from lamps_plugins.model_merging._problem import FAMILY, MergeProblem
from lamps_plugins.model_merging._rules.weighted import regmean
from lamps_plugins.model_merging._unlabelled import diagonal_fishers, input_grams, rows_of
from lamps_plugins.model_merging.metamerging import Metamerging, Params, Work, pools

from lamps.errors import ProblemError

from ._methods import close, logits, merged, of_experts, relabelled, rng

Toy = Callable[[str], MergeProblem]

SHORT: dict[str, dict[str, Any]] = {
    "adamerging": {"steps": 4},
    "metamerging": {"meta_steps": 2, "epochs": 1},
    "fisher-merge": {"texts": 16},
    "regmean": {"texts": 32},
}


@pytest.mark.parametrize("name", SHORT)
def test_labels_are_never_read(toy: Toy, name: str) -> None:
    problem = toy("full")
    close(merged(problem, name, **SHORT[name]), merged(relabelled(problem), name, **SHORT[name]))


@pytest.mark.parametrize("name", SHORT)
def test_no_label_is_counted(toy: Toy, name: str) -> None:
    assert merged(toy("full"), name, **SHORT[name]).labels_ == {}


def test_fishers_are_mean_squared_gradients(toy: Toy) -> None:
    problem = of_experts(toy("full"), [("dish", 0), ("game", 1)])
    found = diagonal_fishers(problem, "dish", 2, 0)
    net: Any = problem.expert_network("dish")
    weight = net.get_parameter(problem.experts.base.full_name(problem.groups[0].names[0]))
    weight.requires_grad_()
    # Over both labels' gradients, sampled ones are among the possible.
    sums = []
    for row in rows_of(problem, "dish", 2):
        logs = net(input_ids=torch.from_numpy(row.astype(np.int64))[None]).logits.log_softmax(-1)
        grads = [torch.autograd.grad(x, weight, retain_graph=True)[0].square() for x in logs[0]]
        sums.append(grads)
    possible = [(a + b) / 2 for a in sums[0] for b in sums[1]]
    kept = torch.from_numpy(np.array(found[problem.groups[0].names[0]]))
    assert any(torch.allclose(kept, p, rtol=1e-3, atol=1e-9) for p in possible)


def test_grams_are_those_of_the_inputs(toy: Toy) -> None:
    problem = toy("full")
    found = input_grams(problem, "dish", 32)
    assert set(found) == {name for group in problem.groups for name in group.names}
    name = "encoder.layer.0.attention.self.query.weight"
    net: Any = problem.expert_network("dish")
    rows = rows_of(problem, "dish", 32)
    inputs = [
        net.base_model.embeddings(input_ids=torch.from_numpy(r.astype(np.int64))[None])[0].detach()
        for r in rows
    ]
    x = torch.cat(inputs)
    gram = torch.from_numpy(np.array(found[name]))
    torch.testing.assert_close(gram, x.mT @ x / len(x), rtol=1e-3, atol=1e-4)


def test_regmean_uses_the_grams(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "regmean", texts=32)
    grams = [input_grams(problem, task, 32) for task in problem.tasks]
    group = problem.groups[-1]
    stack = torch.from_numpy(np.stack([np.stack([g[n] for n in group.names]) for g in grams]))
    wanted = regmean(problem.deltas(group), stack, 0.9)
    found = torch.stack([made.updates_[n] for n in group.names])
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-3)


def test_regmean_beats_the_average_on_the_experts_inputs(toy: Toy) -> None:
    problem = toy("full")
    average = merged(problem, "average").evaluate(problem).objectives["val_error"]
    assert merged(problem, "regmean").evaluate(problem).objectives["val_error"] <= average


@pytest.mark.parametrize("granularity", ["task", "tensor"])
def test_adamerging_starts_from_task_arithmetic(toy: Toy, granularity: str) -> None:
    problem = toy("full")
    still = merged(problem, "adamerging", steps=1, lr=0.0, granularity=granularity)
    close(still, merged(problem, "task-arithmetic", scale=0.3))


def test_adamerging_lowers_entropy(toy: Toy) -> None:
    problem = toy("full")
    few = merged(problem, "adamerging", steps=1, lr=3e-2, batch=32)
    more = merged(problem, "adamerging", steps=40, lr=3e-2, batch=32)
    assert more.signals()["entropy"] < few.signals()["entropy"]


def test_adam_is_that_of_torch() -> None:
    start = torch.tensor([1.0, -2.0, 0.5])
    ours, theirs = Adam(start.clone(), 0.1), start.clone().requires_grad_()
    rival = torch.optim.Adam([theirs], lr=0.1)
    for i in range(5):
        gradient = torch.tensor([0.1 * i, -1.0, 3.0])
        ours.update(gradient)
        theirs.grad = gradient.clone()
        rival.step()
    torch.testing.assert_close(ours.value, theirs.detach())


def test_coefficients_start_at_one_by_k_and_their_gradient_is_not_zero(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "metamerging", learn=False, epochs=1)
    assert isinstance(made, Metamerging)
    torch.testing.assert_close(made.coefficients(), torch.full((3,), 1 / 3))
    close(made, merged(problem, "average"))
    work = Work(problem, Params(), rng())
    assert made.optimizer_ is not None
    assert bool((work.gradient(made.optimizer_.value, 0) != 0).all())


@pytest.mark.parametrize(
    ("steps", "order", "level"), [(0, "second", "hidden"), (1, "second", "hidden"),
                                  (0, "second", "pooled"), (1, "second", "logits")],
)  # fmt: skip
def test_the_gradient_is_that_of_the_outer_loss(
    toy: Toy, steps: int, order: str, level: str
) -> None:
    problem = of_experts(toy("full"), [("dish", 0), ("game", 1)])
    params = Params(inner_steps=steps, order=order, level=level, inner_lr=0.3, outer_batch=16)
    rho = torch.tensor([-0.4, 0.2])

    def outer(at: torch.Tensor) -> float:
        # The loss whose gradient it is, by the losses that `gradient` sums.
        work = Work(problem, params, rng())
        seen: list[float] = []
        loss = work.loss

        def counted(*given: Any) -> torch.Tensor:
            found = loss(*given)
            seen.append(float(found.detach()))
            return found

        work.loss = counted  # type: ignore[method-assign]
        work.gradient(at, 0)
        return sum(seen[i] for i in range(steps, len(seen), steps + 1))

    found = Work(problem, params, rng()).gradient(rho, 0)
    for k in range(2):
        step = torch.zeros(2)
        step[k] = 0.02
        slope = (outer(rho + step) - outer(rho - step)) / 0.04
        assert float(found[k]) == pytest.approx(slope, rel=0.05, abs=1e-4)


def test_first_and_second_order_differ(toy: Toy) -> None:
    problem, rho = toy("full"), torch.tensor([0.1, 0.2, 0.3])
    first = Work(problem, Params(order="first", inner_lr=3.0), rng()).gradient(rho, 0)
    second = Work(problem, Params(order="second", inner_lr=3.0), rng()).gradient(rho, 0)
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, second, rtol=0.5, atol=0.05)


def test_adapters_bring_states_closer_to_the_experts(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "metamerging", learn=False, epochs=10, adapter_lr=3e-3)
    assert isinstance(made, Metamerging)
    work = Work(problem, Params(), rng())
    weights = work.combination.weights(made.coefficients())
    for task in problem.tasks:
        stop = work.pools[task][2]
        with torch.no_grad():
            before = float(work.loss(task, weights, work.start[task], stop))
            after = float(work.loss(task, weights, made.adapters_[task], stop))
        assert after < before


def test_adapters_are_counted(toy: Toy) -> None:
    problem = toy("full")
    made = merged(problem, "metamerging", meta_steps=1, epochs=1)
    width, bottleneck, blocks, tasks = 32, 2, 2, 3
    each = blocks * (2 * bottleneck * width + bottleneck + width)
    assert made.evaluate(problem).objectives["extra_params"] == tasks * each


def test_pools_have_no_text_in_common() -> None:
    found = pools(256, "dish")
    everything = [i for pool in found for i in pool]
    assert sorted(everything) == list(range(256))
    with pytest.raises(ProblemError, match="'dish' has 39 training texts; metamerging needs 40"):
        pools(39, "dish")


def test_a_bottleneck_as_wide_as_the_states_is_refused() -> None:
    with pytest.raises(ProblemError, match="bottleneck 8 of width 8; expected 1 to 7"):
        _adapters.start(2, 8, 8, 0)


def test_the_sum_of_updates_is_that_of_the_rule(toy: Toy) -> None:
    problem = toy("full")
    combination = Combination(problem)
    group = problem.groups[0]
    found = combination.merged(group, torch.full((3,), 0.5))
    torch.testing.assert_close(found, 0.5 * problem.deltas(group).sum(0))


_SCRIPT = """
import sys
sys.modules["lamps"] = sys.modules["lamps_plugins"] = None  # neither may be imported
sys.path.insert(0, sys.argv[1])
import json, torch
from load_adapters import load
model, tokenizer = load(sys.argv[1])
texts = json.load(open(sys.argv[2]))
with torch.no_grad():
    rows = [model(**tokenizer(t, return_tensors="pt", truncation=True)).logits[0] for t in texts]
print(json.dumps(torch.stack(rows).tolist()))
"""


def test_an_export_opens_without_lamps(toy: Toy, tmp_path: Path) -> None:
    problem = toy("full")
    made = merged(problem, "metamerging", meta_steps=1, epochs=3, adapter_lr=3e-3)
    folder = tmp_path / "member"
    folder.mkdir()
    made.save(problem, folder)
    texts = list(problem.task("game").texts("val")[:24])
    asked = tmp_path / "texts.json"
    asked.write_text(json.dumps(texts))
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, folder / "game", asked],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found = np.array(json.loads(done.stdout))
    np.testing.assert_allclose(found, logits(problem, made, 1), atol=1e-4)
    plain = problem.logits(problem.network("game", made.updates_), "game", "val", 24)
    assert np.abs(found - plain).max() > 1e-3  # the adapters matter
    assert "load_adapters" in (folder / "game" / "README.md").read_text()


def test_predictions_of_an_export_go_through_its_adapters(toy: Toy, tmp_path: Path) -> None:
    problem = toy("full")
    made = merged(problem, "metamerging", meta_steps=1, epochs=3)
    folder = tmp_path / "member"
    folder.mkdir()
    made.save(problem, folder)
    rows = tmp_path / "rows.csv"
    texts = problem.task("game").texts("val")[:24]
    rows.write_text("text\n" + "".join(f"{t}\n" for t in texts))
    labels = problem.task("game").labels
    wanted = [labels[i] for i in logits(problem, made, 1).argmax(1)]
    for place, options in ((folder, {"task": "game"}), (folder / "game", {})):
        assert [a["label"] for a in FAMILY.predict(place, rows, options)] == wanted
