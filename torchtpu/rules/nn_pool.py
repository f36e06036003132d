"""Pooling over the trailing one to three dimensions.

The values of maximum pooling are one reduction over windows. Their indices go one axis at a time over strided slices: the
maximum of a window is the maximum over its rows' maxima, and taking the first one in each step yields the first one in
row-major order, whose index PyTorch returns. Where the indices are not used, XLA drops their half of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.rules._division import truncated_quotient
from torchtpu.rules._extremes import window_maximum
from torchtpu.rules._numbers import constant
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower_table

Array = jax.Array
Ints = Sequence[int]

# Windows up to this many elements scatter their gradient as that many padded additions, larger ones as a scatter.
MAX_DENSE_WINDOW = 64


def _spread(values: Ints | int, num_dims: int) -> tuple[int, ...]:
    """One value a spatial dimension; ATen lets a single one stand for all."""
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * num_dims if len(values) == 1 else values


def _lowest(dtype: np.dtype) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return constant(-np.inf, dtype)
    return constant(jnp.iinfo(dtype).min, dtype)


def axis_slices(x: Array, axis: int, out: int, kernel: int, stride: int, pad: int, dilation: int,
                 fill: Any) -> Iterator[Array]:
    """For each offset of the window, the element of ``x`` that it covers at each of ``out`` places along an axis."""
    span = (out - 1) * stride + (kernel - 1) * dilation + 1
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (pad, max(span - pad - x.shape[axis], 0), 0)
    padded = lax.pad(x, jnp.asarray(fill, x.dtype), config)
    for offset in range(kernel):
        start = offset * dilation
        yield lax.slice_in_dim(padded, start, start + (out - 1) * stride + 1, stride, axis)


def _window_pads(spatial: Ints, out: Ints, kernel: Ints, step: Ints, pad: Ints, dil: Ints) -> list[tuple[int, int]]:
    """Padding before and after each dimension, so that exactly ``out`` windows fit; negative where a rest is left over."""
    windows = zip(spatial, out, kernel, step, pad, dil, strict=True)
    return [(p, (o - 1) * s + (k - 1) * d + 1 - p - n) for n, o, k, s, p, d in windows]


def _reduce_windows(x: Array, combine: Callable[..., Any], initial: Any, kernel: Ints, step: Ints,
                    pads: Sequence[tuple[int, int]], dil: Ints = ()) -> Array:
    """One value for each window over the trailing dimensions."""
    ones = (1,) * (x.ndim - len(kernel))
    return lax.reduce_window(x, initial, combine, ones + tuple(kernel), ones + tuple(step), ((0, 0),) * len(ones) + tuple(pads),
                             window_dilation=ones + tuple(dil or (1,) * len(kernel)))


def _window_sum(x: Array, kernel: Ints, step: Ints, pads: Sequence[tuple[int, int]]) -> Array:
    return _reduce_windows(x, lax.add, np.zeros((), x.dtype), kernel, step, pads)


def adaptive_bounds(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of each window of an adaptive pooling."""
    places = np.arange(out)
    return places * size // out, -((-(places + 1) * size) // out)


def adaptive_slices(x: Array, axis: int, out: int) -> Iterator[Array]:
    """Like ``axis_slices`` for adaptive windows; those shorter than the longest repeat their last element."""
    begin, end = adaptive_bounds(x.shape[axis], out)
    for offset in range(int((end - begin).max(initial=0))):
        yield jnp.take(x, np.minimum(begin + offset, end - 1), axis=axis, mode="clip")


def first_maximum(
    x: Array, num_dims: int, slices: Callable[[Array, int, Any], Iterator[Array]]
) -> tuple[Array, Array]:
    """Window maxima of ``x`` and their index in the flattened spatial dimensions; the last NaN wins, as in ATen.

    Args:
        slices: ``slices(array, dim, fill)`` iterates over the offsets of the window along spatial dimension ``dim``.
    """
    spatial = x.shape[x.ndim - num_dims:]
    index = jnp.asarray(np.arange(math.prod(spatial), dtype=np.int32).reshape(spatial))
    index = jnp.broadcast_to(index, x.shape)
    best = x
    for dim in reversed(range(num_dims)):
        pairs = zip(slices(best, dim, _lowest(x.dtype)), slices(index, dim, -1), strict=True)
        best, index = next(pairs)
        for value, place in pairs:
            # An index of -1 is padding so far: the first real element replaces it even where all are -inf.
            take = (value > best) | ((index < 0) & (place >= 0))
            if jnp.issubdtype(x.dtype, jnp.floating):
                take = take | jnp.isnan(value)
            best, index = jnp.where(take, value, best), jnp.where(take, place, index)
    return best, index


