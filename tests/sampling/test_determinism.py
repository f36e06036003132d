"""``torch.use_deterministic_algorithms(True)``: nothing depends on chance, so nothing is refused and results repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _index(device: str) -> torch.Tensor:
    return (torch.arange(600, device=device) * 7) % 13


def _values(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device)


def _gradient(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_()
    function(x).square().sum().backward()
    assert x.grad is not None
    return x.grad


# Operators that CUDA refuses or computes in another way in this mode.
CALLS: dict[str, Callable[[str], torch.Tensor]] = {
    "scatter_add": lambda d: torch.zeros(13, device=d).scatter_add(0, _index(d), _values(d, 600)),
    "scatter_reduce": lambda d: torch.ones(13, device=d).scatter_reduce(0, _index(d), _values(d, 600), "sum"),
    "index_add": lambda d: torch.zeros(13, 4, device=d).index_add(0, _index(d), _values(d, 600, 4)),
    "index_put": lambda d: torch.zeros(13, device=d).index_put((_index(d),), _values(d, 600), accumulate=True),
    "index gradient": lambda d: _gradient(lambda x: x[_index(d)] * _values(d, 600), _values(d, 13)),
    "gather gradient": lambda d: _gradient(lambda x: x.gather(0, _index(d)), _values(d, 13)),
    "embedding_bag gradient": lambda d: _gradient(
        lambda x: F.embedding_bag(_index(d).view(20, 30), x, mode="sum"), _values(d, 13, 3)),
    "cumsum": lambda d: _values(d, 600).cumsum(0),
    "bincount": lambda d: torch.bincount(_index(d), _values(d, 600)),
    "median": lambda d: _values(d, 4, 51).median(1).values,
    "upsample gradient": lambda d: _gradient(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), _values(d, 1, 2, 4, 4)),
    "max pooling gradient": lambda d: _gradient(lambda x: F.max_pool2d(x, 3, 1), _values(d, 1, 2, 7, 7)),
    "padding gradient": lambda d: _gradient(lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), _values(d, 1, 2, 7, 7)),
    "grid_sample gradient": lambda d: _gradient(
        lambda x: F.grid_sample(x, _values(d, 1, 5, 5, 2).tanh(), align_corners=False), _values(d, 1, 2, 7, 7)),
    "nll_loss2d": lambda d: _gradient(
        lambda x: F.nll_loss(x, torch.arange(18, device=d).view(2, 3, 3) % 4), _values(d, 2, 4, 3, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_repeat_bit_by_bit(name):
    first, *others = (CALLS[name]("tpu").cpu() for _ in range(3))
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(first, CALLS[name]("cpu"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_uninitialized_memory_is_filled(dtype):
    """With NaN, or with the largest number, as the CPU does."""
    for make in (
        lambda d: torch.empty(3, dtype=dtype, device=d), lambda d: torch.empty_like(torch.zeros(3, dtype=dtype, device=d)),
        lambda d: torch.empty_strided((3,), (1,), dtype=dtype, device=d),
        lambda d: torch.zeros(1, dtype=dtype, device=d).resize_(3)[1:],
    ):
        torch.testing.assert_close(make("tpu").cpu(), make("cpu"), rtol=0, atol=0, equal_nan=True)
