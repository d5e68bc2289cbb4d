"""Data of the family: built-in, a user's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lamps_plugins.image_clustering import _emoji
from lamps_plugins.image_clustering._described import spelled_out
from lamps_plugins.image_clustering._digits import described_digits, shape_facts
from lamps_plugins.image_clustering._encoders import IMAGE_ENCODERS, encode_images
from lamps_plugins.image_clustering._opening import open_any
from lamps_plugins.image_clustering._options import ENCODERS
from lamps_plugins.image_clustering._problem import FAMILY
from lamps_plugins.image_clustering._refused import pictures, written

from lamps.errors import ConfigError, ProblemError

REFUSED = list(FAMILY.bad_inputs())


def emoji_or_skip() -> Any:
    try:
        _emoji.emoji_folder()
    except ProblemError as error:
        pytest.skip(str(error))
    return _emoji.emoji()


@pytest.fixture
def hog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Encoders that need no package, and a cache of one's own."""
    from lamps_plugins.image_clustering import _encoders

    monkeypatch.setenv("LAMPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_encoders, "encode_texts", _letters)
    return {"image_encoder": "hog-colour"}


def _letters(texts: Any, model: str) -> np.ndarray:
    alphabet = "abcdefghijklmnopqrstuvwxyz 0123456789"
    return np.array([[t.count(c) + 0.01 for c in alphabet] for t in texts], dtype=np.float32)


def test_features_have_length_one_and_stay_what_they_are(tmp_path: Path) -> None:
    problem = open_any(None, written(tmp_path))
    for array in problem.data.arrays:
        np.testing.assert_allclose(np.linalg.norm(array, axis=1), 1.0, atol=1e-5)
    with np.load(tmp_path / "image.npz") as loaded:
        x = loaded["values"]
    np.testing.assert_allclose(
        problem.data.arrays[0], x / np.linalg.norm(x, axis=1, keepdims=True), atol=1e-5
    )


def test_rows_of_nan_are_missing_texts(tmp_path: Path) -> None:
    def hide(good: dict[str, Any]) -> None:
        good["fine"][10:20] = np.nan

    problem = open_any(None, written(tmp_path, hide))
    assert (~problem.data.mask[:, 2]).sum() == 10


@pytest.mark.parametrize(
    ("call", "culprit"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_bad_input_is_refused_in_one_line(call: Any, culprit: str) -> None:
    with pytest.raises((ProblemError, ConfigError)) as caught:
        call()
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_problem_is_reopened_from_its_reference(tmp_path: Path, share: float) -> None:
    for problem in (
        open_any("toy", {"text_hidden": share, "data_seed": 2}),
        open_any(None, {**written(tmp_path), "text_hidden": share}),
    ):
        again = FAMILY.reopen(problem.reference())
        assert again.fingerprint() == problem.fingerprint()


def test_pictures_with_texts_are_encoded_once(tmp_path: Path, hog: dict[str, str]) -> None:
    table = tmp_path / "texts.jsonl"
    table.write_text("".join(json.dumps(r) + "\n" for r in pictures(tmp_path)), encoding="utf-8")
    options = {"images": str(tmp_path), "texts": str(table), "clusters": 2, **hog}
    problem = open_any(None, options)
    assert problem.data.names == ("image", "coarse", "fine")
    assert problem.data.n == 8
    assert np.bincount(truth_of(problem)).tolist() == [4, 4]
    assert FAMILY.reopen(problem.reference()).fingerprint() == problem.fingerprint()
    kept = list((tmp_path / "cache" / "images").glob("*/features.npy"))
    assert len(kept) == 1


def truth_of(problem: Any) -> Any:
    return problem._evaluator._truth


def test_a_csv_serves_as_well(tmp_path: Path, hog: dict[str, str]) -> None:
    rows = pictures(tmp_path)
    lines = ["file,fine,coarse", *(f"{r['file']},{r['fine']},{r['coarse']}" for r in rows)]
    table = tmp_path / "texts.csv"
    table.write_text("\n".join(lines), encoding="utf-8")
    problem = open_any(None, {"images": str(tmp_path), "texts": str(table), "clusters": 2, **hog})
    assert problem.card()["truth"] == "unknown"


def test_encoders_are_those_of_the_options() -> None:
    assert tuple(IMAGE_ENCODERS) == ENCODERS


def test_colours_and_edges_tell_pictures_apart(hog: dict[str, str]) -> None:
    images = np.zeros((2, 64, 64, 3), dtype=np.uint8)
    images[1, :, :, 0] = 255
    found = encode_images(images, "hog-colour")
    assert not np.allclose(found[0], found[1])


def ring(inner: float) -> np.ndarray:
    y, x = np.mgrid[:28, :28] - 13.5
    radius = np.hypot(x, y)
    return ((radius < 9) & (radius > inner)).astype(np.float32) * 255


@pytest.mark.parametrize(("inner", "holes"), [(5.0, "one loop"), (-1.0, "no loop")])
def test_facts_count_holes(inner: float, holes: str) -> None:
    assert shape_facts(ring(inner))["holes"] == holes


def test_facts_count_ends_and_lean() -> None:
    image = np.zeros((28, 28), dtype=np.float32)
    for row in range(4, 24):
        image[row, 14 + (row - 14) // 2 : 17 + (row - 14) // 2] = 255
    facts = shape_facts(image)
    assert facts["ends"] == "two free ends"
    assert facts["slant"] == "falling"


def test_distractors_change_the_fine_text_alone() -> None:
    plain, noisy = described_digits(30, 0, 0), described_digits(30, 4, 0)
    assert plain.texts["coarse"] == noisy.texts["coarse"]
    for short, long in zip(plain.texts["fine"], noisy.texts["fine"], strict=True):
        assert long.startswith(short)
        assert long.count(",") == short.count(",") + 4
    np.testing.assert_array_equal(plain.images, noisy.images)


def test_descriptions_never_name_the_digit() -> None:
    found = described_digits(60, 0, 1)
    names = [str(i) for i in range(10)]
    names += ["zero", "four", "five", "six", "seven", "eight", "nine"]  # up to three is counting
    assert all(spelled_out(text, names) is None for text in found.texts["fine"])


def test_emoji_are_base_pictures_whose_names_tell_no_category() -> None:
    found = emoji_or_skip()
    assert found.images.shape[1:] == (64, 64, 3)
    assert found.truth is not None
    assert np.bincount(found.truth).min() >= 20
    assert len(found.images) < 1700  # no country flags
    for texts in found.texts.values():
        assert all(spelled_out(t, found.classes) is None for t in texts)
    assert len(set(found.texts["coarse"])) < len(set(found.texts["fine"]))


def test_absent_emoji_name_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(_emoji.VARIABLE, str(tmp_path))
    with pytest.raises(ProblemError, match=r"npm pack emoji-datasource-twitter@16\.0\.0"):
        open_any("emoji", {})
