"""Operators whose result shape depends on values: run at once, on finished arrays."""

from __future__ import annotations

from typing import Any

import jax

from torchtpu import dtypes
from torchtpu.graph import dynamic_layouts
from torchtpu.graph.lowered import Lowered
from torchtpu.graph.memory_order import memory_order
from torchtpu.runtime.transfers import settle


def run(lowered: Lowered, arrays: list[Any], numbers: list[Any], device: jax.Device) -> list[tuple]:
    """Results as (dtype, shape in memory, array, sizes, strides)."""
    with jax.enable_x64(True), jax.default_device(device):
        bases = [None if array is None else settle(array) for array in arrays]
        values = [jax.numpy.asarray(n, dtype) for n, dtype in zip(numbers, lowered.slot_dtypes, strict=True)]
        results = lowered.apply(bases, values)
        return [_described(lowered, place, jax.device_put(r, device)) for place, r in enumerate(results)]


def _described(lowered: Lowered, place: int, result: jax.Array) -> tuple:
    sizes = tuple(result.shape)
    strides = dynamic_layouts.strides(lowered.op, lowered.arguments, place, sizes)
    order = memory_order(sizes, strides)
    assert order is not None, "a fresh result fills its memory"
    in_memory = result if order == tuple(range(len(sizes))) else result.transpose(order)
    return dtypes.to_torch(result.dtype), in_memory.shape, in_memory, sizes, strides
