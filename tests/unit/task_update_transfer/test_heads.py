"""The refitted head: closed form, few texts a class."""

from __future__ import annotations

import numpy as np
import pytest
from lamps_plugins.task_update_transfer._heads import SHRINKAGE, ridge_head, shots

from lamps.errors import ProblemError


def test_the_head_solves_its_normal_equations() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 4)).astype(np.float32), rng.integers(0, 3, 30)
    weight, bias = ridge_head(x, y, 3)
    centred = x - x.mean(0)
    wanted = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    c = SHRINKAGE * np.square(centred).sum() / 4
    left = (centred.T @ centred + c * np.eye(4)) @ weight.T
    np.testing.assert_allclose(left, centred.T @ (wanted - wanted.mean(0)), atol=1e-3)
    np.testing.assert_allclose(bias, wanted.mean(0) - weight @ x.mean(0), atol=1e-5)


def test_turning_the_features_turns_the_head() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((40, 5)).astype(np.float32), rng.integers(0, 2, 40)
    turn, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    weight, bias = ridge_head(x, y, 2)
    turned, bias_turned = ridge_head((x @ turn).astype(np.float32), y, 2)
    np.testing.assert_allclose(turned, weight @ turn, atol=1e-4)
    np.testing.assert_allclose(bias_turned, bias, atol=1e-4)


def test_shots_are_the_first_of_each_class_and_all_there_are() -> None:
    assert shots(np.array([1, 1, 0, 1]), 2, 2).tolist() == [0, 1, 2]


def test_a_class_without_a_text_is_refused() -> None:
    with pytest.raises(ProblemError, match="class number 2"):
        shots(np.array([0, 1]), 3, 1)
