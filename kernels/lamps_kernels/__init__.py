"""Triton kernels with their plain torch twins."""
