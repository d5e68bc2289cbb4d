"""Small decoders that are trained here, once, and kept in the cache as plain transformers folders.

Not a family of its own: the ground on which decoding and attention of language models are measured
where no download is possible. ``stdlib`` continues Python sources, ``recall`` answers queries of
key-value pairs from its context, ``toy`` exists in seconds. ``lamps small-lms build NAME``, or
``python -m lamps_plugins._small_lms build NAME``, trains one; stopped, the same command goes on.
"""

from lamps_plugins._small_lms._build import build, folder, load

__all__ = ["build", "folder", "load"]
