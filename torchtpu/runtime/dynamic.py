"""Operators whose result shape depends on values: run at once, on finished arrays."""

from __future__ import annotations

from typing import Any

import jax

from torchtpu import dtypes
from torchtpu.graph.lowered import Lowered
from torchtpu.runtime.transfers import settle


def run(lowered: Lowered, arrays: list[Any], numbers: list[Any], device: jax.Device) -> list[tuple]:
    """Results as (dtype, shape, array)."""
    with jax.enable_x64(True), jax.default_device(device):
        bases = [None if array is None else settle(array) for array in arrays]
        values = [jax.numpy.asarray(n, dtype) for n, dtype in zip(numbers, lowered.slot_dtypes, strict=True)]
        results = lowered.apply(bases, values)
        return [(dtypes.to_torch(r.dtype), tuple(r.shape), jax.device_put(r, device)) for r in results]
