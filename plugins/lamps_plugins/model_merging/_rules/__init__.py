"""Merging rules as pure functions, tensors in and tensors out; conventions for all modules here.

- Dense updates of layers that share a shape: ``deltas: [K, L, m, n]`` float32, K experts, L layers
  (L may be 1), the difference of an expert's weight and the base's. One-dimensional parameters are
  ``[K, L, d]``. A rule returns the merged update, ``[L, m, n]`` or ``[L, d]``, to be added to the
  base. Layers are independent: a batch equals its layers one by one, except where a rule says that
  it looks at the whole model (`ties.ties_model`).
- Low-rank updates: `lowrank.LowRank`, scale folded in. Rules on it return a `LowRank` of one
  expert where the result has low rank, which `LowRank.merged` turns into ``[L, m, n]``. No dense
  update of an expert is formed unless the docstring says so.
- float32 and float64 are kept, half precision is computed in float32; singular value
  decompositions run in float64 where ``min(m, n) <= 512``, but for the bases of KnOTS and of Core
  Space, which keep the precision of their input.
- Inputs are never written to. What is random takes an integer seed; nothing else is.
- Tensors that cannot be merged raise `lamps.errors.ProblemError`, settings out of range
  `lamps.errors.ConfigError`.
"""
