"""``python -m lamps_plugins._small_lms``: the same as ``lamps small-lms``."""

from lamps_plugins._small_lms._cli import small_lms

if __name__ == "__main__":
    small_lms(prog_name="python -m lamps_plugins._small_lms")
