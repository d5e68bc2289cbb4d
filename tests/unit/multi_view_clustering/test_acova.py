"""ACOVA, DVIMC and CoDE-VAE: one body, three correlations; variants and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from lamps_plugins._views.data import ViewData, standardised
from lamps_plugins._views.epochs import seeded
from lamps_plugins._views.metrics import nmi
from lamps_plugins.multi_view_clustering import acova, code_vae, dvimc
from lamps_plugins.multi_view_clustering._problem import FAMILY

from lamps.errors import LampsWarning, ProblemError

SHORT = {
    "pretrain_epochs": 20,
    "epochs": 20,
    "latent": 6,
    "batch": 128,
    "start": "clusters",
    "coherence": 1.0,
}


def blobs(n: int = 300, *, seed: int = 0) -> tuple[ViewData, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    centres = 3.0 * rng.normal(size=(3, 3, 5))
    arrays = tuple((c[truth] + rng.normal(size=(n, 5))).astype(np.float32) for c in centres)
    mask = rng.random((n, 3)) >= 0.3
    mask[np.arange(n), rng.integers(3, size=n)] = True
    raw = ViewData(names=("a", "b", "c"), arrays=arrays, mask=mask, n_clusters=3)
    return standardised(raw), truth


def clustered(method, data):
    return method.cluster(data, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def acova_fit():
    data, truth = blobs()
    method = acova.Acova(acova.Params(**SHORT))
    return method, clustered(method, data), data, truth


def test_it_clusters_blobs(acova_fit):
    _, found, data, truth = acova_fit
    # The mixture prior may merge two of three blobs on so few rows; the others stay apart.
    assert nmi(truth, found.labels) > 0.5
    np.testing.assert_allclose(found.soft.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(found.soft.argmax(1), found.labels)
    for v, array in enumerate(data.arrays):
        shown = data.mask[:, v]
        np.testing.assert_array_equal(found.imputed[v][shown], array[shown])
        assert np.abs(found.imputed[v][~shown]).max() > 0.0


def test_new_rows_are_assigned_as_the_fitted_ones(acova_fit):
    method, found, data, _ = acova_fit
    labels, soft = method.assign(data.take(np.arange(20, 30)))
    np.testing.assert_array_equal(labels, found.labels[20:30])
    np.testing.assert_allclose(soft, found.soft[20:30], atol=1e-5)


def test_a_row_is_assigned_without_looking_at_what_it_lacks(acova_fit):
    method, _, data, _ = acova_fit
    few = data.take(np.arange(10))
    junk = tuple(
        np.where(shown[:, None], a, 1e6).astype(np.float32)
        for a, shown in zip(few.arrays, few.mask.T, strict=True)
    )
    np.testing.assert_array_equal(
        method.assign(few)[1], method.assign(dataclasses.replace(few, arrays=junk))[1]
    )


def test_signals_watch_the_correlation_and_the_prior(acova_fit):
    signals = acova_fit[0].signals()
    assert signals["r_min_eigenvalue"] > 0.0
    assert 0.0 < signals["least_share"] <= 1.0 / 3.0
    assert {"r_drift", "r_log10_condition", "std_at_floor", "rec", "coherence"} <= set(signals)


def test_identity_is_dvimc_and_so_is_a_correlation_of_zero():
    data, _ = blobs()
    want = clustered(dvimc.Dvimc(dvimc.Params(**SHORT)), data)
    structure = acova.Params(**SHORT, structure="identity")
    got = clustered(acova.Acova(structure), data)
    np.testing.assert_array_equal(got.labels, want.labels)
    np.testing.assert_array_equal(got.embedding, want.embedding)
    zero = code_vae.Params(**SHORT | {"epochs": 1}, rho=0.0)
    once = dvimc.Dvimc(dvimc.Params(**SHORT | {"epochs": 1}))
    np.testing.assert_allclose(
        clustered(code_vae.CodeVae(zero), data).embedding,
        clustered(once, data).embedding,
        atol=1e-3,
    )


@pytest.mark.parametrize(
    "variant",
    [
        {"structure": "equicorrelated"},
        {"structure": "per-group"},
        {"r_objective": "contrast"},
        {"r_init": "pearson"},
        {"r_init": "randn"},
        {"r_init": "identity"},
        {"block": "masked-inverse"},
        {"coherence_std_bug": True},
        {"rec_scale": "mean"},
        {"start": "unit"},
    ],
    ids=str,
)
def test_every_variant_runs_and_differs(variant, acova_fit):
    _, plain, data, _ = acova_fit
    found = clustered(acova.Acova(acova.Params(**SHORT | variant)), data)
    assert np.isfinite(found.embedding).all()
    assert (found.embedding != plain.embedding).any()


def test_the_start_is_the_matrix_of_cosine_similarities():
    from lamps_plugins.multi_view_clustering._aggregate_correlated import cosine_correlation

    data, _ = blobs()
    method = acova.Acova(acova.Params(**SHORT))
    with seeded(np.random.default_rng(0)):
        method.build(data, np.random.default_rng(0))
        method.enter("joint", data, np.random.default_rng(0))
    with torch.no_grad():
        views = tuple(torch.from_numpy(np.array(a)) for a in data.arrays)
        latents = method.posteriors(views)[0].numpy()
    want = cosine_correlation(latents, data.mask)
    np.testing.assert_allclose(method.correlation_().detach()[0], want, atol=1e-4)


def test_rows_that_are_never_complete_can_be_trained():
    problem = FAMILY.open_problem("toy", {"missing": "no-complete"})
    method = acova.Acova(acova.Params(**SHORT))
    with pytest.warns(LampsWarning, match="0 rows show all views"):
        method.partial_fit(problem, 1.0, rng=np.random.default_rng(0))
    assert method.signals()["start_from_all_rows"] == 1.0


def test_pairs_never_seen_together_are_said_and_held_at_zero():
    data, _ = blobs()
    mask = np.array(data.mask)
    mask[:150], mask[150:] = [True, True, False], [False, True, True]
    method = acova.Acova(acova.Params(**SHORT | {"epochs": 20}))
    with pytest.warns(LampsWarning) as caught:
        clustered(method, dataclasses.replace(data, mask=mask))
    texts = [str(w.message) for w in caught]
    assert any("1 pairs of views are never seen together" in text for text in texts)
    assert float(method.correlation_()[0, 0, 2].detach()) == 0.0


def unit(data: ViewData) -> ViewData:
    arrays = tuple(1.0 / (1.0 + np.exp(-a)) for a in data.arrays)
    return dataclasses.replace(data, arrays=arrays)


def test_a_bernoulli_likelihood_wants_values_in_the_unit_interval():
    data, _ = blobs()
    method = acova.Acova(acova.Params(**SHORT, likelihood="bernoulli"))
    found = clustered(method, unit(data))
    hidden = ~data.mask[:, 0]
    assert 0.0 <= found.imputed[0][hidden].min() <= found.imputed[0][hidden].max() <= 1.0
    with pytest.raises(ProblemError, match=r"view 'a' has values from .* expects \[0, 1\]"):
        clustered(acova.Acova(acova.Params(**SHORT, likelihood="bernoulli")), data)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("blind", "row 4 shows no view"),
        ("unseen", "view 'b' is shown by no row"),
        ("many", "cannot find 200 clusters in 300 rows, expected 2 to 150"),
        ("one", "cannot find 1 clusters"),
    ],
)
def test_refusals(edit, message):
    data, _ = blobs()
    mask = np.array(data.mask)
    if edit == "blind":
        mask[4] = False
    elif edit == "unseen":
        mask[:, 1], mask[:, 0] = False, True
    k = {"many": 200, "one": 1}.get(edit, 3)
    with pytest.raises(ProblemError, match=message) as caught:
        clustered(acova.Acova(acova.Params()), dataclasses.replace(data, mask=mask, n_clusters=k))
    assert "\n" not in str(caught.value)
