"""The flags of the family, in a file of their own so that ``lamps search --help`` stays quick."""

from __future__ import annotations

from lamps.method import ProblemOption

OPTIONS = (
    ProblemOption(
        name="n_points", doc="Points to learn from, 16 or more.", kind="int", default=128
    ),
    ProblemOption(
        name="noise", doc="Standard deviation of y around the curve.", kind="float", default=0.1
    ),
)
