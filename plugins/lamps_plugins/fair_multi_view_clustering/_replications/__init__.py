"""Replications of the family."""
