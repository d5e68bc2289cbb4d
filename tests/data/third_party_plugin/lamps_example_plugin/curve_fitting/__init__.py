"""The family ``example-curve-fitting``."""
