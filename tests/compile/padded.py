"""Running a function at the sizes of buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import torchtpu.inspect
from torchtpu.compile import ShapePolicy, buckets, set_shape_policy

AT_ONCE = ShapePolicy(exact=0, strict=True)
Dims = dict[int, tuple[int, ...]]
"""Of an argument, the open dimensions."""


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def integers(*shape: int, high: int = 5) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


def run_padded(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], dims: Dims) -> Any:
    """Compiled with these dimensions open, and padded from the first call on."""
    ours = [x.to("tpu") for x in inputs]
    for place, open_dims in dims.items():
        torch._dynamo.mark_dynamic(ours[place], open_dims)
    before = torchtpu.inspect.counters()["flushes"].get(buckets._REASON, 0)
    with set_shape_policy(AT_ONCE):
        result = torch.compile(function, backend="tpu", fullgraph=True)(*ours)
    assert torchtpu.inspect.counters()["flushes"].get(buckets._REASON, 0) > before
    return torch.utils._pytree.tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, result)
