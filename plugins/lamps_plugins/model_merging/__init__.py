"""Merging experts that were fine-tuned from one base into one model."""
