"""``lamps policy evaluate``: policies replayed on landmark tables, side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lamps.cli.output import dump, emit, maximize_option, output_options
from lamps.errors import ConfigError

if TYPE_CHECKING:
    from lamps.policy.contest import Plan
    from lamps.policy.evaluate import Score
    from lamps.policy.material import Material
    from lamps.policy.summaries import Summary


@click.command()
@click.option(
    "--tables",
    multiple=True,
    metavar="DIR",
    help="Folder or file of landmark tables in long form (repeatable).  [default: our own]",
)
@click.option("--shipped", is_flag=True, help="Our own tables as well as those of --tables.")
@click.option("--held-out", is_flag=True, help="Our tables that were kept out of training.")
@click.option(
    "--policy",
    "names",
    multiple=True,
    metavar="NAME",
    help="Who takes part (repeatable).  [default: lamps and all others]",
)
@click.option("--weights", metavar="FILE", help="Weights of lamps instead of the shipped ones.")
@maximize_option
@click.option(
    "--objectives",
    multiple=True,
    metavar="A,B",
    help="A set of objectives (repeatable).  [default: pairs and triples of each table]",
)
@click.option("--sets", default=3, show_default=True, help="Sets of objectives per table.")
@click.option(
    "--workers",
    multiple=True,
    type=int,
    metavar="N",
    help="Landmarks at once (repeatable).  [default: 1]",
)
@click.option("--seeds", default=3, show_default=True, help="Of policies that use chance.")
@click.option("--pool", default=128, show_default=True, help="Largest pool; 0 takes all.")
@click.option("--samples", default=1, show_default=True, help="Samples of a larger table.")
@click.option("--landmarks", default=0, help="Thin curves to this many; 0 keeps all.")
@click.option(
    "--leave-out",
    type=click.Choice(["table", "task", "family"]),
    help="Train lamps anew without what it is judged on.",
)
@click.option("--folds", default=0, help="Join what is left out to this many folds.")
@click.option("--train-iterations", type=int, metavar="N", help="Of each training.")
@click.option("--train-seed", default=0, help="Of each training.")
@click.option("--synthetic", type=float, metavar="SHARE", help="Of made-up training episodes.")
@click.option("--ablations", is_flag=True, help="Also lamps without what it is made of.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keeps scores and trainings; the same command goes on from there.",
)
@click.option("--store", metavar="URL", help="Database that gets the scores.")
@output_options
def evaluate(
    tables: Sequence[str],
    shipped: bool,
    held_out: bool,
    names: Sequence[str],
    weights: str | None,
    maximize: Sequence[str],
    objectives: Sequence[str],
    sets: int,
    workers: Sequence[int],
    seeds: int,
    pool: int,
    samples: int,
    landmarks: int,
    leave_out: str | None,
    folds: int,
    train_iterations: int | None,
    train_seed: int,
    synthetic: float | None,
    ablations: bool,
    jobs: int,
    out: Path | None,
    store: str | None,
    as_json: bool,
    nl: bool,
) -> None:
    """Replay policies on landmark tables and compare them.

    Times are shares of what it takes to finish every candidate on as many workers, until the
    finished ones have 99 % of the best possible hypervolume. Tables are CSV, CSV.gz or Parquet in
    long form, see lamps table import --help. What cannot be read is listed on stderr, the rest is
    evaluated. Nothing is trained unless --leave-out is given.

    \b
    Example:
      lamps policy evaluate --tables curves/ --policy lamps --policy front-racing --json
    """  # noqa: D301
    from lamps.cli.policy_output import summary_rows
    from lamps.policy import contest
    from lamps.policy.curve_samples import curves_of
    from lamps.policy.evaluate import averaged
    from lamps.policy.results import file_name, parse_results
    from lamps.policy.summaries import summarise

    plan = contest.Plan(
        policies=tuple(dict.fromkeys(names)) or contest.POLICIES,
        objectives=tuple(_split(text) for text in objectives),
        workers=tuple(dict.fromkeys(workers)) or (1,),
        seeds=seeds,
        largest_pool=pool,
        samples=samples,
        most_landmarks=landmarks,
        most_sets=sets,
        leave_out=leave_out or "",
        folds=folds,
        ablations=ablations,
        weights=weights or "",
        iterations=train_iterations,
        synthetic=synthetic,
        train_seed=train_seed,
    )
    plan.check()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        click.echo(line, err=True)

    material = _material(tables, shipped, held_out, maximize)
    for line in material.left_out:
        say(f"left out: {line}")
    if plan.leave_out and held_out:
        raise ConfigError("--held-out tables are never trained on; evaluate them in another call")
    progress = _Progress()
    try:
        work = contest.prepare(material.tables, plan, folder=out, say=say)
        raw = contest.play(work, folder=out, jobs=jobs, say=say, progress=progress)
    except KeyboardInterrupt:
        how = f"{progress.done} of {progress.all} replays are done; " if progress.all else ""
        kept = f"{out} keeps them, the same command goes on" if out else "--out DIR keeps them"
        click.echo(f"interrupted: {how}{kept}", err=True)
        raise
    scores = averaged(raw)
    summaries = summarise(scores)
    document = _document(scores, summaries, plan, material, said)
    document["settings"]["held_out"] = held_out and not (tables or shipped)
    if out is not None:
        document["curves"] = curves_of(work)
        _write(out / file_name(parse_results(document).kind), dump(document, indent=1))
    if store is not None:
        _keep(store, raw)
    emit(
        summary_rows(summaries), as_json=as_json, nl=nl, document=document, title=_title(document)
    )


def _split(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"--objectives {text!r}, expected names with commas between")
    return found


def _material(
    paths: Sequence[str], shipped: bool, held_out: bool, maximize: Sequence[str]
) -> Material:
    from lamps.policy import material

    found = material.gather(paths, maximize)
    if shipped or not (paths or held_out):
        found.extend(material.shipped(held_out=False))
    if held_out:
        found.extend(material.shipped(held_out=True))
    return found


class _Progress:
    """A line on stderr every few seconds."""

    def __init__(self) -> None:
        self.done, self.all, self._said = 0, 0, time.monotonic()

    def __call__(self, done: int, all_: int) -> None:
        self.done, self.all = done, all_
        pause = 1.0 if sys.stderr.isatty() else 20.0
        if time.monotonic() - self._said > pause:
            self._said = time.monotonic()
            click.echo(f"{done}/{all_} replays", err=True)


def _document(
    scores: Sequence[Score],
    summaries: Sequence[Summary],
    plan: Plan,
    material: Material,
    said: Sequence[str],
) -> dict[str, Any]:
    from lamps.policy.contest import LEARNED
    from lamps.policy.scorebook import as_dict, code_version
    from lamps.policy.summaries import paired

    known = {s.policy for s in scores}
    one = LEARNED if LEARNED in known else scores[0].policy
    used = {s.fingerprint for s in scores}
    return {
        "settings": {
            "command": _command(),
            **plan.as_dict(),
            "seen": len(used & _seen(plan.weights))
            if one == LEARNED and not plan.leave_out
            else 0,
            "code": code_version(),
            "versions": _versions(),
            "tables": [
                {
                    "name": t.name,
                    "family": t.family,
                    "candidates": len(t.candidates),
                    "landmarks": len(t.fidelities),
                    "objectives": [f"{o.name} ({o.direction})" for o in t.objectives],
                    "fingerprint": t.fingerprint(),
                }
                for t in material.tables
                if t.fingerprint() in used
            ],
        },
        "scores": [as_dict(s) for s in scores],
        "summary": [asdict(s) for s in summaries],
        "paired": [asdict(p) for p in paired(scores, one)],
        "notes": list(said),
    }


def _seen(file: str) -> set[str]:
    """Hashes of the tables that the learned policy was trained on."""
    from lamps.policy import weights

    try:
        found = weights.load(Path(file) if file else weights.SHIPPED)
    except ConfigError:
        return set()  # the policy said so and left the decisions to a rule
    return {str(t["fingerprint"]) for t in found.metadata.get("tables", ())}


def _command() -> str:
    """The command as it was typed, without the path of the program."""
    import shlex

    return "lamps " + shlex.join(sys.argv[1:])


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("numpy", "scipy", "moocore", "optuna", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # an extra that is not installed
    return found


def _keep(store: str, raw: Sequence[Score]) -> None:
    from lamps.policy.scorebook import code_version, to_record
    from lamps.store import Store

    code = code_version()

    with Store.open(store) as opened:
        new = opened.add_policy_scores([to_record(s, code) for s in raw])
        click.echo(f"{new} new scores of {len(raw)} in {opened.url}", err=True)


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def _title(document: dict[str, Any]) -> str:
    settings = document["settings"]
    how = f"without the {settings['leave_out']}" if settings["leave_out"] else "as they are"
    return (
        f"{len(settings['tables'])} tables, policies {how}; times in % of the exhaustive time to "
        "99, 99.9 and 100 % of the best hypervolume"
    )
