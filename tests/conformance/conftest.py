"""Keeps the checks of one method in one worker, where they share its reference run."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "check" in parameters and "method" in parameters:
            method = parameters["method"]
            name = f"{method.spec.family}/{method.name()}"
            item.add_marker(pytest.mark.xdist_group(name))
