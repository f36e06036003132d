"""The parts of floats: sign, mantissa and exponent, from their bits.

As whole numbers without a sign: of the signed ones that JAX takes, the compiler of a TPU refuses those of 64 bits.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

_UNSIGNED = {16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}


def _bits(x: Array) -> Array:
    return lax.bitcast_convert_type(x, _UNSIGNED[jnp.finfo(x.dtype).bits])


def signbit(x: ArrayLike) -> Array:
    """Whether the sign is minus, of zeros and NaNs too."""
    bits = _bits(jnp.asarray(x))
    return bits >> np.array(8 * bits.dtype.itemsize - 1, bits.dtype) != 0


def copysign(x: ArrayLike, y: ArrayLike) -> Array:
    """The size of ``x`` with the sign of ``y``; both of one dtype."""
    return jnp.where(signbit(x) != signbit(y), -jnp.asarray(x), x)


def frexp(x: Array) -> tuple[Array, Array]:
    """A mantissa from 0.5 to below 1 (or ``x`` itself: zero, an infinity, NaN) and the exponent of two that it goes with."""
    info = jnp.finfo(x.dtype)
    small = jnp.abs(x) < info.tiny
    bits = _bits(jnp.where(small, x * np.array(2.0**info.nmant, x.dtype), x))
    place, mask = np.array(info.nmant, bits.dtype), np.array((1 << info.nexp) - 1, bits.dtype)
    half = -info.minexp  # what the exponent field of 0.5 holds
    exponent = ((bits >> place) & mask).astype(np.int32) - np.int32(half) - jnp.where(small, np.int32(info.nmant), np.int32(0))
    mantissa = lax.bitcast_convert_type((bits & ~(mask << place)) | (np.array(half, bits.dtype) << place), x.dtype)
    whole = (x == 0) | ~jnp.isfinite(x)
    return jnp.where(whole, x, mantissa), jnp.where(whole, np.int32(0), exponent)
