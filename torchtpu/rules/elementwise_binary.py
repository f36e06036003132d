"""Elementwise operators of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import Array, lax

from torchtpu.rules._division import (
    floored_quotient,
    floored_remainder,
    greatest_common_divisor,
    least_common_multiple,
    truncated_quotient,
    truncated_remainder,
)
from torchtpu.rules._exponentials import exp2
from torchtpu.rules._float_bits import copysign
from torchtpu.rules._numbers import (
    Scalar,
    cast,
    constant,
    is_complex,
    is_inexact,
    is_static,
    rounded,
    scaled,
    to_common,
    to_compute,
    to_float,
    to_wide,
    truth,
)
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower, lower_table
from torchtpu.rules.special_gamma import zeta

Prepare = Callable[..., list[Any]]


def _rule(prepare: Prepare) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """How to make a rule of a function of two arrays whose operands ``prepare`` casts."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def rule(ctx: RuleContext, self: Any, other: Any) -> Array:
            return function(*prepare(ctx, self, other))

        return rule

    return make


def complex_logaddexp(x: Array, y: Array) -> Array:
    """The logarithm of a sum of exponentials, its imaginary part not brought back between -pi and pi.

    Source: ``_log_add_exp_helper`` (aten/src/ATen/native/cpu/LogAddExp.h). A NaN in either part makes both parts of the sum NaN.
    """
    low, high = jnp.where(x.real < y.real, x, y), jnp.where(x.real < y.real, y, x)
    total = jnp.log1p(jnp.exp(low - high)) + high
    both_infinite = jnp.isinf(low.real) & (low.real == high.real)
    total = jnp.where(both_infinite, jnp.where(low.real < 0, low, jnp.log(jnp.exp(low) + jnp.exp(high))), total)
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), constant(complex(np.nan, np.nan), x.dtype), total)


def _logaddexp(x: Array, y: Array) -> Array:
    return complex_logaddexp(x, y) if is_complex(x.dtype) else jnp.logaddexp(x, y)


def _incomplete_gamma(function: Callable[..., Array], at_zero: int, a: Array, x: Array) -> Array:
    """With the limits that XLA leaves out: at ``a`` of zero all of the integral lies below ``x``, at infinity none does."""
    value = jnp.where((a == 0) & (x > 0), constant(at_zero, a.dtype), function(a, x))
    beyond = jnp.where(x == jnp.inf, constant(jnp.nan, a.dtype), constant(1 - at_zero, a.dtype))
    return jnp.where((a == jnp.inf) & (x >= 0), beyond, value)


def _overloads(table: dict[str, Any], *overloads: str) -> dict[str, Any]:
    return {f"{key}.{overload}": function for key, function in table.items() for overload in overloads}


@lower("aten::add.Tensor", "aten::add.Scalar")
def aten_add(ctx: RuleContext, self: Array, other: Any, alpha: Scalar = 1) -> Array:
    """``self + alpha * other``, a tensor or a number; on bools the logical or."""
    x, y = to_compute(ctx, self, other)
    return jnp.add(x, scaled(y, alpha))


@lower("aten::_add_relu.Tensor", "aten::_add_relu.Scalar")
def aten__add_relu(ctx: RuleContext, self: Array, other: Any, alpha: Scalar = 1) -> Array:
    """``self + alpha * other``, cut off below zero; what is infinite becomes the largest number, as in ATen."""
    total = aten_add(ctx, self, other, alpha)
    limits = jnp.finfo(total.dtype) if is_inexact(total.dtype) else jnp.iinfo(total.dtype)
    return jnp.clip(total, constant(0, total.dtype), constant(limits.max, total.dtype))


@lower("aten::sub.Tensor", "aten::sub.Scalar")
def aten_sub(ctx: RuleContext, self: Array, other: Any, alpha: Scalar = 1) -> Array:
    """``self - alpha * other``, a tensor or a number."""
    x, y = to_compute(ctx, self, other)
    return jnp.subtract(x, scaled(y, alpha))


@lower("aten::rsub.Tensor", "aten::rsub.Scalar")
def aten_rsub(ctx: RuleContext, self: Array, other: Any, alpha: Scalar = 1) -> Array:
    """``other - alpha * self``, a tensor or a number."""
    x, y = to_compute(ctx, self, other)
    return jnp.subtract(y, scaled(x, alpha))


lower_table(_overloads({"aten::mul": jnp.multiply}, "Tensor", "Scalar"), _rule(to_compute))
lower_table(_overloads({"aten::div": jnp.divide}, "Tensor", "Scalar"), _rule(to_float))


