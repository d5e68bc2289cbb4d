"""Replications of the family, one file a method."""
