"""Clusterings of samples seen in several views that treat groups of people alike."""
