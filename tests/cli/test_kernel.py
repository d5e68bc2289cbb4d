"""``lamps kernel``: list and check."""

from __future__ import annotations

import pytest
import torch
from _lamps_cli import run

from lamps import kernels
from lamps.errors import PluginError


def test_list_says_what_runs_here() -> None:
    rows = {r["kernel"]: r for r in run("kernel", "list", "--json").document()}
    assert set(rows) == set(kernels.names())
    expected = "triton" if torch.cuda.is_available() else "torch"
    assert {r["runs"] for r in rows.values()} == {expected}
    assert all(r["summary"].endswith(".") for r in rows.values())


def test_a_broken_kernel_is_listed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(name: str) -> object:
        raise PluginError(f"the kernel {name!r} cannot be used: SyntaxError: here")

    monkeypatch.setattr(kernels, "get", get)
    answer = run("kernel", "list", "--json")
    assert (answer.code, answer.document()) == (0, [])
    assert "unusable: the kernel 'ties' cannot be used: SyntaxError" in answer.err


def test_check_runs_the_suite_and_unknown_names_are_refused() -> None:
    assert all(o["passed"] for o in run("kernel", "check", "ties", "--json").document())
    answer = run("kernel", "check", "tie")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("PluginError: no kernel 'tie'. Known: ")
    assert answer.err.endswith("Did you mean 'ties'?\n")


def test_a_failed_check_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from lamps.testing import kernels as suite

    bad = suite.Outcome("ties", "twin", "1x1", False, "absolute 3")
    monkeypatch.setattr(suite, "check_kernels", lambda names: [bad])
    answer = run("kernel", "check", "ties", "--json")
    assert answer.code == 1
    assert answer.err.startswith("PluginError: 1 of 1 checks failed: ties, twin, 1x1: absolute 3")
