"""Triton kernels with their plain torch twins.

One file is one kernel and ends with ``KERNEL = Kernel(...)``; `lamps.kernels` finds it there.
"""