def _make_max_pool(num_dims: int) -> Callable[..., tuple[Array, Array]]:
    def rule(ctx: RuleContext, self: Array, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
             dilation: Ints = (1,), ceil_mode: bool = False) -> tuple[Array, Array]:
        kernel, pad, dil = (_spread(v, num_dims) for v in (kernel_size, padding, dilation))
        step = _spread(stride, num_dims) if len(_spread(stride, 1)) else kernel
        out = ctx.out_shape[self.ndim - num_dims:]

        def slices(array: Array, dim: int, fill: Any) -> Iterator[Array]:
            axis = array.ndim - num_dims + dim
            return axis_slices(array, axis, out[dim], kernel[dim], step[dim], pad[dim], dil[dim], fill)

        if 0 in ctx.out_shape:
            return jnp.zeros(ctx.out_shape, self.dtype), jnp.zeros(ctx.out_shape, jnp.int32)
        _, indices = first_maximum(self, num_dims, slices)
        pads = _window_pads(self.shape[self.ndim - num_dims:], out, kernel, step, pad, dil)

        def reduce_windows(x: Array, combine: Callable[..., Any], initial: Any) -> Array:
            return _reduce_windows(x, combine, initial, kernel, step, pads, dil)

        return window_maximum(self, _lowest(self.dtype), reduce_windows), indices

    return rule


def scatter_plane(grad: Array, indices: Array, shape: tuple[int, ...], num_dims: int) -> Array:
    """Add each gradient at its index of the flattened spatial dimensions."""
    lead = shape[: len(shape) - num_dims]
    rows = math.prod(lead)
    plane = math.prod(shape[len(shape) - num_dims:])
    g, at = grad.reshape(rows, -1), indices.reshape(rows, -1).astype(jnp.int32)
    out = jnp.zeros((rows, plane), g.dtype).at[jnp.arange(rows, dtype=jnp.int32)[:, None], at].add(g)
    return out.reshape(shape)


def _dense_plane(grad: Array, indices: Array, shape: tuple[int, ...], num_dims: int, kernel: Ints, step: Ints,
                 pad: Ints, dil: Ints) -> Array:
    """Add each gradient at its index as one masked, strided pad for each offset of the window: no scatter."""
    spatial, out = shape[len(shape) - num_dims:], grad.shape[len(shape) - num_dims:]
    index = indices.astype(jnp.int32)
    total = jnp.zeros(shape, grad.dtype)
    for offset in np.ndindex(*kernel):
        place = np.zeros(out, np.int32)
        config = [(0, 0, 0)] * (len(shape) - num_dims)
        for dim, size in enumerate(spatial):
            first = offset[dim] * dil[dim] - pad[dim]
            along = first + np.arange(out[dim], dtype=np.int32) * step[dim]
            # Places in the padding get an index that no element has.
            along = np.where((along < 0) | (along >= size), -(1 << 30), along * math.prod(spatial[dim + 1:]))
            place = np.maximum(place + along.reshape((-1,) + (1,) * (num_dims - 1 - dim)), -(1 << 30))
            last = first + (out[dim] - 1) * step[dim]
            config.append((first, size - 1 - last, step[dim] - 1))
        hit = jnp.where(index == place, grad, 0)
        total = total + lax.pad(hit, jnp.zeros((), hit.dtype), config)
    return total


