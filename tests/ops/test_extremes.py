"""NaN wins every search for an extreme, also beside infinities and in long rows."""

from __future__ import annotations

import pytest
import torch

SEARCHES = {
    "amax": lambda x: x.amax(1), "amin": lambda x: x.amin(1), "max": lambda x: x.max(), "min": lambda x: x.min(),
    "max.dim": lambda x: x.max(1)[0], "min.dim": lambda x: x.min(1)[0], "aminmax": lambda x: torch.stack(x.aminmax(dim=1)),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "least norm": lambda x: torch.linalg.vector_norm(x, -float("inf"), 1),
    "softmax": lambda x: x.softmax(1), "logsumexp": lambda x: x.logsumexp(1), "cummax": lambda x: x.cummax(1)[0],
    "clamp": lambda x: x.clamp(-1, 1), "maximum": lambda x: torch.maximum(x, -x),
    "pooling": lambda x: torch.nn.functional.max_pool1d(x[None], 7)[0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", SEARCHES)
def test_nan_wins(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(168, 300, generator=generator)
    for row in range(0, 168, 2):
        places = torch.randint(0, 300, (4,), generator=generator)
        x[row, places[:2]], x[row, places[2:]] = float("nan"), (-1) ** (row // 2) * float("inf")
    x = x.to(dtype)
    torch.testing.assert_close(SEARCHES[name](x.to("tpu")).cpu(), SEARCHES[name](x), equal_nan=True)
