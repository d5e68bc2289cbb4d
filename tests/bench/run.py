"""``make bench``: the figures that lamps promises, measured side by side in one run.

Every figure is a median over repetitions; where there is a rival, both take turns (A B A B ...)
and the ratio is taken pair by pair, so a machine that slows down in between does not decide.
Absolute times belong to the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_table import Figure, show

BENCHES = {
    "imports": "import lamps, lamps --help",
    "decision": "seconds per decision of every policy",
    "env": "steps per second of the training environment",
    "front": "front query over 100,000 evaluations",
    "resume": "resume of a killed run of 1,000 trials",
    "overhead": "overhead per landmark beside Ray Tune",
    "postgres": "eight searches and a reader on PostgreSQL for ten minutes",
    "soak": "memory, database and logs over 10,000 landmarks",
    "finetune": "fine-tuning throughput beside transformers.Trainer",
}


def main() -> int:
    """Run the chosen benches and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(BENCHES)}; all if none")
    parser.add_argument("--json", type=Path, help="write the figures into this file as well")
    given = parser.parse_args()
    unknown = set(given.names) - set(BENCHES)
    if unknown:
        parser.error(f"no bench {sorted(unknown)[0]!r}; known: {', '.join(BENCHES)}")
    figures: list[Figure] = []
    for name in given.names or BENCHES:
        print(f"measuring: {BENCHES[name]} ...", file=sys.stderr, flush=True)
        measure: Callable[[], list[Figure]] = import_module(f"bench_{name}").measure
        figures += measure()
    show(figures)
    if given.json:
        given.json.write_text(json.dumps([f.as_dict() for f in figures], indent=2) + "\n")
    return 0 if all(f.met for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
