"""Every kernel: twin and Triton version against float64, refusals, compilation for a GPU."""

from __future__ import annotations

import re
from functools import cache

import pytest
from lamps_kernels._kernel import Case, Inputs, Kernel, Refusal, Tolerance

from lamps import kernels
from lamps.errors import PluginError
from lamps.testing.kernels import Outcome, check_kernels, check_twin, has_triton

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.xdist_group("kernels"), pytest.mark.timeout(600)]


@cache
def outcomes() -> list[Outcome]:
    """All kernels in one child process each for running and for compiling."""
    return check_kernels()


@pytest.mark.parametrize("name", kernels.names())
def test_kernel(name: str) -> None:
    mine = [o for o in outcomes() if o.kernel == name]
    assert [o for o in mine if not o.passed] == []
    kernel = kernels.get(name)
    assert kernel.name == name
    seen = {o.check for o in mine}
    assert "twin" in seen
    assert ("refusal" in seen) == bool(kernel.refusals)
    if has_triton([name]):
        assert {"triton", "compile"} <= seen


def _broken(**changes: object) -> Kernel:
    """Doubles a vector; whatever is asked of it can be changed."""

    def inputs(device: torch.device, dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        return {"x": torch.randn(5, generator=generator).to(device, dtype)}

    kwargs: dict[str, object] = {
        "name": "broken",
        "torch": lambda x: 2 * x,
        "triton": lambda x: 2 * x,
        "reference": lambda x: 2 * x.double(),
        "cases": (Case(name="five", inputs=inputs),),
        "tolerances": {torch.float32: Tolerance(absolute=1e-6, relative=1e-6)},
    }
    return Kernel(**kwargs | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"torch": lambda x: 2.001 * x}, "at most 1e-06"),
        ({"torch": lambda x: x * torch.nan}, "absolute inf"),
        ({"torch": lambda x: (2 * x)[:4]}, r"shape \[4\], \[5\] is wanted"),
        ({"torch": lambda x: (2 * x, x)}, "2 tensors, 1 are wanted"),
        ({"reference": lambda x: x.double() * torch.inf}, "inf or NaN in other places"),
        (
            {"refusals": (Refusal(name="any", inputs=lambda: {"x": torch.ones(1)}, match="no"),)},
            "accepted",
        ),
        (
            {"refusals": (Refusal(name="any", inputs=lambda: {"y": 1}, match="no"),)},
            "TypeError instead of ValueError",
        ),
    ],
)
def test_the_suite_finds_what_is_wrong(
    changes: dict[str, object], detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "get", lambda name: _broken(**changes))
    (bad,) = [o for o in check_twin("broken") if not o.passed]
    assert re.search(detail, bad.detail), bad.detail


def test_a_right_kernel_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "get", lambda name: _broken())
    assert [o.passed for o in check_twin("broken")] == [True]


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(PluginError, match=r"no kernel 'tie'.*Did you mean 'ties'"):
        kernels.get("tie")
