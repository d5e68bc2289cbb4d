"""Replications: what papers on merging claim, measured on the experts of the zoo."""
