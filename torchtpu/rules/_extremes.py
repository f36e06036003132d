"""The largest and the smallest of an array or of windows of it; NaN wins, as in ATen.

XLA:CPU hands plain maxima to a library that loses the NaN of some rows that hold infinities, too. There the comparison is written
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import canonical_dims, constant, is_real_float


def _larger(a: Array, b: Array) -> Array:
    return lax.select((a > b) | (a != a), a, b)


def _smaller(a: Array, b: Array) -> Array:
    return lax.select((a < b) | (a != a), a, b)


def largest(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The maximum along some dimensions, all by default."""
    return _extreme(x, axis, keepdims, jnp.max, _larger, -np.inf)


def smallest(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The minimum along some dimensions, all by default."""
    return _extreme(x, axis, keepdims, jnp.min, _smaller, np.inf)


def window_maximum(x: Array, lowest: np.ndarray, reduce_windows: Callable[[Array, Callable[..., Any], np.ndarray], Array]) -> Array:
    """The maximum of windows; ``reduce_windows(x, combine, initial)`` knows which."""
    def plain(x: Array) -> Array:
        return reduce_windows(x, lax.max, lowest)

    def written_out(x: Array) -> Array:
        return reduce_windows(x, _larger, lowest)

    return lax.platform_dependent(x, cpu=written_out, default=plain) if is_real_float(x.dtype) else plain(x)


def _extreme(
    x: Array, axis: Any, keepdims: bool, reduce: Callable[..., Array], combine: Callable[[Array, Array], Array], initial: float
) -> Array:
    def plain(x: Array) -> Array:
        return reduce(x, axis, keepdims=keepdims)

    def written_out(x: Array) -> Array:
        dims = canonical_dims(axis, x.ndim)
        out = lax.reduce(x, constant(initial, x.dtype), combine, dims)
        return jnp.expand_dims(out, dims) if keepdims else out

    # Of nothing there is no extreme: JAX says so.
    return lax.platform_dependent(x, cpu=written_out, default=plain) if is_real_float(x.dtype) and x.size else plain(x)
