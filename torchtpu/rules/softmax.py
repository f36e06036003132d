"""Softmax and its logarithm, forward and backward."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from torchtpu.rules._numbers import canonical_dim, cast
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.registry import lower


def _compute(x: Array, dim: int) -> tuple[Array, int | None]:
    """``x`` in its compute dtype, and the axis of ``dim`` (None for a 0-d array)."""
    return cast(x, opmath(x.dtype)), None if x.ndim == 0 else canonical_dim(dim, x.ndim)


@lower("aten::_softmax")
def aten__softmax(ctx: RuleContext, self: Array, dim: int, half_to_float: bool) -> Array:
    """aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"""
    x, axis = _compute(self, dim)
    if x.size == 0:
        return x
    weights = jnp.exp(x - jnp.max(x, axis, keepdims=True))
    return weights / jnp.sum(weights, axis, keepdims=True)


@lower("aten::_log_softmax")
def aten__log_softmax(ctx: RuleContext, self: Array, dim: int, half_to_float: bool) -> Array:
    """aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"""
    x, axis = _compute(self, dim)
    if x.size == 0:
        return x
    largest = jnp.max(x, axis, keepdims=True)
    total = jnp.log(jnp.sum(jnp.exp(x - largest), axis, keepdims=True))
    # The difference is made again, in the loop of whatever uses the result: shared with the sum, it would be written to memory.
    largest, total = lax.optimization_barrier((largest, total))
    return x - largest - total


@lower("aten::_softmax_backward_data")
def aten__softmax_backward_data(
    ctx: RuleContext, grad_output: Array, output: Array, dim: int, input_dtype: Any
) -> Array:
    """aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor"""
    wide = opmath(output.dtype)
    grad, out = cast(grad_output, wide), cast(output, wide)
    axis = None if out.ndim == 0 else canonical_dim(dim, out.ndim)
    weighted = grad * out
    return weighted - out * jnp.sum(weighted, axis, keepdims=True)


@lower("aten::_log_softmax_backward_data")
def aten__log_softmax_backward_data(
    ctx: RuleContext, grad_output: Array, output: Array, dim: int, input_dtype: Any
) -> Array:
    """aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor"""
    wide = opmath(output.dtype)
    grad, out = cast(grad_output, wide), cast(output, wide)
    axis = None if out.ndim == 0 else canonical_dim(dim, out.ndim)
    total = jnp.sum(grad, axis, keepdims=True)
    # Changes nothing, but XLA:CPU would fuse the sum with what follows, and write both operands to memory for it.
    total = jnp.where(total != 0, total, 0)
    return grad - jnp.exp(out) * total
