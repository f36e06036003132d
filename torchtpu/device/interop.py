"""Tensors from JAX arrays and back, without a copy."""

from __future__ import annotations

from typing import Any

import torch

from torchtpu import _C, dtypes
from torchtpu.device.backing import bridge
from torchtpu.errors import InteropError

_WIDE = ("int64", "uint64", "float64", "complex128")


def from_jax(array: Any) -> torch.Tensor:
    """A tensor that shares the memory of a ``jax.Array``, on the tpu device that the array lies on.

    Neither sees the other's later changes: arrays never change, and writing to the tensor gives it a new array.

    Raises:
        InteropError: not a jax.Array, one without a value (inside ``jax.jit``), spread over several devices, or on a device of
            another platform.
    """
    import jax

    if not isinstance(array, jax.Array):
        raise InteropError(what=f"from_jax expected a jax.Array, got {type(array).__name__}", fix="Use torch.as_tensor().")
    if isinstance(array, jax.core.Tracer):
        raise InteropError(
            what="from_jax got an array that is being traced and has no value yet", fix="Call it outside of jax.jit and the like.")
    bridge().start(0, _C.in_bad_fork())
    devices = list(array.devices())
    if len(devices) != 1 or devices[0] not in bridge().devices:
        raise InteropError(
            what=f"from_jax expected an array on one device of {bridge().devices}, got one on {devices}",
            fix="Move it with jax.device_put() first.")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise InteropError(what="from_jax got an array of random keys", fix="Pass jax.random.key_data(keys).")
    return _C.from_array(array, dtypes.to_torch(array.dtype), list(array.shape), bridge().devices.index(devices[0]))


def to_jax(tensor: torch.Tensor) -> Any:
    """The ``jax.Array`` that holds a tensor's value now; later writes to the tensor do not reach it.

    Whatever was recorded is run first (asynchronously).

    Raises:
        InteropError: the tensor is not on a tpu device; or it is of a 64-bit dtype and JAX's x64 mode is off, where JAX would treat
            the array as 32 bits wide in what follows.
    """
    import jax
    import jax.numpy as jnp

    from torchtpu.runtime.transfers import settle

    if tensor.device.type != "tpu":
        raise InteropError(what=f"to_jax expected a tpu tensor, got one on {tensor.device}", fix="Move it with .to('tpu').")
    dtype = dtypes.to_numpy(tensor.dtype)
    if dtype.name in _WIDE and not jax.config.jax_enable_x64:
        raise InteropError(
            what=f"to_jax got a tensor of {dtype.name} while JAX's x64 mode is off",
            fix="Convert it with .to(torch.float32) or .to(torch.int32), or set jax.config.update('jax_enable_x64', True).")
    array = _C.to_array(tensor.detach())
    with jax.enable_x64(True):
        if array is None:
            return jnp.zeros(tuple(tensor.shape), dtype, device=bridge().devices[tensor.device.index or 0])
        array = settle(array)
        if array.dtype != dtype or array.shape != tuple(tensor.shape):
            array = _reinterpret(array, dtype, tuple(tensor.shape))
    return array


def _reinterpret(array: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """The same bytes under another shape and dtype."""
    from torchtpu.graph.views import View, read

    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return read(array, View(dtype, shape, tuple(reversed(strides)), 0))
