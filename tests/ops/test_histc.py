"""Histograms of integers, which the CPU has for floats alone, against bincount and a formula in exact integers."""

from __future__ import annotations

import pytest
import torch

VALUES = [3, 0, 7, 3, -1, 9, 8, 2, 3]


def counted(low: int, high: int, bins: int) -> list[int]:
    """Every bin includes its left edge, the last one its right edge too."""
    places = [min((x - low) * bins // (high - low), bins - 1) for x in VALUES if low <= x <= high]
    return [places.count(place) for place in range(bins)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
@pytest.mark.parametrize(("low", "high", "bins"), [(0, 8, 9), (0, 7, 3), (-1, 9, 10)])
def test_integers(dtype: torch.dtype, low: int, high: int, bins: int) -> None:
    result = torch.histc(torch.tensor(VALUES, dtype=dtype, device="tpu"), bins, low, high)
    assert result.dtype == dtype
    assert result.tolist() == counted(low, high, bins)


def test_the_range_of_the_data_and_edges_that_floats_miss() -> None:
    x = torch.arange(0, 2**31 - 1, 2**31 // 100, dtype=torch.int32)
    width = int(x.max())
    want = torch.bincount((x.long() * 1000 // width).clamp(max=999), minlength=1000)
    assert torch.equal(torch.histc(x.to("tpu"), 1000).cpu().long(), want)

