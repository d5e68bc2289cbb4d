"""``make bench-live``: policies against each other in real searches on the tasks kept out.

Every search is `lamps.search` on Ray over the candidates of the meta-dataset, from the same state
of the caches: converted models are there, tokens and features are not. The exhaustive search of a
task comes first and is the reference. From its values follows the optimal hypervolume, and when
the others have reached 99 % of it: a candidate counts, once finished, with the values that the
reference measured, so that noise in latencies neither helps nor hurts.

One run answers both questions. Until the policy stops by itself it is asked as in any search
without a budget, and the moment is noted; then it is asked again as if there were a budget left,
and goes on until 99 % are reached. A policy that stops even then leaves the rest to be finished in
the order of the pool; one that never stops by itself ends at 99 %.

Hours; may be stopped at any time, the same command goes on. Results are in
``build/bench_live/results.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from lamps_meta_dataset import machine
from lamps_meta_dataset.build import Size, own_cache, say, write_sample
from lamps_meta_dataset.candidates import pool
from lamps_meta_dataset.tasks import TASKS
from live_policy import POLICIES, Watch, watched
from live_score import Reference, Score, score, show

import lamps
from lamps import policy as policies
from lamps.plugins import hooks
from lamps.types import Candidate

REFERENCE = "exhaustive"
RIVALS = (REFERENCE, "random", "mo-asha", "front-racing", "optuna:tpe", "lamps")
ENDLESS = ("random", "smallest-first", "round-robin")
"""They stop when everything has been run; beside the reference that is not worth the hours."""
QUICK = Size(train=160, val=80, test=40, max_length=24, landmarks=4)


@dataclass(frozen=True, slots=True)
class Bench:
    """What is the same for all searches.

    Args:
        folder: Databases, logs and results.
        candidates: The pool.
        objectives: What fronts are drawn over.
        size: Of the samples.
        seed: Of the searches.
        workers: Landmarks at once.
    """

    folder: Path
    candidates: tuple[Candidate, ...]
    objectives: tuple[str, ...]
    size: Size
    seed: int
    workers: int

    def home(self, task: str) -> Path:
        """The folder of a task under these settings: other settings never mix."""
        kind = f"n{len(self.candidates)}-t{self.size.train}-s{self.seed}-w{self.workers}"
        return self.folder / f"{task}-{kind}-{'+'.join(self.objectives)}"

    def search(self, task: str, policy: str, reference: Reference | None) -> bool:
        """Run one search, or go on with it; whether it has come to its end."""
        home = self.home(task)
        folder = home / policy.replace(":", "-")
        folder.mkdir(parents=True, exist_ok=True)
        url, name = f"sqlite:///{folder.absolute()}/lamps.db", policy.replace(":", "-")
        watch = Watch(folder / "log.jsonl", last=self.size.landmarks, reference=reference)
        if watch.over:
            return True
        watch.endless = policy.startswith("optuna:") or policy in ENDLESS
        POLICIES["watched"] = watched(policies.load(policy), watch)
        with lamps.open_store(url) as store:
            states = {run.name: run.state for run in store.runs()}
        with own_cache(folder):
            if states.get(name) == "finished":  # killed between the last landmark and its log
                run = lamps.open_store(url).run(name)
            elif name in states:
                run = lamps.resume(name, store=url, listener=watch)
            else:
                run = lamps.search(
                    write_sample(task, home, self.size),
                    candidates=self.candidates,
                    objectives=self.objectives,
                    policy="watched",
                    workers=self.workers,
                    store=url,
                    name=name,
                    seed=self.seed,
                    listener=watch,
                    **self.size.options(),
                )
        with run:
            if run.record.state != "finished":
                return False
            if policy == REFERENCE:
                Reference.of(run, watch.elapsed_s).write(home / "reference.json")
        watch.end()
        return True


def convert(candidates: Sequence[Candidate]) -> None:
    """Convert the models once, on a toy problem, so that no search pays for it."""
    first = {str(c.params.get("model")): c for c in reversed(candidates)}
    with tempfile.TemporaryDirectory() as folder:
        lamps.search(
            problem="text-classification:toy",
            candidates=list(first.values()),
            policy="exhaustive",
            backend="local",
            store=f"sqlite:///{folder}/toy.db",
            name="toy",
        )


def spread(n: int) -> tuple[Candidate, ...]:
    """So many candidates of the pool, evenly over the list."""
    whole = pool()
    return tuple(whole[round(k * (len(whole) - 1) / max(n - 1, 1))] for k in range(n))


def main() -> int:
    """Search what is left, write the results, print the table."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    held_out = [name for name, task in TASKS.items() if task.held_out]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=held_out, choices=list(TASKS))
    parser.add_argument("--policies", nargs="+", default=list(RIVALS), metavar="POLICY")
    parser.add_argument("--candidates", type=int, default=len(pool()), metavar="N")
    parser.add_argument("--objectives", nargs="+", default=["val_error", "latency_ms"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("build/bench_live"))
    parser.add_argument("--quick", action="store_true", help="one task, 12 candidates, small")
    parser.add_argument("--dry-run", action="store_true", help="say what is left, search nothing")
    given = parser.parse_args()
    if not 2 <= given.candidates <= len(pool()):
        parser.error(f"--candidates is {given.candidates}, expected 2 to {len(pool())}")
    if given.quick:
        given.tasks, given.candidates = given.tasks[:1], min(given.candidates, 12)
    rivals = [REFERENCE, *(p for p in dict.fromkeys(given.policies) if p != REFERENCE)]
    for name in rivals:
        policies.load(name)
    bench = Bench(
        given.folder, spread(given.candidates), tuple(given.objectives),
        QUICK if given.quick else Size(), given.seed, given.workers,
    )  # fmt: skip
    hooks().register(POLICIES, name="bench-live")
    left = [(t, p) for t in given.tasks for p in rivals if not finished(bench, t, p)]
    say(f"{len(left)} of {len(given.tasks) * len(rivals)} searches are left")
    interrupted = False
    if left and not given.dry_run:
        machine.record(given.folder)
        convert(bench.candidates)
        interrupted = not all(one(bench, task, policy, left) for task, policy in left)
    scores = [s for task in given.tasks for policy in rivals if (s := result(bench, task, policy))]
    write(scores, given.folder)
    show(scores)
    return 130 if interrupted else 0


def finished(bench: Bench, task: str, policy: str) -> bool:
    """Whether a search has come to its end."""
    log = bench.home(task) / policy.replace(":", "-") / "log.jsonl"
    return Watch(log, last=bench.size.landmarks).over


def one(bench: Bench, task: str, policy: str, left: Sequence[tuple[str, str]]) -> bool:
    """Run one of the searches that are left; False if it was interrupted."""
    say(f"{task}, {policy}: {left.index((task, policy)) + 1} of {len(left)}")
    known = None if policy == REFERENCE else Reference.read(bench.home(task) / "reference.json")
    return bench.search(task, policy, known)


def result(bench: Bench, task: str, policy: str) -> Score | None:
    """The score of a search that has ended."""
    home = bench.home(task)
    if not finished(bench, task, policy):
        return None
    watch = Watch(home / policy.replace(":", "-") / "log.jsonl", last=bench.size.landmarks)
    return score(task, policy, watch.lines, Reference.read(home / "reference.json"), watch.last)


def write(scores: Sequence[Score], folder: Path) -> None:
    """Merge scores into the results, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / "results.json", folder / f"results.{os.getpid()}"
    before = json.loads(path.read_text()) if path.exists() else []
    new = {s.key: s.as_dict() for s in scores}
    kept = [r for r in before if r["key"] not in new]
    part.write_text(json.dumps([*kept, *new.values()], indent=1) + "\n")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
