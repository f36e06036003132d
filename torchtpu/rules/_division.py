"""Division of whole numbers: towards zero or towards minus infinity, and what is left.

A TPU has no 64-bit integers, and what its compiler makes of their division takes it half a minute, each time one is used. There,
quotients are put together from estimates in single precision.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import is_inexact

_Function = Callable[[Array, Array], Array]
_STEPS = 4
# Below one by more than the conversions, the division and the product may be wrong together, so that no estimate is too large.
_MARGIN = np.float32(1 - 2**-19)


def divided_by_estimates(x: Array, y: Array) -> tuple[Array, Array]:
    """The quotient towards zero and the remainder, for 64-bit integers of one shape; -1 and ``x`` where ``y`` is zero, as in XLA.

    With t for what is left over the divisor, a step takes between t (1 - 2**-18) - 1 and t off it: from below 2**64, four of them
    leave less than two.
    """
    left, divisor = _magnitude(x), _magnitude(y)
    inverse = _MARGIN / divisor.astype(np.float32)
    quotient = jnp.zeros_like(left)
    for _ in range(_STEPS):
        part = (left.astype(np.float32) * inverse).astype(np.uint64)
        quotient, left = quotient + part, left - part * divisor
    once_more = left >= divisor
    quotient = quotient + once_more.astype(np.uint64)
    left = jnp.where(once_more, left - divisor, left)
    quotient, left = quotient.astype(x.dtype), left.astype(x.dtype)
    if jnp.issubdtype(x.dtype, jnp.signedinteger):
        quotient = jnp.where((x < 0) != (y < 0), -quotient, quotient)
        left = jnp.where(x < 0, -left, left)
    return jnp.where(y == 0, ~jnp.zeros_like(x), quotient), jnp.where(y == 0, x, left)


def _magnitude(x: Array) -> Array:
    if jnp.issubdtype(x.dtype, jnp.signedinteger):
        x = jnp.where(x < 0, -x, x)
    return x.astype(np.uint64)


def _rounds_up(remainder: Array, y: Array) -> Array:
    """Where a quotient towards zero is one too large for the floor."""
    return (remainder != 0) & ((remainder < 0) != (y < 0))


def _floor(x: Array, y: Array) -> Array:
    quotient, remainder = divided_by_estimates(x, y)
    return quotient - _rounds_up(remainder, y).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    _, remainder = divided_by_estimates(x, y)
    return jnp.where(_rounds_up(remainder, y), remainder + y, remainder)


def _choice(estimated: _Function, direct: _Function) -> _Function:
    def function(x: Array, y: Array) -> Array:
        x, y = jnp.broadcast_arrays(x, y)
        if is_inexact(x.dtype) or x.dtype.itemsize < 8:
            return direct(x, y)
        return lax.platform_dependent(x, y, tpu=estimated, default=direct)

    return function


truncated_quotient = _choice(lambda x, y: divided_by_estimates(x, y)[0], lax.div)
truncated_remainder = _choice(lambda x, y: divided_by_estimates(x, y)[1], lax.rem)  # of the sign of the first, also of floats
floored_quotient = _choice(_floor, jnp.floor_divide)
floored_remainder = _choice(_remainder, jnp.remainder)  # of the sign of the second, also of floats


def greatest_common_divisor(x: Array, y: Array) -> Array:
    """Euclid's, for all elements until the last is done."""

    def step(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = pair
        return jnp.where(y == 0, x, y), jnp.where(y == 0, y, truncated_remainder(x, y))

    x, y = jnp.broadcast_arrays(jnp.abs(x), jnp.abs(y))
    return lax.while_loop(lambda pair: jnp.any(pair[1] != 0), step, (x, y))[0]


def least_common_multiple(x: Array, y: Array) -> Array:
    """Zero where both are."""
    x, y = jnp.broadcast_arrays(jnp.abs(x), jnp.abs(y))
    divisor = greatest_common_divisor(x, y)
    return jnp.where(divisor == 0, divisor, x * truncated_quotient(y, divisor))
