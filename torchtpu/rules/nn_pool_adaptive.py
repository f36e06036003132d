"""Adaptive pooling: windows that divide the input evenly are reshapes, others constant averaging matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.nn_pool import adaptive_bounds, adaptive_slices, axis_slices, first_maximum, scatter_plane
from torchtpu.rules.registry import lower_table

Array = jax.Array
Ints = Sequence[int]


def apply_along(x: Array, matrix: np.ndarray, axis: int) -> Array:
    """Multiply a constant matrix [out, in] to one axis of ``x``, in the full precision of its dtype."""
    moved = jnp.tensordot(x, jnp.asarray(matrix, x.dtype), ((axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(moved, -1, axis)


def _averaging(size: int, out: int) -> np.ndarray:
    """The matrix [out, size] that averages each adaptive window."""
    begin, end = adaptive_bounds(size, out)
    places = np.arange(size)
    inside = (places >= begin[:, None]) & (places < end[:, None])
    return inside / (end - begin)[:, None]


def _make_average(num_dims: int) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array, output_size: Ints) -> Array:
        x = widen(self)
        if 0 in ctx.out_shape or x.size == 0:
            return jnp.zeros(ctx.out_shape, x.dtype)
        lead = x.ndim - num_dims
        for axis, out in zip(range(lead, x.ndim), ctx.out_shape[lead:], strict=True):
            size = x.shape[axis]
            if size % out == 0:
                x = x.reshape(*x.shape[:axis], out, size // out, *x.shape[axis + 1:]).mean(axis + 1)
            else:
                x = apply_along(x, _averaging(size, out), axis)
        return x

    return rule


def _make_average_backward(num_dims: int) -> Callable[..., Array]:
    def rule(ctx: RuleContext, grad_output: Array, self: Array) -> Array:
        g = widen(grad_output)
        if g.size == 0 or self.size == 0:
            return jnp.zeros(self.shape, g.dtype)
        for axis in range(g.ndim - num_dims, g.ndim):
            size, out = self.shape[axis], g.shape[axis]
            if size % out == 0:
                g = jnp.repeat(g, size // out, axis=axis) * (out / size)
            else:
                g = apply_along(g, _averaging(size, out).T, axis)
        return g

    return rule


lower_table({"aten::_adaptive_avg_pool2d": 2, "aten::_adaptive_avg_pool3d": 3}, _make_average)
lower_table({"aten::_adaptive_avg_pool2d_backward": 2, "aten::_adaptive_avg_pool3d_backward": 3},
            _make_average_backward)


def _make_maximum(num_dims: int) -> Callable[..., tuple[Array, Array]]:
    def rule(ctx: RuleContext, self: Array, output_size: Ints) -> tuple[Array, Array]:
        if 0 in ctx.out_shape:
            return jnp.zeros(ctx.out_shape, self.dtype), jnp.zeros(ctx.out_shape, jnp.int32)

        def slices(array: Array, dim: int, fill: Any) -> Iterator[Array]:
            axis = array.ndim - num_dims + dim
            size, out = array.shape[axis], ctx.out_shape[axis]
            if size % out == 0:
                return axis_slices(array, axis, out, size // out, size // out, 0, 1, fill)
            return adaptive_slices(array, axis, out)

        return first_maximum(self, num_dims, slices)

    return rule


def _make_maximum_backward(num_dims: int) -> Callable[..., Array]:
    def rule(ctx: RuleContext, grad_output: Array, self: Array, indices: Array) -> Array:
        grad = widen(grad_output)
        if grad.size == 0:
            return jnp.zeros(self.shape, grad.dtype)
        return scatter_plane(grad, indices, self.shape, num_dims)

    return rule


lower_table({"aten::adaptive_max_pool2d": 2, "aten::adaptive_max_pool3d": 3}, _make_maximum)
lower_table({"aten::adaptive_max_pool2d_backward": 2, "aten::adaptive_max_pool3d_backward": 3}, _make_maximum_backward)
