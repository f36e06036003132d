"""The error function's complement, that times the exponential of a square, its inverse, and logarithms of the normal distribution.

XLA's own complement and inverse are off by more than 50 units in the last place: it squares the argument in single precision.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import Array, lax

from torchtpu.rules._exponentials import expm1
from torchtpu.rules._float_bits import copysign
from torchtpu.rules._numbers import constant, float_rule
from torchtpu.rules._series import chebyshev_series
from torchtpu.rules.registry import lower_table

# Chebyshev series of (1 + 2 a) exp(a^2) erfc(a) in (a - 2) / (a + 2), for a from zero to infinity; fitted with 40 digits.
_ERFCX = (
    -3.480409461122767051e-18, -7.115293125772235436e-19, 3.841275493999389802e-17, 1.40921744072596328e-16,
    1.387358712117344869e-17, -1.701932881234431761e-15, -5.872254381501050606e-15, 2.594764898371219965e-15,
    8.61090052127724677e-14, 2.412314273846193998e-13, -4.347012647846443439e-13, -4.779133570845297724e-12,
    -8.026804193759018625e-12, 4.867734056607903731e-11, 2.629618333636404436e-10, -7.180587728177085437e-11,
    -4.595399622510179846e-9, -9.890619934492214409e-9, 6.188423669546144265e-8, 3.140694955581843149e-7,
    -7.17400145752968298e-7, -7.763265561062858444e-6, 9.842532776048126749e-6, 1.984376824855352627e-4,
    -4.081525728237238508e-4, -5.414899930893725019e-3, 3.880887957448382113e-2, -1.065931506777850335e-1,
    2.577967387004820808e-2, 2.352013311176600712,
)
_MOST = 30.0  # the exponential of the square of this overflows, and its inverse is zero


def exp_of_square(x: Array, sign: int) -> Array:
    """The exponential of plus or minus the square of ``x``, which is split so that the square of the larger part is exact."""
    x = jnp.minimum(jnp.abs(x), constant(_MOST, x.dtype))
    # In half the digits of the dtype, 5 of them before the point. Not lax.reduce_precision: a TPU has none of float64.
    step = constant(2.0 ** (6 - (jnp.finfo(x.dtype).nmant + 1) // 2), x.dtype)
    high = jnp.round(x / step) * step
    factor = constant(sign, x.dtype)
    whole = jnp.exp(factor * high * high)
    rest = expm1(jnp.multiply(factor, (x - high) * (x + high)))  # not one more exponential: XLA makes one of the product of two
    return whole * (constant(1, x.dtype) + rest)


def _scaled(a: Array) -> Array:
    """The complement times the exponential of the square, of arguments that are not negative."""
    two = constant(2, a.dtype)
    bounded = jnp.minimum(a, constant(2.0**60, a.dtype))
    place = (bounded - two) / (bounded + two)
    return chebyshev_series(place + place, _ERFCX) / (constant(1, a.dtype) + two * a)


def erfcx(x: Array) -> Array:
    """The complement times the exponential of the square."""
    scaled = _scaled(jnp.abs(x))
    return jnp.where(x < 0, constant(2, x.dtype) * exp_of_square(x, 1) - scaled, scaled)


def erfc(x: Array) -> Array:
    """The complement of the error function."""
    one = constant(1, x.dtype)
    tail = exp_of_square(x, -1) * _scaled(jnp.abs(x))
    value = jnp.where(x < 0, constant(2, x.dtype) - tail, tail)
    return jnp.where(jnp.abs(x) < constant(0.5, x.dtype), one - lax.erf(x), value)


def erfinv(x: Array) -> Array:
    """XLA's, and one step of Newton's method: of the complement where one less the argument is exact."""
    one, size = constant(1, x.dtype), jnp.abs(x)
    first = jnp.abs(lax.erf_inv(x))
    miss = jnp.where(size > constant(0.5, x.dtype), erfc(first) - (one - size), size - lax.erf(first))
    better = first + miss * constant(math.sqrt(math.pi) / 2, x.dtype) * exp_of_square(first, 1)
    return jnp.where(size < one, copysign(better, x), lax.erf_inv(x))


def _log_ndtr(x: Array) -> Array:
    """Source: ``calc_log_ndtr`` (aten/src/ATen/native/Math.h)."""
    half = constant(0.5, x.dtype)
    t = x * constant(math.sqrt(0.5), x.dtype)
    low = jnp.log(erfcx(-t) * half) - half * x * x
    low = jnp.where(x == -jnp.inf, x, low)
    return jnp.where(x < -1, low, jnp.log1p(-erfc(t) * half))


def _entr(x: Array) -> Array:
    """Zero at zeros of either sign, not minus zero."""
    return jnp.where(x == 0, constant(0, x.dtype), jsp.entr(x))


ERROR = {
    "aten::erf": lax.erf,
    "aten::erfc": erfc,
    "aten::erfinv": erfinv,
    "aten::special_erfcx": erfcx,
    "aten::special_ndtri": jsp.ndtri,
    "aten::special_log_ndtr": _log_ndtr,
    "aten::special_entr": _entr,
}
lower_table(ERROR, float_rule)
