"""Exponentials and what is made of them, where XLA's own formulas lose digits."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._float_bits import copysign
from torchtpu.rules._numbers import constant, is_complex
from torchtpu.rules._series import polynomial

_UNSIGNED = {4: np.uint32, 8: np.uint64}
_SERIES_BELOW = 0.7  # the exponential less one is a series there: the difference would lose two bits
_NUM_TERMS = {4: 11, 8: 18}
_LARGE = 20.0  # where the inverse of the exponential is too small to count beside it


def _power_of_two(exponent: Array, dtype: np.dtype) -> Array:
    """Of whole numbers, as bits of the exponent alone; of those that normal numbers have."""
    info = jnp.finfo(dtype)
    word = _UNSIGNED[np.dtype(dtype).itemsize]
    biased = (exponent + np.int32(-info.minexp + 1)).astype(word)
    return lax.bitcast_convert_type(biased << np.array(info.nmant, word), dtype)


def exp2(x: Array) -> Array:
    """Two to the power of ``x``, real or complex; whole powers are exact.

    XLA's own is the exponential of a product, whose rounding error counts as often as the exponent is large.
    """
    if is_complex(x.dtype):
        return jnp.exp(x * constant(np.log(2.0), x.dtype))
    info = jnp.finfo(x.dtype)
    whole = jnp.clip(jnp.round(x), constant(2 * info.minexp, x.dtype), constant(info.maxexp + 1, x.dtype))
    part = jnp.exp((x - whole) * constant(math.log(2), x.dtype))
    count = jnp.where(whole == whole, whole, constant(0, x.dtype)).astype(np.int32)
    first = count >> np.int32(1)  # in two steps, as the result may be a number whose whole power is none
    return part * _power_of_two(first, x.dtype) * _power_of_two(count - first, x.dtype)


def expm1(x: Array) -> Array:
    """The exponential less one."""
    if is_complex(x.dtype):
        return jnp.expm1(x)
    terms = tuple(1 / math.factorial(k) for k in range(_NUM_TERMS[x.dtype.itemsize], 0, -1))
    near = jnp.abs(x) < constant(_SERIES_BELOW, x.dtype)
    series = x * polynomial(jnp.where(near, x, constant(0, x.dtype)), terms)
    return jnp.where(near, series, jnp.exp(x) - constant(1, x.dtype))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent. Of float64, XLA's own is off by seven units in the last place."""
    if x.dtype != np.float64:
        return jnp.tanh(x)
    less = expm1(jnp.minimum(jnp.abs(x + x), constant(2 * _LARGE, x.dtype)))
    return copysign(less / (less + constant(2, x.dtype)), x)


def _atanh_series(x: Array) -> Array:
    """Divided by the argument, which is 0.4 or less, in float64."""
    near = jnp.where(jnp.abs(x) < 0.4, x, constant(0, x.dtype))
    return polynomial(near * near, tuple(1 / k for k in range(41, 0, -2)))


def log1p(x: Array) -> Array:
    """The logarithm of one more. Of float64, XLA's own is off by 120 units in the last place, most below -0.4."""
    if x.dtype != np.float64:
        return jnp.log1p(x)
    half, one = constant(0.5, x.dtype), constant(1, x.dtype)
    twice = x / (one + half * x)
    return jnp.where(jnp.abs(x) < half, twice * _atanh_series(jnp.multiply(half, twice)), jnp.log(x + one))


def atanh(x: Array) -> Array:
    """The inverse of the hyperbolic tangent, likewise."""
    if x.dtype != np.float64:
        return jnp.arctanh(x)
    one = constant(1, x.dtype)
    return jnp.where(jnp.abs(x) < 0.4, x * _atanh_series(x), constant(0.5, x.dtype) * jnp.log((one + x) / (one - x)))


def _times(x: Array, sine: Array) -> Array:
    """The product, zero on the real axis, where the first factor may be infinite."""
    return jnp.where(sine == 0, sine * copysign(constant(1, x.dtype), x), x * sine)


def sinh(x: Array) -> Array:
    """The hyperbolic sine: XLA adds a logarithm to the argument, which costs large ones five bits."""
    if is_complex(x.dtype):
        a, b = lax.real(x), lax.imag(x)
        return lax.complex(sinh(a) * jnp.cos(b), _times(cosh(a), jnp.sin(b)))
    size, half, one = jnp.abs(x), constant(0.5, x.dtype), constant(1, x.dtype)
    less = expm1(jnp.minimum(size, constant(_LARGE, x.dtype)))
    root = jnp.exp(size * half)
    return copysign(jnp.where(size < _LARGE, half * (less + less / (less + one)), half * root * root), x)


def cosh(x: Array) -> Array:
    """The hyperbolic cosine, likewise."""
    if is_complex(x.dtype):
        a, b = lax.real(x), lax.imag(x)
        return lax.complex(cosh(a) * jnp.cos(b), _times(sinh(a), jnp.sin(b)))
    size, half = jnp.abs(x), constant(0.5, x.dtype)
    whole, root = jnp.exp(jnp.minimum(size, constant(_LARGE, x.dtype))), jnp.exp(size * half)
    return jnp.where(size < _LARGE, half * whole + half / whole, half * root * root)
