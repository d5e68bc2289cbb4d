"""Replications: what papers on sparse attention claim, measured on small decoders."""
