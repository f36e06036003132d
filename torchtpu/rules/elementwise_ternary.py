"""Elementwise operators of three operands: selection, clamping, fused multiply-add and interpolation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from torchtpu.rules._numbers import Scalar, cast, constant, scaled, to_common, to_compute, truth
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


@lower("aten::where.self")
def aten_where_self(ctx: RuleContext, condition: Array, self: Array, other: Array) -> Array:
    """aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"""
    x, y = (cast(value, ctx.out_dtype) for value in (self, other))
    return jnp.where(truth(condition), x, y)


@lower("aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
def aten_masked_fill(ctx: RuleContext, self: Array, mask: Array, value: Scalar) -> Array:
    """``value``, a number or a 0-d tensor, where ``mask`` is set, and ``self`` elsewhere."""
    return jnp.where(truth(mask), cast(value, self.dtype), self)


@lower("aten::clamp", "aten::clamp.Tensor")
def aten_clamp(ctx: RuleContext, self: Array, min: Any = None, max: Any = None) -> Array:
    """Clamping between numbers or tensors: NaN stays, and ``max`` wins where the bounds cross."""
    (x,) = to_common(ctx, self)
    if min is not None:
        x = jnp.maximum(x, *to_common(ctx, min))
    if max is not None:
        x = jnp.minimum(x, *to_common(ctx, max))
    return x


@lower("aten::clamp_min", "aten::clamp_min.Tensor")
def aten_clamp_min(ctx: RuleContext, self: Array, min: Any) -> Array:
    """Clamping from below with a number or a tensor."""
    return aten_clamp(ctx, self, min, None)


@lower("aten::clamp_max", "aten::clamp_max.Tensor")
def aten_clamp_max(ctx: RuleContext, self: Array, max: Any) -> Array:
    """Clamping from above with a number or a tensor."""
    return aten_clamp(ctx, self, None, max)


@lower("aten::addcmul")
def aten_addcmul(ctx: RuleContext, self: Array, tensor1: Array, tensor2: Array, *, value: Scalar = 1) -> Array:
    """aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"""
    x, y, z = to_compute(ctx, self, tensor1, tensor2)
    return x + scaled(y, value) * z


@lower("aten::addcdiv")
def aten_addcdiv(ctx: RuleContext, self: Array, tensor1: Array, tensor2: Array, *, value: Scalar = 1) -> Array:
    """aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"""
    x, y, z = to_compute(ctx, self, tensor1, tensor2)
    return x + scaled(y, value) / z


@lower("aten::lerp.Scalar", "aten::lerp.Tensor")
def aten_lerp(ctx: RuleContext, self: Array, end: Array, weight: Scalar) -> Array:
    """Linear interpolation with a number or a tensor as weight.

    Source: aten/src/ATen/native/Lerp.h, which starts from the nearer end.
    """
    x, y, w = to_compute(ctx, self, end, weight)
    one = constant(1, w.dtype)
    return jnp.where(jnp.abs(w) < 0.5, x + w * (y - x), y - (y - x) * (one - w))
