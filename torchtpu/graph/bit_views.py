"""The same bits under another dtype: ``Tensor.view(dtype)``, ``view_as_real`` and ``view_as_complex`` of an array.

Complex numbers count as pairs of floats, booleans as bytes. Where the item size changes, the last dimension of the
array is split, or grouped; others keep their place. Bits are little-endian, as on every platform that JAX runs on.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_BYTE = np.dtype(np.uint8)
_BOOL = np.dtype(np.bool_)
_FLOAT_OF = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


def _plain(dtype: np.dtype) -> np.dtype:
    """The dtype that XLA can bitcast and that holds the same bits, or half of them for complex numbers."""
    return _BYTE if dtype == _BOOL else _FLOAT_OF.get(dtype, dtype)


def is_elementwise(source: np.dtype, target: np.dtype) -> bool:
    """Whether each element of ``source`` becomes one element of ``target``, whatever the shape."""
    if source == target:
        return True
    return source not in _FLOAT_OF and target not in _FLOAT_OF and source.itemsize == target.itemsize


def grouped_shape(shape: tuple[int, ...], group: int) -> tuple[int, ...]:
    """``shape`` with ``group`` as last dimension: as few dimensions flattened as possible, padded if none will do."""
    for first in reversed(range(len(shape))):
        tail = math.prod(shape[first:])
        if tail % group == 0:
            lead = shape[:first] + (() if tail == group else (tail // group,))
            return (*lead, group)
    return (-(-math.prod(shape) // group), group)


def cast_shape(shape: tuple[int, ...], source: np.dtype, target: np.dtype) -> tuple[int, ...]:
    """Shape of ``cast`` of an array of ``shape`` and dtype ``source``."""
    if source == target:
        return shape
    if source in _FLOAT_OF:
        shape = (*shape, 2)
    have, want = _plain(source).itemsize, _plain(target).itemsize
    if have > want:
        shape = (*shape, have // want)
    elif have < want:
        shape = grouped_shape(shape, want // have)[:-1]
    return grouped_shape(shape, 2)[:-1] if target in _FLOAT_OF else shape


def cast(x: Array, target: np.dtype) -> Array:
    """Reinterpret the bits of an array in row-major order; zeros are appended until the last element is whole."""
    source = np.dtype(x.dtype)
    if source == target:
        return x
    if source in _FLOAT_OF:
        x = jnp.stack([lax.real(x), lax.imag(x)], axis=-1)
    elif source == _BOOL:
        x = x.astype(_BYTE)
    have, want = np.dtype(x.dtype).itemsize, _plain(target).itemsize
    if have < want:
        x = _grouped(x, want // have)
    if np.dtype(x.dtype) != _plain(target):
        x = lax.bitcast_convert_type(x, _plain(target))
    if target in _FLOAT_OF:
        x = _grouped(x, 2)
        pair = [lax.index_in_dim(x, k, axis=-1, keepdims=False) for k in range(2)]
        return lax.complex(*pair)
    return x != 0 if target == _BOOL else x


def cast_back(x: Array, like: Array | jax.ShapeDtypeStruct) -> Array:
    """Undo ``cast`` of an array with the shape and dtype of ``like``: padding is cut off."""
    x = cast(x, np.dtype(like.dtype))
    size = math.prod(like.shape)
    if x.size != size:
        x = lax.slice(lax.reshape(x, (x.size,)), (0,), (size,))
    return lax.reshape(x, like.shape)


def _grouped(x: Array, group: int) -> Array:
    shape = grouped_shape(x.shape, group)
    missing = math.prod(shape) - x.size
    if missing:
        x = lax.pad(lax.reshape(x, (x.size,)), jnp.zeros((), x.dtype), [(0, missing, 0)])
    return lax.reshape(x, shape)
