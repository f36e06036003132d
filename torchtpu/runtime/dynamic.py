"""Operators whose result shape depends on values: run at once, on finished arrays."""

from __future__ import annotations

from typing import Any

import jax
import torch

from torchtpu import dtypes
from torchtpu.graph.lowered import Lowered
from torchtpu.runtime.transfers import settle

_COLUMN_MAJOR = frozenset({"aten::nonzero"})  # as the CPU lays it out


def run(lowered: Lowered, arrays: list[Any], numbers: list[Any], device: jax.Device) -> list[tuple]:
    """Results as (dtype, shape in memory, array, sizes, strides)."""
    with jax.enable_x64(True), jax.default_device(device):
        bases = [None if array is None else settle(array) for array in arrays]
        values = [jax.numpy.asarray(n, dtype) for n, dtype in zip(numbers, lowered.slot_dtypes, strict=True)]
        results = lowered.apply(bases, values)
        return [_described(lowered.op, jax.device_put(r, device)) for r in results]


def _described(op: str, result: jax.Array) -> tuple:
    sizes = tuple(result.shape)
    strides = torch._prims_common.make_contiguous_strides_for(sizes)
    if op in _COLUMN_MAJOR and result.size:
        return dtypes.to_torch(result.dtype), sizes[::-1], result.T, sizes, (1, sizes[0])
    return dtypes.to_torch(result.dtype), sizes, result, sizes, strides
