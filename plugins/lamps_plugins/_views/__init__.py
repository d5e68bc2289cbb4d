"""Several views of the same things: data, masks, metrics and the base of all clusterers."""
