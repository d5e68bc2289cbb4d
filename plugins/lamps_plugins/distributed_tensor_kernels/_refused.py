"""Inputs that the family refuses, each with a word of the message it must give."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lamps_plugins.distributed_tensor_kernels._problem import TileFamily

__all__ = ["cases"]


def cases(family: TileFamily) -> Iterator[tuple[str, Callable[[], Any], str]]:
    """Name, a call that must be refused, and the culprit that the message names."""

    def opened(reference: str | None, **options: Any) -> Callable[[], Any]:
        return lambda: family.open_problem(reference, options)

    yield "no_operator", opened(None), "ag_gemm"
    yield "unknown_operator", opened("ag_gem"), "Did you mean 'ag_gemm'?"
    yield "unknown_option", opened("ag_gemm", rank=2), "Did you mean 'ranks'?"
    yield "unknown_size", opened("ag_gemm", shape="q=3"), "no size 'q'"
    yield "shape_text", opened("ag_gemm", shape="m:3"), "NAME=NUMBER"
    yield "zero_size", opened("ag_gemm", shape="k=0"), "k is 0"
    yield "negative_size", opened("gemm_rs", shape="m=-4"), "m is -4"
    yield "no_ranks", opened("ag_gemm", ranks=0), "ranks is 0"
    yield "too_many_ranks", opened("ag_gemm", ranks=99), "ranks is 99"
    yield "unknown_transport", opened("ag_gemm", transport="nccl"), "'nccl'"
    yield "link_without_simulation", opened("ag_gemm", link_beta=10.0), "simlink"
    yield "link_beta", opened("ag_gemm", transport="simlink", link_beta=0.0), "link_beta is 0"
    yield "link_alpha", opened("ag_gemm", transport="simlink", link_alpha=-1.0), "link_alpha is -1"
    yield "wait", opened("ag_gemm", wait_s=0.0), "wait_s is 0"
    yield "seed", opened("ag_gemm", operand_seed=-1), "operand_seed is -1"
    yield "experts", opened("a2a_grouped_gemm", shape="e=1", ranks=2), "1 experts on 2 ranks"
    yield "top", opened("a2a_grouped_gemm", shape="e=2,top=3"), "top=3"
    yield "heads", opened("sp_flash_decode", shape="h=3,hkv=2"), "evenly"
    yield "step_heads", opened("decode_step", shape="hkv=1", ranks=2), "hkv=1"
    yield "toy_options", opened("toy", ranks=3), "ranks"
    if not _has_gpu():
        yield "stream_without_gpu", opened("ag_gemm", transport="stream"), "GPU"
    toy = family.toy_problem()

    def planned(**params: Any) -> Callable[[], Any]:
        return lambda: _pool(family, "ditron", params, toy)

    yield "too_many_chunks", planned(chunks=8, block_m=256), "8 chunks of 1 tiles"
    yield "ring_in_pairs", planned(mode="ring", swizzle="xor"), "xor"
    odd = dataclasses.replace(toy, ranks=3)
    yield "pairs_of_three", lambda: _pool(family, "push", {"swizzle": "xor"}, odd), "3 ranks"
    yield "numpy_experts", lambda: _pool(family, "numpy-gemm", {}, _experts(family)), "numpy-gemm"
    yield "collective_in_threads", lambda: _pool(family, "torch-collective", {}, toy), "'loop'"
    yield "edited_reference", lambda: family.reopen(toy.reference() | {"ranks": 3}), "edited"
    yield "no_export", lambda: _read(None), "plan.json"
    yield "broken_export", lambda: _read("{"), "no exported plan"
    yield "other_format", lambda: _read('{"format": 9}'), "format 9"


def _pool(family: TileFamily, method: str, params: dict[str, Any], problem: Any) -> Any:
    from lamps_plugins.distributed_tensor_kernels._planned import method_class

    return family.candidates(
        problem, {method: method_class(method)}, (), given={method: params}, per_method=1, seed=0
    )


def _experts(family: TileFamily) -> Any:
    return family.open_problem("a2a_grouped_gemm", {"transport": "loop"})


def _read(text: str | None) -> Any:
    from lamps_plugins.distributed_tensor_kernels import load

    with tempfile.TemporaryDirectory() as folder:
        if text is not None:
            (Path(folder) / "plan.json").write_text(text, encoding="utf-8")
        return load(folder)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
