"""A run as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from lamps.errors import ConfigError
from lamps.report.document import document
from lamps.runs import Run


def write_report(run: Run, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the report of a run.

    Args:
        run: The run, in whatever state it is.
        out: The HTML file to write.
        overwrite: Whether a file that is there may be replaced.

    Returns:
        The file.

    Raises:
        ConfigError: The file exists, or its folder does not.

    Example:
        >>> import lamps, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = f"sqlite:///{folder}/lamps.db"
        ...     run = lamps.search(problem="text-classification:toy", methods=["tfidf-logreg"],
        ...                        backend="local", store=store, name="toy")
        ...     text = write_report(run, f"{folder}/toy.html").read_text()
        >>> text.startswith("<!doctype html>")
        True
    """
    path = Path(out)
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} exists; give --overwrite, or another name")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}; make it, or name another file")
    text = render(document(run))
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def render(doc: Mapping[str, Any]) -> str:
    """The page of a document as `lamps.report.document.document` makes it."""
    static = files("lamps.report") / "static"

    def text(name: str) -> str:
        return (static / name).read_text(encoding="utf-8")

    run = doc["run"]
    return Template(text("report.html")).substitute(
        title=_escaped(f"{run['name']} - lamps report"),
        name=_escaped(run["name"]),
        summary=_summary(doc),
        style=text("report.css"),
        script=text("report.js"),
        data=_embedded(doc),
        front=_front_table(doc),
        failures=_failures(doc["failures"]),
        models=_table(
            ("model", "kind", "parameters", "licence", "source"),
            ((m["name"], m["kind"], m["parameters"], m["licence"], m["source"])
             for m in doc["models"]),
            empty="No pretrained model took part.",
        ),
        environment=_facts(doc["environment"]),
        card=_facts(doc["card"]),
        command=_escaped(doc["command"]),
    )  # fmt: skip


def _escaped(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _embedded(doc: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element it stands in, whatever labels hold."""
    text = json.dumps(doc, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _summary(doc: Mapping[str, Any]) -> str:
    run = doc["run"]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run["created_at"]))
    finished = run["counts"].get("complete", 0)
    facts = {
        "problem": f"{run['problem']} ({run['family']})",
        "state": run["state"] + (f": {run['note']}" if run["note"] else ""),
        "candidates": f"{finished} of {run['n_trials']} finished, "
        f"{sum(t['front'] for t in doc['trials'])} on the front",
        "landmarks": run["n_landmarks"],
        "seconds": f"{run['wall_s'] or 0:.0f} on the clock, {run['cost_s'] or 0:.0f} of landmarks",
        "policy": run["policy"],
        "begun": when,
    }
    return _facts(facts)


def _facts(values: Mapping[str, Any]) -> str:
    """A definition list; what is nested stays JSON."""
    lines = []
    for key, value in values.items():
        shown = value
        if isinstance(value, Mapping | list | tuple):
            shown = json.dumps(value, ensure_ascii=False)
        if isinstance(shown, str) and len(shown) > 400:
            shown = shown[:400] + " ..."
        lines.append(f"<dt>{_escaped(key)}</dt><dd>{_escaped(shown)}</dd>")
    return f"<dl>{''.join(lines)}</dl>" if lines else "<p>Nothing was recorded.</p>"


def _front_table(doc: Mapping[str, Any]) -> str:
    names = [o["name"] for o in doc["objectives"]]
    chosen = doc["front_objectives"]
    units = {o["name"]: o["unit"] for o in doc["objectives"]}
    columns = [names.index(name) + 2 for name in chosen]  # behind landmark and seconds
    members = [t for t in doc["trials"] if t["front"] and t["curve"]]
    down = {o["name"]: o["direction"] != "maximize" for o in doc["objectives"]}
    sign = 1 if down[chosen[0]] else -1
    members.sort(key=lambda t: sign * (t["curve"][-1][columns[0]] or 0.0))
    tests = sorted({k for t in members for k in t["test"] if k == f"test_{_stem(chosen[0])}"})
    head = ("#", "candidate", *(f"{n} [{units[n]}]" for n in chosen), *tests)
    rows = (
        (
            t["index"],
            t["label"],
            *(_number(t["curve"][-1][c]) for c in columns),
            *(_tested(t["test"], name) for name in tests),
        )
        for t in members
    )
    return _table(head, rows, empty="No candidate has been finished yet.")


def _stem(name: str) -> str:
    return name.removeprefix("val_")


def _tested(test: Mapping[str, Any], name: str) -> str:
    if name not in test:
        return ""
    low, high = test.get(f"{name}_low"), test.get(f"{name}_high")
    interval = f" [{_number(low)}, {_number(high)}]" if low is not None else ""
    return _number(test[name]) + interval


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"


def _failures(failures: Sequence[Mapping[str, Any]]) -> str:
    return _table(
        ("decision", "candidate", "fidelity", "state", "what happened"),
        (
            (f["seq"], f"#{f['trial']} {f['label']}", f"{f['fidelity']:g}", f["state"], f["error"])
            for f in failures
        ),
        empty="Nothing failed.",
    )


def _table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, empty: str) -> str:
    body = "".join(
        "<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    if not body:
        return f"<p>{_escaped(empty)}</p>"
    top = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in head)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="table">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