def _make_max_pool_backward(num_dims: int) -> Callable[..., Array]:
    def rule(ctx: RuleContext, grad_output: Array, self: Array, kernel_size: Ints, stride: Ints, padding: Ints,
             dilation: Ints, ceil_mode: bool, indices: Array) -> Array:
        kernel, pad, dil = (_spread(v, num_dims) for v in (kernel_size, padding, dilation))
        step = _spread(stride, num_dims) if len(_spread(stride, 1)) else kernel
        grad = widen(grad_output)
        if grad.size == 0:
            return jnp.zeros(self.shape, grad.dtype)
        if math.prod(kernel) > MAX_DENSE_WINDOW:
            return scatter_plane(grad, indices, self.shape, num_dims)
        return _dense_plane(grad, indices, self.shape, num_dims, kernel, step, pad, dil)

    return rule


lower_table({"aten::max_pool2d_with_indices": 2, "aten::max_pool3d_with_indices": 3}, _make_max_pool)
lower_table({"aten::max_pool2d_with_indices_backward": 2, "aten::max_pool3d_with_indices_backward": 3},
            _make_max_pool_backward)


def _divisors(ctx_shape: Ints, in_shape: Ints, kernel: Ints, step: Ints, pad: Ints, include_pad: bool,
              override: int | None) -> np.ndarray | float:
    """What each window's sum is divided by: a constant, or one number a place where windows hang over the edge."""
    if override is not None:
        return float(override)
    counts = np.ones((1,) * len(kernel))
    for dim, size in enumerate(in_shape):
        begin = np.arange(ctx_shape[dim]) * step[dim] - pad[dim]
        end = np.minimum(begin + kernel[dim], size + pad[dim])
        if not include_pad:
            begin, end = np.maximum(begin, 0), np.minimum(end, size)
        counts = counts * (end - begin).reshape((-1,) + (1,) * (len(kernel) - 1 - dim))
    return counts


def _make_avg_pool(num_dims: int) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
             ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Array:
        kernel, pad = _spread(kernel_size, num_dims), _spread(padding, num_dims)
        step = _spread(stride, num_dims) if len(_spread(stride, 1)) else kernel
        x = widen(self)
        spatial, out = x.shape[x.ndim - num_dims:], ctx.out_shape[x.ndim - num_dims:]
        if 0 in ctx.out_shape:
            return jnp.zeros(ctx.out_shape, x.dtype)
        pads = _window_pads(spatial, out, kernel, step, pad, (1,) * num_dims)
        counts = _divisors(out, spatial, kernel, step, pad, count_include_pad, divisor_override)
        return _quotient(_window_sum(x, kernel, step, pads), counts)

    return rule


def _quotient(x: Array, counts: np.ndarray | float) -> Array:
    counts = np.asarray(counts)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return truncated_quotient(x, jnp.asarray(counts.astype(x.dtype)))
    return x / counts.astype(x.dtype)


def _make_avg_pool_backward(num_dims: int) -> Callable[..., Array]:
    def rule(ctx: RuleContext, grad_output: Array, self: Array, kernel_size: Ints, stride: Ints, padding: Ints,
             ceil_mode: bool, count_include_pad: bool, divisor_override: int | None) -> Array:
        kernel, pad = _spread(kernel_size, num_dims), _spread(padding, num_dims)
        step = _spread(stride, num_dims) if len(_spread(stride, 1)) else kernel
        g = widen(grad_output)
        lead = g.ndim - num_dims
        spatial, out = self.shape[lead:], g.shape[lead:]
        if g.size == 0 or self.size == 0:
            return jnp.zeros(self.shape, g.dtype)
        g = _quotient(g, _divisors(out, spatial, kernel, step, pad, count_include_pad, divisor_override))
        # The adjoint of a strided window sum: spread the gradient by the stride, then sum windows at every place.
        config = [(0, 0, 0)] * lead
        for p, o, s, k, n in zip(pad, out, step, kernel, spatial, strict=True):
            config.append((k - 1 - p, n + p - (o - 1) * s - 1, s - 1))
        g = lax.pad(g, np.zeros((), g.dtype), config)
        return _window_sum(g, kernel, (1,) * num_dims, ((0, 0),) * num_dims)

    return rule


lower_table({"aten::avg_pool2d": 2, "aten::avg_pool3d": 3}, _make_avg_pool)
lower_table({"aten::avg_pool2d_backward": 2, "aten::avg_pool3d_backward": 3}, _make_avg_pool_backward)
