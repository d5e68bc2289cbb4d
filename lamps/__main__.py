"""``python -m lamps`` is the command ``lamps``."""

from lamps.cli.main import entry

entry()