def _floor_divide(x: Array, y: Array) -> Array:
    """The largest whole number not above the quotient.

    Source: ``div_floor_floating`` in c10/util/generic_math.h, which starts from the exact remainder.
    """
    if not is_inexact(x.dtype):
        return floored_quotient(x, y)
    zero, one = constant(0, x.dtype), constant(1, x.dtype)
    x, y = jnp.broadcast_arrays(x, y)
    remainder = lax.rem(x, y)
    quotient = (x - remainder) / y
    quotient = jnp.where((remainder != 0) & ((y < 0) != (remainder < 0)), quotient - one, quotient)
    whole = jnp.floor(quotient)
    whole = jnp.where(quotient - whole > constant(0.5, x.dtype), whole + one, whole)
    whole = jnp.where(quotient == 0, copysign(zero, x / y), whole)
    return jnp.where(y == 0, x / y, whole)


@lower("aten::div.Tensor_mode", "aten::div.Scalar_mode")
def aten_div_mode(ctx: RuleContext, self: Array, other: Any, *, rounding_mode: str | None) -> Array:
    """Division by a tensor or a number: true, towards minus infinity (``floor``) or towards zero (``trunc``)."""
    if rounding_mode is None:
        return jnp.divide(*to_float(ctx, self, other))
    if rounding_mode == "floor":
        return _floor_divide(*to_wide(ctx, self, other))
    x, y = to_wide(ctx, self, other)
    if not is_inexact(x.dtype):
        return truncated_quotient(x, y)
    return jnp.trunc(rounded(jnp.divide(x, y), ctx.common_dtype))  # ATen cuts the quotient of the 16-bit dtype


# Discontinuous: a scalar is rounded to the tensor's dtype before anything else, as ATen does.
lower_table({"aten::floor_divide": _floor_divide, "aten::floor_divide.Scalar": _floor_divide}, _rule(to_wide))
lower_table(_overloads({"aten::remainder": floored_remainder}, "Tensor", "Scalar", "Scalar_Tensor"), _rule(to_wide))
lower_table(_overloads({"aten::fmod": truncated_remainder}, "Tensor", "Scalar"), _rule(to_wide))

COMPARISONS = {
    "aten::eq": jnp.equal,
    "aten::ne": jnp.not_equal,
    "aten::lt": jnp.less,
    "aten::le": jnp.less_equal,
    "aten::gt": jnp.greater,
    "aten::ge": jnp.greater_equal,
}
lower_table(_overloads(COMPARISONS, "Tensor", "Scalar"), _rule(to_common))

BITWISE = {
    "aten::bitwise_and": jnp.bitwise_and,
    "aten::bitwise_or": jnp.bitwise_or,
    "aten::bitwise_xor": jnp.bitwise_xor,
}
lower_table(_overloads(BITWISE, "Tensor", "Scalar", "Scalar_Tensor"), _rule(to_common))


def _left_shift(x: Array, y: Array) -> Array:
    return lax.shift_left(*jnp.broadcast_arrays(x, y))


def _right_shift(x: Array, y: Array) -> Array:
    shift = lax.shift_right_arithmetic if jnp.issubdtype(x.dtype, jnp.signedinteger) else lax.shift_right_logical
    return shift(*jnp.broadcast_arrays(x, y))


# A shift by a negative number or by too many bits leaves the sign, in XLA as in ATen.
SHIFTS = {"aten::bitwise_left_shift": _left_shift, "aten::bitwise_right_shift": _right_shift}
lower_table(_overloads(SHIFTS, "Tensor", "Tensor_Scalar", "Scalar_Tensor"), _rule(to_common))
OLD_SHIFTS = {"aten::__lshift__": _left_shift, "aten::__rshift__": _right_shift}
lower_table(_overloads(OLD_SHIFTS, "Tensor", "Scalar"), _rule(to_common))


def _truths(ctx: RuleContext, *xs: Any) -> list[Any]:
    return [truth(x) for x in xs]


LOGICAL = {
    "aten::logical_and": jnp.logical_and,
    "aten::logical_or": jnp.logical_or,
    "aten::logical_xor": jnp.logical_xor,
}
lower_table(LOGICAL, _rule(_truths))


def _heaviside(x: Array, values: Array) -> Array:
    zero = constant(0, x.dtype)
    return jnp.where(x == zero, values, cast(jnp.greater(x, zero), x.dtype))


# Choose one of the operands, or count in integers: nothing is rounded, so nothing is widened.
SELECTION = {
    "aten::maximum": jnp.maximum,
    "aten::minimum": jnp.minimum,
    "aten::max.other": jnp.maximum,
    "aten::min.other": jnp.minimum,
    "aten::fmax": jnp.fmax,
    "aten::fmin": jnp.fmin,
    "aten::heaviside": _heaviside,
    "aten::gcd": greatest_common_divisor,
    "aten::lcm": least_common_multiple,
    "aten::nextafter": jnp.nextafter,
}
lower_table(SELECTION, _rule(to_common))


