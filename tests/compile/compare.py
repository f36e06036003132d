"""Compiled on the device against plain on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def same(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> None:
    """Compare results, what became of the arguments, and gradients."""
    ours = [x.detach().clone().to("tpu").requires_grad_(x.requires_grad) for x in inputs]
    cpu = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    got, want = torch.compile(function, backend="tpu", **options)(*ours), function(*cpu)
    compare(got, want)
    compare(ours, cpu)
    if any(x.requires_grad for x in inputs):
        for result in (got, want):
            sum((r * r).sum() for r in (result if isinstance(result, tuple) else (result,)) if r.requires_grad).backward()
        compare([x.grad for x in ours], [x.grad for x in cpu])


def compare(got: Any, want: Any) -> None:
    """Results on the device, nested as they may be, and those on the CPU."""
    to_host = torch.utils._pytree.tree_map(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, got)
    kept = torch.utils._pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, want)
    torch.testing.assert_close(to_host, kept, rtol=1e-4, atol=1e-5)


def randn(*shape: int, grad: bool = False) -> torch.Tensor:
    """The same numbers for a shape every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(grad)
