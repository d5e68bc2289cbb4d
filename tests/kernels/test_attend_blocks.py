"""The library's attention under a mask of blocks, which the bench times, does the same work."""

from __future__ import annotations

import pytest
import torch
from lamps_kernels._blocks import blocks_of_mask
from lamps_kernels.attend_blocks import attend_blocks, band_mask, flex_band


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kept", [1, 2, 4])
def test_flex_attention_under_the_band_is_the_kernel(kept: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 512, 32) for heads in (4, 2, 2))
    blocks = blocks_of_mask(torch.ones(1, 2, 4, 4, dtype=torch.bool).tril().triu(1 - kept))
    found = attend_blocks(q, k, v, *blocks, block=128)
    torch.testing.assert_close(found.out, flex_band(q, k, v, band_mask(512, kept, "cpu")))
