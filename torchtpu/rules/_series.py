"""Polynomials and Chebyshev series, their coefficients given as numbers; those of the highest degree come first."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import constant

Coefficients = Sequence[float]


def polynomial(x: Array, coefficients: Coefficients) -> Array:
    """By Horner's rule, in the dtype of ``x``."""
    value = jnp.full_like(x, constant(coefficients[0], x.dtype))
    for coefficient in coefficients[1:]:
        value = value * x + constant(coefficient, x.dtype)
    return value


def ratio(x: Array, above: Coefficients, below: Coefficients) -> Array:
    return polynomial(x, above) / polynomial(x, below)


def chebyshev_series(x: Array, coefficients: Coefficients) -> Array:
    """By Clenshaw's rule, ``x`` being twice the argument of the polynomials; the last coefficient counts half.

    Leading coefficients that are too small to change the sum in this dtype are left out.
    """
    least = float(np.finfo(x.dtype).eps) / 64
    first = next(place for place, coefficient in enumerate(coefficients) if abs(coefficient) > least)
    value, before, last = (jnp.zeros_like(x) for _ in range(3))
    for coefficient in coefficients[first:]:
        last, before = before, value
        value = x * before - last + constant(coefficient, x.dtype)
    return (value - last) * constant(0.5, x.dtype)
