"""``lamps kernel``: which kernels there are, what runs them here, and whether they are right."""

from __future__ import annotations

from dataclasses import asdict

import click

from lamps.cli.output import emit, output_options
from lamps.errors import PluginError


@click.group()
def kernel() -> None:
    """List and check kernels."""


@kernel.command(name="list")
@output_options
def list_(as_json: bool, nl: bool) -> None:
    """List all kernels with what runs them on this machine: Triton on a GPU, torch elsewhere.

    \b
    Example:
      lamps kernel list
    """  # noqa: D301
    import torch

    from lamps import kernels

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for name in kernels.names():
        try:
            found = kernels.get(name)
        except PluginError as error:
            click.echo(f"unusable: {error}", err=True)
            continue
        summary = (found.torch.__globals__["__doc__"] or "").strip().partition("\n")[0]
        rows.append(
            {
                "kernel": name,
                "device": device,
                "runs": found.implementation(device),
                "summary": summary,
            }
        )
    emit(rows, as_json=as_json, nl=nl)


@kernel.command()
@click.argument("names", nargs=-1)
@output_options
def check(names: tuple[str, ...], as_json: bool, nl: bool) -> None:
    """Check kernels against float64: NAMES, or all; Triton is interpreted where no GPU is.

    \b
    Example:
      lamps kernel check ties
    """  # noqa: D301
    from lamps.testing.kernels import check_kernels

    outcomes = check_kernels(names)
    emit([asdict(o) for o in outcomes], as_json=as_json, nl=nl)
    bad = [o for o in outcomes if not o.passed]
    if bad:
        raise PluginError(
            f"{len(bad)} of {len(outcomes)} checks failed: {bad[0].kernel}, {bad[0].check}, "
            f"{bad[0].case}: {bad[0].detail}"
        )
