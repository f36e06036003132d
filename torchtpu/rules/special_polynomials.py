"""Orthogonal polynomials of a tensor of degrees, which are known at run time only: by recurrence, or in closed form.

Degrees are cut to whole numbers; a negative one, or none that fits into 64 bits, gives zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import constant, to_float
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower_table

Step = Callable[[Array, Array, Array], Array]
Polynomial = Callable[[Array, Array], Array]

# No loop gets to this degree: a counter of 32 bits is enough.
_MOST_STEPS = 1 << 30
# Hermite polynomials of higher degree overflow somewhere, and are NaN everywhere, as in ATen.
_HERMITE_LIMIT = {4: 128, 8: 512}


def _whole(n: Array) -> Array:
    """The whole part, still a float; what C++ cannot convert to an int64 becomes negative there, so here as well."""
    return jnp.where(jnp.abs(n) < 2.0**63, jnp.trunc(n), constant(-1, n.dtype))


def _sign(n: Array) -> Array:
    """Minus one to the power of a whole number."""
    half = n * constant(0.5, n.dtype)
    return jnp.where(half == jnp.floor(half), constant(1, n.dtype), constant(-1, n.dtype))


def _recur(step: Step, n: Array, first: Array, wanted: Array) -> Array:
    """The ``n``-th of a sequence that begins with 1 and ``first``: behind its ``k``-th, q, and p follows ``step(k, q, p)``.

    Only ``wanted`` elements matter. One that is NaN stays so; the loop ends with the last that is still on its way.
    """
    last = jnp.where(wanted, jnp.minimum(n, constant(_MOST_STEPS, n.dtype)), constant(0, n.dtype)).astype(np.int32)

    def on_its_way(k: Array, q: Array) -> Array:
        return (k < last) & (q == q)

    def more(state: tuple[Array, Array, Array]) -> Array:
        k, q, _ = state
        return jnp.any(on_its_way(k, q))

    def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, q, p = state
        going = on_its_way(k, q)
        following = step(k.astype(n.dtype), q, p)
        return k + np.int32(1), jnp.where(going, following, q), jnp.where(going, q, p)

    one = jnp.ones_like(first)
    _, value, _ = lax.while_loop(more, body, (jnp.asarray(np.int32(1)), first, one))
    return jnp.where(n == 0, one, value)


@dataclass(frozen=True)
class _Chebyshev:
    """One kind of Chebyshev polynomials.

    Attributes:
        first: of degree one.
        at_one, at_minus_one: of degree n at the ends, the latter but for its sign.
        closed: of degree n at the cosine of an angle, where no recurrence is wanted.
    """

    first: Callable[[Array], Array]
    at_one: Callable[[Array], Array]
    at_minus_one: Callable[[Array], Array]
    closed: Callable[[Array, Array], Array]


def _plus(x: Array, number: float) -> Array:
    return x + constant(number, x.dtype)


def _odd(n: Array) -> Array:
    return _plus(n + n, 1)


def _half(angle: Array) -> Array:
    return angle * constant(0.5, angle.dtype)


def _closed_v(n: Array, angle: Array) -> Array:
    """Near minus one, where the cosine has no digits left, the value is that at the end."""
    inside = jnp.cos(_plus(n, 0.5) * angle) / jnp.cos(_half(angle))
    return jnp.where(jnp.sin(_half(angle)) == 1, _sign(n) * _odd(n), inside)


def _closed_w(n: Array, angle: Array) -> Array:
    """The value in closed form.

    Differs: for the last numbers below one, ATen takes the value at one, or, of the shifted kind, that at zero.
    """
    return jnp.sin(_plus(n, 0.5) * angle) / jnp.sin(_half(angle))


_T = _Chebyshev(lambda x: x, jnp.ones_like, jnp.ones_like, lambda n, angle: jnp.cos(n * angle))
_U = _Chebyshev(
    lambda x: x + x, lambda n: _plus(n, 1), lambda n: _plus(n, 1),
    lambda n, angle: jnp.sin(_plus(n, 1) * angle) / jnp.sin(angle))
_V = _Chebyshev(lambda x: _plus(x + x, -1), jnp.ones_like, _odd, _closed_v)
_W = _Chebyshev(lambda x: _plus(x + x, 1), _odd, jnp.ones_like, _closed_w)


def _chebyshev(kind: _Chebyshev, highest: int, shifted: bool = False) -> Polynomial:
    """``highest``: the degree up to which ATen prefers the recurrence in between the ends, -1 and 1 (shifted: 0 and 1)."""

    def polynomial(x: Array, n: Array) -> Array:
        x = _plus(x + x, -1) if shifted else x
        closed = (n > highest) & (jnp.abs(x) < 1)
        value = _recur(lambda k, q, p: (x + x) * q - p, n, kind.first(x), ~closed & (jnp.abs(x) != 1))
        value = jnp.where(closed, kind.closed(n, jnp.arccos(x)), value)
        value = jnp.where(x == 1, kind.at_one(n), value)
        return jnp.where(x == -1, _sign(n) * kind.at_minus_one(n), value)

    return polynomial


def _hermite(factor: int) -> Polynomial:
    """Of the physicists (2) or the probabilists (1)."""

    def polynomial(x: Array, n: Array) -> Array:
        too_high = n > _HERMITE_LIMIT[n.dtype.itemsize]
        scaled = x * constant(factor, x.dtype)
        value = _recur(lambda k, q, p: jnp.multiply(constant(factor, x.dtype), x * q - k * p), n, scaled, ~too_high)
        return jnp.where(too_high, constant(np.nan, x.dtype), value)

    return polynomial


def _laguerre_l(x: Array, n: Array) -> Array:
    first = jnp.subtract(constant(1, x.dtype), x)
    value = _recur(lambda k, q, p: ((k + k + first) * q - k * p) / _plus(k, 1), n, first, x != 0)
    return jnp.where(x == 0, constant(1, x.dtype), value)


def _legendre_p(x: Array, n: Array) -> Array:
    value = _recur(lambda k, q, p: (_odd(k) * x * q - k * p) / _plus(k, 1), n, x, jnp.abs(x) != 1)
    value = jnp.where(x == 1, constant(1, x.dtype), value)
    return jnp.where(x == -1, _sign(n), value)


def _rule(polynomial: Polynomial) -> Callable[[RuleContext, Array, Array], Array]:
    def rule(ctx: RuleContext, x: Array, n: Array) -> Array:
        argument, degree = jnp.broadcast_arrays(*to_float(ctx, x, n))
        degree = _whole(degree)
        return jnp.where(degree < 0, constant(0, argument.dtype), polynomial(argument, degree))

    return rule


POLYNOMIALS = {
    "aten::special_chebyshev_polynomial_t": _chebyshev(_T, 6),
    "aten::special_chebyshev_polynomial_u": _chebyshev(_U, 8),
    "aten::special_chebyshev_polynomial_v": _chebyshev(_V, 8),
    "aten::special_chebyshev_polynomial_w": _chebyshev(_W, 8),
    "aten::special_shifted_chebyshev_polynomial_t": _chebyshev(_T, 6, shifted=True),
    "aten::special_shifted_chebyshev_polynomial_u": _chebyshev(_U, 6, shifted=True),
    "aten::special_shifted_chebyshev_polynomial_v": _chebyshev(_V, 6, shifted=True),
    "aten::special_shifted_chebyshev_polynomial_w": _chebyshev(_W, 4, shifted=True),
    "aten::special_hermite_polynomial_h": _hermite(2),
    "aten::special_hermite_polynomial_he": _hermite(1),
    "aten::special_laguerre_polynomial_l": _laguerre_l,
    "aten::special_legendre_polynomial_p": _legendre_p,
}
lower_table(POLYNOMIALS, _rule)
