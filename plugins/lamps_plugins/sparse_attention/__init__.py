"""Sparse attention for the prefill of decoders: keep the blocks that matter, be exact on them.

An exported member is put to use in any decoder of transformers:

    from lamps_plugins import sparse_attention
    model = AutoModelForCausalLM.from_pretrained(
        FOLDER, attn_implementation=sparse_attention.load(EXPORT))
"""

from __future__ import annotations

from pathlib import Path


def load(directory: str | Path) -> str:
    """Register the rule of an exported member as an attention of transformers.

    Args:
        directory: What ``lamps export`` wrote.

    Returns:
        Its name, for ``attn_implementation`` or ``model.set_attn_implementation``.

    Raises:
        ProblemError: It is no export of this family.
    """
    from lamps_plugins.sparse_attention import _export, _interface

    return _interface.register(_export.load(Path(directory)))
