"""``lamps policy``: who decides what runs next, how well, and how the learned one is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lamps.cli.output import emit, output_options, store_option
from lamps.cli.policy_evaluate import evaluate
from lamps.cli.policy_report import report
from lamps.cli.policy_train import train


@click.group()
def policy() -> None:
    """List, train, compare and show allocation policies."""


policy.add_command(train)
policy.add_command(evaluate)
policy.add_command(report)


@policy.command(name="list")
@output_options
def list_(as_json: bool, nl: bool) -> None:
    """List all policies; the default is marked.

    \b
    Example:
      lamps policy list
    """  # noqa: D301
    from lamps import policy as policies

    rows = []
    for name in policies.names():
        cls = policies.load(name)
        rows.append(
            {
                "policy": name,
                "version": cls.version,
                "default": name == policies.DEFAULT,
                "summary": cls.summary,
            }
        )
    emit(rows, as_json=as_json, nl=nl)


@policy.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@output_options
def show(file: Path | None, as_json: bool, nl: bool) -> None:
    """Show what a file of weights says about itself; the shipped one if none is named.

    \b
    Example:
      lamps policy show mine.safetensors
    """  # noqa: D301
    from lamps.policy import weights

    path = file or weights.SHIPPED
    found = weights.load(path)
    said = found.metadata
    tables = list(said.get("tables", []))
    about: dict[str, Any] = {
        "file": str(path),
        "sha256": found.sha256,
        "features": said.get("features"),
        "parameters": sum(int(t.size) for t in found.tensors.values()),
        "size_bytes": path.stat().st_size,
        "doubt": said.get("doubt"),
        "training_score": said.get("training_score", {}),
        "settings": said.get("settings", {}),
        "versions": said.get("versions", {}),
        "bounds": said.get("bounds", {}),
    }
    title = "\n".join(f"{key}: {_text(value)}" for key, value in about.items())
    title += f"\ntrained on {len(tables)} tables"
    short = [{**row, "fingerprint": str(row.get("fingerprint", ""))[:12]} for row in tables]
    emit(
        tables if as_json or nl else short,
        as_json=as_json,
        nl=nl,
        document={**about, "tables": tables},
        columns=None if tables else ("table",),
        title=title,
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_text(v) for v in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@policy.command()
@store_option
@output_options
def scores(store: str | None, as_json: bool, nl: bool) -> None:
    """List what stored evaluations say of each policy.

    \b
    Example:
      lamps policy scores --store sqlite:///lamps.db
    """  # noqa: D301
    from lamps.cli.policy_output import summary_rows
    from lamps.config import load_settings
    from lamps.policy.evaluate import averaged
    from lamps.policy.scorebook import from_record
    from lamps.policy.summaries import summarise
    from lamps.store import Store

    url = load_settings({"store": store}).store
    with Store.open(url) as opened:
        records = opened.policy_scores()
    found = []
    for code in dict.fromkeys(r.code for r in records):
        some = [from_record(r) for r in records if r.code == code]
        for one in summarise(averaged(some)):
            found.append((code, one))
    rows = [{**row, "code": code} for code, one in found for row in summary_rows([one])]
    emit(
        rows,
        as_json=as_json,
        nl=nl,
        title=f"{len(records)} scores" if rows else "no scores; lamps policy evaluate --store",
    )
