"""Elementwise operators of one tensor, and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import Array, lax

from torchtpu.rules._exponentials import atanh, cosh, exp2, expm1, log1p, sinh, tanh
from torchtpu.rules._float_bits import frexp, signbit
from torchtpu.rules._numbers import (
    Scalar,
    cast,
    constant,
    float_rule,
    full,
    is_bool,
    is_complex,
    is_inexact,
    to_compute,
    to_float,
    truth,
)
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower, lower_table


def _reciprocal(x: Array) -> Array:
    return jnp.divide(constant(1, x.dtype), x)


def _sinc(x: Array) -> Array:
    scaled = x * constant(np.pi, x.dtype)
    safe = jnp.where(x == 0, constant(1, x.dtype), scaled)
    return jnp.where(x == 0, constant(1, x.dtype), jnp.sin(safe) / safe)


def _arcsin(x: Array) -> Array:
    """XLA halves the argument, which makes the smallest numbers subnormal: zero."""
    if is_complex(x.dtype):
        return jnp.arcsin(x)
    return jnp.where(jnp.abs(x) < constant(2.0**-30, x.dtype), x, jnp.arcsin(x))


def _odd_bessel(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Zero at zeros of either sign, not minus zero: so says ATen's formula, which is negated left of zero only."""
    return lambda x: jnp.where(x == 0, constant(0, x.dtype), function(x))


def _rsqrt(x: Array) -> Array:
    return _reciprocal(jnp.sqrt(x)) if is_complex(x.dtype) else lax.rsqrt(x)


def _sigmoid(x: Array) -> Array:
    return _reciprocal(jnp.add(constant(1, x.dtype), jnp.exp(-x))) if is_complex(x.dtype) else lax.logistic(x)


FLOAT = {
    "aten::exp": jnp.exp,
    "aten::exp2": exp2,
    "aten::expm1": expm1,
    "aten::log": jnp.log,
    "aten::log2": jnp.log2,
    "aten::log10": jnp.log10,
    "aten::log1p": log1p,
    "aten::sqrt": jnp.sqrt,
    "aten::rsqrt": _rsqrt,
    "aten::reciprocal": _reciprocal,
    "aten::sin": jnp.sin,
    "aten::cos": jnp.cos,
    "aten::tan": jnp.tan,
    "aten::asin": _arcsin,
    "aten::acos": jnp.arccos,
    "aten::atan": jnp.arctan,
    "aten::sinh": sinh,
    "aten::cosh": cosh,
    "aten::tanh": tanh,
    "aten::asinh": jnp.arcsinh,
    "aten::acosh": jnp.arccosh,
    "aten::atanh": atanh,
    "aten::sigmoid": _sigmoid,
    "aten::sinc": _sinc,
    "aten::deg2rad": lambda x: x * constant(np.pi / 180, x.dtype),
    "aten::rad2deg": lambda x: x * constant(180 / np.pi, x.dtype),
    "aten::i0": jsp.i0,
    "aten::special_i0e": jsp.i0e,
    "aten::special_i1": _odd_bessel(jsp.i1),
    "aten::special_i1e": _odd_bessel(jsp.i1e),
    "aten::special_modified_bessel_i0": jsp.i0,
    "aten::special_modified_bessel_i1": _odd_bessel(jsp.i1),
}
lower_table(FLOAT, float_rule)


def _rounding_rule(function: Callable[[Any], Any]) -> Callable[[RuleContext, Array], Array]:
    def rule(ctx: RuleContext, self: Array) -> Array:
        return function(self) if is_inexact(self.dtype) else self

    return rule


# Exact in 16-bit floats, so nothing is widened; integers are whole already.
ROUNDING = {"aten::floor": jnp.floor, "aten::ceil": jnp.ceil, "aten::trunc": jnp.trunc, "aten::round": jnp.round}
lower_table(ROUNDING, _rounding_rule)


@lower("aten::round.decimals")
def aten_round_decimals(ctx: RuleContext, self: Array, *, decimals: int) -> Array:
    """aten::round.decimals(Tensor self, *, int decimals) -> Tensor"""
    if not is_inexact(self.dtype):
        return self
    (x,) = to_compute(ctx, self)
    ten = constant(10.0 ** abs(decimals), x.dtype)
    return jnp.round(x * ten) / ten if decimals >= 0 else jnp.round(x / ten) * ten


@lower("aten::frac")
def aten_frac(ctx: RuleContext, self: Array) -> Array:
    """aten::frac(Tensor self) -> Tensor"""
    return self - jnp.trunc(self)


@lower("aten::neg")
def aten_neg(ctx: RuleContext, self: Array) -> Array:
    """aten::neg(Tensor self) -> Tensor"""
    return -self


@lower("aten::abs")
def aten_abs(ctx: RuleContext, self: Array) -> Array:
    """aten::abs(Tensor self) -> Tensor"""
    return self if is_bool(self.dtype) else jnp.abs(self)


@lower("aten::sign")
def aten_sign(ctx: RuleContext, self: Array) -> Array:
    """aten::sign(Tensor self) -> Tensor"""
    if is_bool(self.dtype):
        return self
    # Not jnp.sign: ATen counts comparisons, which makes the sign of NaN zero.
    return cast(self > 0, self.dtype) - cast(self < 0, self.dtype)


@lower("aten::sgn")
def aten_sgn(ctx: RuleContext, self: Array) -> Array:
    """aten::sgn(Tensor self) -> Tensor"""
    if not is_complex(self.dtype):
        return aten_sign(ctx, self)
    size = jnp.abs(self)
    return jnp.where(size == 0, constant(0, self.dtype), self / cast(jnp.where(size == 0, 1, size), self.dtype))