def _xlogy(x: Array, y: Array) -> Array:
    product = jnp.where(x == 0, constant(0, x.dtype), x * jnp.log(y))
    return jnp.where(y != y, y, product)


def _xlog1py(x: Array, y: Array) -> Array:
    product = jnp.where(x == 0, constant(0, x.dtype), x * jnp.log1p(y))
    return jnp.where(y != y, y, product)


# Integers become floats.
FLOAT = {
    "aten::atan2": jnp.arctan2,
    "aten::copysign.Tensor": copysign,
    "aten::copysign.Scalar": copysign,
    "aten::hypot": jnp.hypot,
    "aten::logaddexp": _logaddexp,
    "aten::logaddexp2": jnp.logaddexp2,
    "aten::xlogy.Tensor": _xlogy,
    "aten::xlogy.Scalar_Self": _xlogy,
    "aten::xlogy.Scalar_Other": _xlogy,
    "aten::special_xlog1py": _xlog1py,
    "aten::special_xlog1py.self_scalar": _xlog1py,
    "aten::special_xlog1py.other_scalar": _xlog1py,
    "aten::special_zeta": zeta,
    "aten::special_zeta.self_scalar": zeta,
    "aten::special_zeta.other_scalar": zeta,
    "aten::igamma": lambda a, x: _incomplete_gamma(jsp.gammainc, 1, a, x),
    "aten::igammac": lambda a, x: _incomplete_gamma(jsp.gammaincc, 0, a, x),
}
lower_table(FLOAT, _rule(to_float))


def _integer_power(x: Array, exponent: Array) -> Array:
    """Repeated squaring over every bit of the exponent; wraps.

    Negative exponents give the truncated inverse, as ATen does: 1 and -1 have one, all others give zero.
    """
    x, exponent = jnp.broadcast_arrays(x, exponent)
    one, zero = constant(1, x.dtype), constant(0, x.dtype)
    signed = jnp.issubdtype(x.dtype, jnp.signedinteger)
    out, square = jnp.full(x.shape, one), x
    for bit in range(8 * x.dtype.itemsize - signed):
        odd = (exponent >> constant(bit, x.dtype)) & one
        out = jnp.where(odd != 0, out * square, out)
        square = square * square
    if not signed:
        return out
    inverse = jnp.where(x == -1, jnp.where((exponent & one) != 0, x, one), jnp.where(x == 1, one, zero))
    return jnp.where(exponent < 0, inverse, out)


def _power(x: Array, exponent: Array) -> Array:
    if not is_inexact(x.dtype):
        return _integer_power(x, exponent)
    x, exponent = jnp.broadcast_arrays(x, exponent)
    if not is_complex(x.dtype):
        return lax.pow(x, exponent)
    # Not XLA's, which multiplies what may have overflowed with what may be zero. Zero has no logarithm.
    power = jnp.where(exponent == 0, constant(1, x.dtype), jnp.exp(exponent * jnp.log(x)))
    return jnp.where((x == 0) & (lax.real(exponent) > 0), constant(0, x.dtype), power)


lower_table({"aten::pow.Tensor_Tensor": _power}, _rule(to_compute))


@lower("aten::pow.Scalar")
def aten_pow_Scalar(ctx: RuleContext, self: Scalar, exponent: Array) -> Array:
    """aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor"""
    if is_static(self) and self == 1:
        return jnp.full(exponent.shape, constant(1, ctx.compute_dtype))
    return _power(*to_compute(ctx, self, exponent))


@lower("aten::pow.Tensor_Scalar")
def aten_pow_Tensor_Scalar(ctx: RuleContext, self: Array, exponent: Scalar) -> Array:
    """aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor"""
    (x,) = to_compute(ctx, self)
    if x.dtype == np.bool_:  # to the power of a bool: ATen refuses all others
        return x if exponent else jnp.ones_like(x)
    if not is_static(exponent) or isinstance(exponent, complex):
        return _power(x, cast(exponent, x.dtype))
    if exponent == 0.5 and is_inexact(x.dtype):
        return jnp.sqrt(x)
    if exponent == -0.5 and is_inexact(x.dtype) and not is_complex(x.dtype):
        return lax.rsqrt(x)
    # A general power costs a logarithm and an exponential; ATen multiplies for small exponents as well.
    whole = not is_inexact(x.dtype) or (float(exponent).is_integer() and abs(exponent) <= 4)
    if whole and (exponent >= 0 or is_inexact(x.dtype)):
        return lax.integer_pow(x, int(exponent))
    return _power(x, cast(exponent, x.dtype))


@lower("aten::ldexp.Tensor")
def aten_ldexp_Tensor(ctx: RuleContext, self: Array, other: Array) -> Array:
    """aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor"""
    x, y = to_float(ctx, self, other)
    return x * (exp2(y))
