from __future__ import annotations

import json
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins._views import export
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._problem import FAMILY
from lamps_plugins.multi_view_clustering._refused import written

from lamps.errors import ProblemError
from lamps.plugins import registry

from ._direct import DIRECT, kind

DOCS = Path(__file__).parents[3] / "docs" / "multi-view-clustering.md"


def fitted(name: str, problem: ClusterProblem, **params: Any) -> Any:
    method = kind(name).from_params(params)
    return method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))


def test_a_reference_opens_an_equal_problem() -> None:
    options = {"missing": "entry-rate", "rate": 0.3, "mask_seed": 2, "track": "labelled"}
    problem = FAMILY.open_problem("toy", options)
    again = FAMILY.reopen(json.loads(json.dumps(problem.reference())))
    assert again.fingerprint() == problem.fingerprint()
    assert again.track == "labelled"


def test_other_masks_seeds_and_tracks_are_other_problems() -> None:
    changes = [{}, {"mask_seed": 1}, {"rate": 0.6}, {"track": "labelled"}, {"split_seed": 1}]
    prints = {FAMILY.open_problem("toy", change).fingerprint() for change in changes}
    assert len(prints) == len(changes)


def test_own_files_are_found_again_and_refused_once_they_changed(tmp_path: Path) -> None:
    problem = FAMILY.open_problem(None, written(tmp_path))
    reference = json.loads(json.dumps(problem.reference()))
    assert FAMILY.reopen(reference).fingerprint() == problem.fingerprint()
    labels = tmp_path / "labels.npz"
    with np.load(labels) as kept:
        changed = np.roll(kept["values"], 1)
    np.savez(labels, values=changed)
    with pytest.raises(ProblemError, match="changed"):
        FAMILY.reopen(reference)


def test_views_take_the_name_they_are_given(tmp_path: Path) -> None:
    options = written(tmp_path)
    options["view"][0] = f"gene={options['view'][0]}"
    assert FAMILY.open_problem(None, options).data.names == ("gene", "view1", "view2")


def test_the_card_states_what_was_observed() -> None:
    card = FAMILY.open_problem("toy", {}).card()
    assert card["complete_rows"] == 120
    assert card["observed_cells"] == FAMILY.open_problem("toy", {}).data.mask.sum()
    assert card["missing"] == "sample-rate"
    assert {"source", "licence", "mask_hash", "views", "landmarks"} <= set(card)


def test_every_view_is_a_candidate_of_its_own() -> None:
    problem = FAMILY.toy_problem()
    methods = {name: kind(name) for name in ("single-view-kmeans", "concat-kmeans")}

    def views(given: dict[str, Any]) -> list[Any]:
        pool = FAMILY.candidates(problem, methods, (), given=given, per_method=2, seed=0)
        return [c.params["view"] for c in pool if c.method == "single-view-kmeans"]

    assert views({}) == [0, 1, 2, 0, 1, 2]
    assert set(views({"single-view-kmeans": {"view": 2}})) == {2}


def test_strong_baselines_are_in_the_pool_and_run_to_the_end() -> None:
    known = registry("").method_names("multi-view-clustering")
    assert set(DIRECT) <= set(known)
    baselines = {n for n in known if kind_of(n).spec.tags.baseline}
    assert baselines == {"nemo", "knn-impute"}


def kind_of(name: str) -> Any:
    return registry("").load_method("multi-view-clustering", name)


@pytest.mark.parametrize("name", ["pca-gmm", "knn-impute"])
def test_an_export_assigns_the_fitted_rows_as_the_method_does(name: str, tmp_path: Path) -> None:
    problem = FAMILY.toy_problem()
    method = fitted(name, problem)
    method.save(problem, tmp_path)
    again, scaler = export.load(tmp_path)
    rows = method.rows_
    raw = problem.raw.take(rows)
    labels, soft = again.assign(scaler.apply(raw))
    expected, _ = method.assign(problem.data.take(rows))
    assert (labels == expected).all()
    assert soft.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert (labels == method.result_.labels).mean() > 0.9
    arrays = dict(zip(raw.names, raw.arrays, strict=True))
    np.savez(tmp_path / "new.npz", mask=raw.mask, **arrays)
    told = [row["cluster"] for row in FAMILY.predict(tmp_path, tmp_path / "new.npz", {})]
    assert told == labels.tolist()


def test_scores_stand_in_the_exported_card(tmp_path: Path) -> None:
    problem = FAMILY.toy_problem()
    fitted("concat-kmeans", problem).save(problem, tmp_path)
    FAMILY.describe_export(tmp_path, {"test_error": 0.25})
    card = json.loads((tmp_path / "lamps.json").read_text("utf-8"))
    assert card["scores"] == {"test_error": 0.25}
    assert card["params"]["weights"] == "by_size"


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lamps.json").write_text('{"family": "multi-view-clustering"}', "utf-8")
    with pytest.raises(ProblemError, match="no exported clustering"):
        export.load(tmp_path)
    with pytest.raises(ProblemError, match="one NPZ"):
        list(FAMILY.predict(tmp_path, None, {}))


def test_a_view_that_is_not_there_is_refused() -> None:
    with pytest.raises(ProblemError, match="no view 3, expected 0 to 2: view0, view1, view2"):
        fitted("single-view-kmeans", FAMILY.toy_problem(), view=3)


def test_the_method_in_the_docs_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    module = types.ModuleType("first_component")
    header = """
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from lamps import space as hp
from lamps.method import MethodSpec
from lamps_plugins._views.clusterer import Clusterer, Clustering
from lamps_plugins._views.linear import kmeans
from lamps_plugins.multi_view_clustering._pca import bases, project
"""
    import sys

    sys.modules["first_component"] = module
    try:
        exec(header + code, module.__dict__)
        problem = FAMILY.toy_problem()
        method = module.FirstComponent(module.Params())
        method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))
        assert method.evaluate(problem, "test").objectives["test_error"] < 0.3
    finally:
        del sys.modules["first_component"]


@pytest.mark.slow
def test_filling_from_near_rows_beats_the_mean_on_written_digits() -> None:
    problem = FAMILY.open_problem("hand6", {})
    errors = {
        name: fitted(name, problem).evaluate(problem, "test").objectives["test_error"]
        for name in ("mean-impute-kmeans", "knn-impute", "coreg-spectral")
    }
    assert errors["knn-impute"] < errors["mean-impute-kmeans"] - 0.05
    assert errors["coreg-spectral"] < 0.1