@lower("aten::signbit")
def aten_signbit(ctx: RuleContext, self: Array) -> Array:
    """aten::signbit(Tensor self) -> Tensor"""
    if is_inexact(self.dtype):
        return signbit(self)
    return jnp.zeros(self.shape, bool) if is_bool(self.dtype) else self < 0


@lower("aten::angle")
def aten_angle(ctx: RuleContext, self: Array) -> Array:
    """aten::angle(Tensor self) -> Tensor"""
    (x,) = to_float(ctx, self)
    if is_complex(x.dtype):
        return lax.atan2(lax.imag(x), lax.real(x))
    angle = jnp.where(x < 0, constant(np.pi, x.dtype), constant(0, x.dtype))
    return jnp.where(jnp.isnan(x), x, angle)


@lower("aten::conj_physical", "aten::_conj_physical", "aten::_conj_copy")
def aten_conj_physical(ctx: RuleContext, self: Array) -> Array:
    """The complex conjugate, as a new tensor."""
    return lax.conj(self) if is_complex(self.dtype) else self


@lower("aten::bitwise_not")
def aten_bitwise_not(ctx: RuleContext, self: Array) -> Array:
    """aten::bitwise_not(Tensor self) -> Tensor"""
    return jnp.bitwise_not(self)


@lower("aten::logical_not")
def aten_logical_not(ctx: RuleContext, self: Array) -> Array:
    """aten::logical_not(Tensor self) -> Tensor"""
    return ~truth(self)


def _predicate_rule(function: Callable[[Any], Any]) -> Callable[[RuleContext, Array], Array]:
    def rule(ctx: RuleContext, self: Array) -> Array:
        return function(self) if is_inexact(self.dtype) else jnp.zeros(self.shape, bool)

    return rule


# False for every integer and bool.
PREDICATES = {
    "aten::isnan": lambda x: x != x,
    "aten::isinf": jnp.isinf,
    "aten::isposinf": lambda x: x == constant(np.inf, x.dtype),
    "aten::isneginf": lambda x: x == constant(-np.inf, x.dtype),
}
lower_table(PREDICATES, _predicate_rule)


@lower("aten::nan_to_num")
def aten_nan_to_num(
    ctx: RuleContext, self: Array, nan: Scalar = None, posinf: Scalar = None, neginf: Scalar = None
) -> Array:
    """aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor"""
    dtype = self.dtype
    if not is_inexact(dtype):
        return self
    if is_complex(dtype):
        parts = (aten_nan_to_num(ctx, part, nan, posinf, neginf) for part in (lax.real(self), lax.imag(self)))
        return lax.complex(*parts)
    limits = jnp.finfo(dtype)
    inf = constant(np.inf, dtype)
    out = jnp.where(self != self, cast(0 if nan is None else nan, dtype), self)
    out = jnp.where(self == inf, cast(limits.max if posinf is None else posinf, dtype), out)
    return jnp.where(self == -inf, cast(limits.min if neginf is None else neginf, dtype), out)


@lower("aten::logit")
def aten_logit(ctx: RuleContext, self: Array, eps: Scalar = None) -> Array:
    """aten::logit(Tensor self, float? eps=None) -> Tensor"""
    (x,) = to_float(ctx, self)
    one = constant(1, x.dtype)
    if eps is not None:
        low = cast(eps, x.dtype)
        x = jnp.where(x < low, low, jnp.where(x > one - low, one - low, x))
    return jnp.log(x / (one - x))


@lower("aten::frexp.Tensor")
def aten_frexp_Tensor(ctx: RuleContext, self: Array) -> tuple[Array, Array]:
    """aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)"""
    (x,) = to_compute(ctx, self)
    return frexp(x)


@lower("aten::clone", "aten::lift", "aten::lift_fresh_copy", "aten::alias_copy", "aten::detach_copy")
def aten_clone(ctx: RuleContext, self: Array, *, memory_format: None = None) -> Array:
    """Copies that change nothing: values are immutable here, so the copy is free."""
    return self


@lower("aten::_to_copy")
def aten__to_copy(ctx: RuleContext, self: Array, *, non_blocking: bool = False, **_: Any) -> Array:
    """aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor"""  # noqa: E501
    return cast(self, ctx.out_dtype)


@lower("prims::convert_element_type")
def prims_convert_element_type(ctx: RuleContext, a: Array, dtype: np.dtype) -> Array:
    """prims::convert_element_type(Tensor a, ScalarType dtype) -> Tensor"""
    return cast(a, ctx.out_dtype)


@lower("aten::copy")
def aten_copy(ctx: RuleContext, self: Array, src: Array, non_blocking: bool = False) -> Array:
    """aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor"""
    return jnp.broadcast_to(cast(src, self.dtype), self.shape)


@lower("aten::fill.Scalar", "aten::fill.Tensor")
def aten_fill(ctx: RuleContext, self: Array, value: Scalar) -> Array:
    """Every element of ``self`` replaced with one number, given as a number or as a 0-d tensor."""
    return full(self.shape, value, self.dtype)


@lower("aten::zero")
def aten_zero(ctx: RuleContext, self: Array) -> Array:
    """aten::zero(Tensor self) -> Tensor"""
    return jnp.zeros(self.shape, self.dtype)


@lower("aten::_neg_view_copy")
def aten__neg_view_copy(ctx: RuleContext, self: Array) -> Array:
    """aten::_neg_view_copy(Tensor self) -> Tensor"""
    return -self
