"""Distances between all pairs of two sets of points, and their gradient.

Shapes: x1 [..., P, M], x2 [..., R, M] -> [..., P, R]; leading dimensions broadcast.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._extremes import largest
from torchtpu.rules._numbers import constant
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _differences(x1: Array, x2: Array) -> Array:
    return x1[..., :, None, :] - x2[..., None, :, :]


@lower("aten::_cdist_forward")
def aten__cdist_forward(ctx: RuleContext, x1: Array, x2: Array, p: float, compute_mode: int | None) -> Array:
    """aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor

    Differs: always from the differences themselves, which the compiler does not store, so no digits are lost.
    """
    if x1.shape[-1] == 0:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    size = jnp.abs(_differences(x1, x2))
    if p == 0:
        return jnp.sum(size != 0, -1, dtype=ctx.out_dtype)
    if p == 1:
        return jnp.sum(size, -1)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, -1))
    if p == float("inf"):
        return largest(size, -1)
    power = constant(p, size.dtype)
    return jnp.sum(size**power, -1) ** constant(1 / p, size.dtype)


@lower("aten::_cdist_backward")
def aten__cdist_backward(ctx: RuleContext, grad: Array, x1: Array, x2: Array, p: float, cdist: Array) -> Array:
    """aten::_cdist_backward(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist) -> Tensor

    The gradient of ``x1``; zero where two points coincide.
    """
    if p == 0 or 0 in grad.shape or x1.shape[-1] == 0:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    difference = _differences(x1, x2)
    grad, cdist = grad[..., None], cdist[..., None]
    zero = constant(0, difference.dtype)
    if p == 1:
        slope = jnp.sign(difference)
    elif p == float("inf"):
        slope = jnp.where(jnp.abs(difference) == cdist, jnp.sign(difference), zero)
    else:
        apart = (cdist != 0) & (difference != 0)
        size = jnp.where(apart, jnp.abs(difference), constant(1, difference.dtype))
        far = jnp.where(apart, cdist, constant(1, difference.dtype))
        # The ratio is at most one, where the powers themselves overflow.
        ratio = (size / far) if p == 2 else (size / far) ** constant(p - 1, difference.dtype)
        slope = jnp.where(apart, jnp.sign(difference) * ratio, zero)
    return jnp.broadcast_to(jnp.sum(grad * slope, -2), ctx.out_shape)


def _pairs(num: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every pair, in the order of a packed triangle; int32."""
    rows, columns = np.triu_indices(num, 1)
    return rows.astype(np.int32), columns.astype(np.int32)


@lower("aten::_pdist_forward")
def aten__pdist_forward(ctx: RuleContext, self: Array, p: float = 2.0) -> Array:
    """aten::_pdist_forward(Tensor self, float p=2.) -> Tensor"""
    if 0 in ctx.out_shape:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    every = replace(ctx, outputs=(jax.ShapeDtypeStruct((self.shape[0],) * 2, ctx.out_dtype),))
    return aten__cdist_forward(every, self, self, p, None)[_pairs(self.shape[0])]


@lower("aten::_pdist_backward")
def aten__pdist_backward(ctx: RuleContext, grad: Array, self: Array, p: float, pdist: Array) -> Array:
    """aten::_pdist_backward(Tensor grad, Tensor self, float p, Tensor pdist) -> Tensor"""
    if grad.size == 0:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)

    def square(packed: Array) -> Array:
        rows, columns = _pairs(self.shape[0])
        place = np.zeros((self.shape[0],) * 2, np.int32)
        place[rows, columns] = place[columns, rows] = np.arange(rows.size)
        return jnp.take(packed, place, mode="clip")  # the diagonal is of no consequence: its points coincide

    return aten__cdist_backward(ctx, square(grad), self, self, p, square(pdist))
