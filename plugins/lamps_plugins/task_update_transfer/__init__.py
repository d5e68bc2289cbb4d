"""Reuse of one fine-tuning run on another base: an updated one, or one of another width."""
