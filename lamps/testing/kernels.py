"""Checks of kernels: both versions against float64, refusals, and compilation without a GPU.

Triton decides when it is imported whether it interprets, so whatever runs Triton does so in a
child process: interpreted on CPU tensors where there is no GPU, compiled on the GPU where there is
one. ``python -m lamps.testing.kernels run ties`` is such a child.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lamps import kernels
from lamps.errors import PluginError

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check said of one kernel.

    Args:
        kernel: Its name.
        check: ``twin``, ``triton``, ``refusal`` or ``compile``.
        case: Name and element type of the case.
        passed: Whether it holds.
        detail: The largest differences from float64, or what went wrong.
    """

    kernel: str
    check: str
    case: str
    passed: bool
    detail: str = ""


def check_kernels(names: Sequence[str] = ()) -> list[Outcome]:
    """Run all checks of the named kernels, of all of them by default.

    Raises:
        PluginError: A kernel of that name does not exist, or a child process broke down.
    """
    import torch

    chosen = list(names) or kernels.names()
    found = [outcome for name in chosen for outcome in check_twin(name)]
    interpret = "0" if torch.cuda.is_available() else "1"
    if has_triton(chosen):
        found += _child("run", chosen, TRITON_INTERPRET=interpret)
        found += _child("compile", chosen, TRITON_INTERPRET="0")
    return found


def has_triton(names: Sequence[str]) -> bool:
    """Whether triton is installed, without which only the twins can be checked."""
    import importlib.util

    return bool(names) and importlib.util.find_spec("triton") is not None


def check_twin(name: str) -> Iterator[Outcome]:
    """The torch version against the reference, and what both refuse."""
    import torch

    kernel = kernels.get(name)
    for case, dtype in _cases(kernel):
        inputs = _inputs(kernel, case, dtype, torch.device("cpu"))
        yield _compared(kernel, "twin", case, dtype, kernel.torch(**inputs), inputs)
    yield from _refused(kernel, kernel.torch, "twin")


def check_triton(name: str) -> Iterator[Outcome]:
    """The Triton version against the reference and, where it promises that, the twin's bits.

    In a process of its own, see the module.
    """
    import torch

    kernel = kernels.get(name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for case, dtype in _cases(kernel):
        inputs = _inputs(kernel, case, dtype, device)
        got = kernel.triton(**inputs)
        outcome = _compared(kernel, "triton", case, dtype, got, inputs)
        if outcome.passed and kernel.exact:
            pairs = zip(kernel.tensors(got), kernel.tensors(kernel.torch(**inputs)), strict=True)
            if not all(torch.equal(a, b) for a, b in pairs):
                outcome = Outcome(
                    kernel.name, "triton", outcome.case, False, "other bits than its twin"
                )
        yield outcome
    yield from _refused(kernel, kernel.triton, "triton")


def check_compiles(name: str) -> Iterator[Outcome]:
    """Every function compiles for compute capability 9.0, without a GPU."""
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource, compile  # type: ignore[import-untyped]

    kernel = kernels.get(name)
    for signature in kernel.signatures:
        # The element types of the pointers tell one signature from the next.
        kinds = sorted({t for t in signature.types.values() if t.startswith("*")})
        label = f"{signature.function.__name__} {' '.join(kinds)}"
        try:
            source = ASTSource(
                fn=signature.function,
                signature=dict(signature.types),
                constexprs=dict(signature.constants),
            )
            built = compile(
                source, target=GPUTarget("cuda", 90, 32), options={"num_warps": signature.warps}
            )
        except Exception as error:
            # Whatever the compiler raises is the finding.
            yield Outcome(kernel.name, "compile", label, False, _line(error))
            continue
        size = len(built.asm["cubin"])
        yield Outcome(kernel.name, "compile", label, size > 0, f"{size} bytes")


def _cases(kernel: Any) -> Iterator[tuple[Any, Any]]:
    for case in kernel.cases:
        for dtype in case.dtypes:
            if dtype in kernel.tolerances:
                yield case, dtype


def _inputs(kernel: Any, case: Any, dtype: Any, device: Any) -> dict[str, Any]:
    import torch

    # The same numbers in every process, others in every case.
    seed = zlib.crc32(f"{kernel.name} {case.name} {dtype}".encode())
    found: dict[str, Any] = case.inputs(device, dtype, torch.Generator().manual_seed(seed))
    return found


def _compared(
    kernel: Any, check: str, case: Any, dtype: Any, got: Any, inputs: dict[str, Any]
) -> Outcome:
    label = f"{case.name} {str(dtype).removeprefix('torch.')}"
    bound = kernel.tolerances[dtype]
    wanted = kernel.tensors(kernel.reference(**inputs))
    found = kernel.tensors(got)
    if len(found) != len(wanted):
        return Outcome(
            kernel.name, check, label, False, f"{len(found)} tensors, {len(wanted)} are wanted"
        )
    absolute = relative = 0.0
    for a, b in zip(found, wanted, strict=True):
        if a.shape != b.shape:
            detail = f"shape {list(a.shape)}, {list(b.shape)} is wanted"
            return Outcome(kernel.name, check, label, False, detail)
        if not a.numel():
            continue
        a, b = a.detach().cpu().double(), b.detach().cpu().double()
        # Infinities and NaN must stand in the same places; what is left is compared.
        odd = ~b.isfinite()
        if not bool((a[odd].nan_to_num(nan=7.0) == b[odd].nan_to_num(nan=7.0)).all()):
            return Outcome(kernel.name, check, label, False, "inf or NaN in other places")
        a, b = a[~odd], b[~odd]
        if not a.numel():
            continue
        difference = a - b
        absolute = _larger(
            absolute, float(difference.abs().max()) / max(1.0, float(b.abs().max()))
        )
        norm = float(b.norm())
        relative = _larger(relative, float(difference.norm()) / norm if norm else 0.0)
    passed = absolute <= bound.absolute and relative <= bound.relative
    detail = f"absolute {absolute:.2g}, relative {relative:.2g}"
    if not passed:
        detail += f"; at most {bound.absolute:g} and {bound.relative:g} are allowed"
    return Outcome(kernel.name, check, label, passed, detail)


def _larger(a: float, b: float) -> float:
    """The larger one; NaN, from a result that is not finite, counts as infinite."""
    return math.inf if math.isnan(b) else max(a, b)


def _refused(kernel: Any, call: Any, check: str) -> Iterator[Outcome]:
    for refusal in kernel.refusals:
        detail, passed = "accepted", False
        try:
            call(**refusal.inputs())
        except ValueError as error:
            detail = _line(error)
            passed = re.search(refusal.match, str(error)) is not None and "\n" not in str(error)
        except Exception as error:
            detail = f"{type(error).__name__} instead of ValueError: {_line(error)}"
        yield Outcome(kernel.name, "refusal", f"{refusal.name} ({check})", passed, detail)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _child(what: str, names: Sequence[str], **environment: str) -> list[Outcome]:
    """What the checks say in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "lamps.testing.kernels", what, *names], capture_output=True,
        text=True, timeout=TIMEOUT_S, env=os.environ | environment, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PluginError(
            f"the process that checks kernels ({what}) ended with exit code {done.returncode}: "
            f"{last}"
        )
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]


def _main(what: str, names: Sequence[str]) -> None:
    check = {"run": check_triton, "compile": check_compiles}[what]
    for name in names:
        for outcome in check(name):
            print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
