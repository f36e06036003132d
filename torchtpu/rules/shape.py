"""Operators that move elements: joining, padding, repeating, triangles, and the backward forms of views."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import Scalar, canonical_dim, cast, constant, index_dtype
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


@lower("aten::cat")
def aten_cat(ctx: RuleContext, tensors: Sequence[Array], dim: int = 0) -> Array:
    """aten::cat(Tensor[] tensors, int dim=0) -> Tensor"""
    # PyTorch skips empty 1-d tensors, whatever the shape of the others.
    kept = [x for x in tensors if x.shape != (0,)] or list(tensors)
    return lax.concatenate([cast(x, ctx.out_dtype) for x in kept], canonical_dim(dim, kept[0].ndim))


@lower("aten::stack", "aten::_stack")
def aten_stack(ctx: RuleContext, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Tensors of one shape joined along a new dimension."""
    dim = canonical_dim(dim, tensors[0].ndim + 1)
    return lax.concatenate([jnp.expand_dims(cast(x, ctx.out_dtype), dim) for x in tensors], dim)


@lower("aten::constant_pad_nd")
def aten_constant_pad_nd(ctx: RuleContext, self: Array, pad: Sequence[int], value: Scalar = 0) -> Array:
    """aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"""
    config = [(0, 0, 0)] * self.ndim
    for k in range(len(pad) // 2):  # pairs from the last dimension forwards; negative ones cut
        config[self.ndim - 1 - k] = (pad[2 * k], pad[2 * k + 1], 0)
    return lax.pad(self, jnp.asarray(cast(value, self.dtype)), config)


@lower("aten::repeat")
def aten_repeat(ctx: RuleContext, self: Array, repeats: Sequence[int]) -> Array:
    """aten::repeat(Tensor self, SymInt[] repeats) -> Tensor"""
    shape = (1,) * (len(repeats) - self.ndim) + self.shape
    paired = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    broadcast = lax.broadcast_in_dim(self.reshape(shape), paired, [2 * k + 1 for k in range(len(shape))])
    return broadcast.reshape([times * size for times, size in zip(repeats, shape, strict=True)])


@lower("aten::flip")
def aten_flip(ctx: RuleContext, self: Array, dims: Sequence[int]) -> Array:
    """aten::flip(Tensor self, int[] dims) -> Tensor"""
    return lax.rev(self, [canonical_dim(dim, self.ndim) for dim in dims]) if self.ndim else self


@lower("aten::roll")
def aten_roll(ctx: RuleContext, self: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    """aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor"""
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if len(dims) == 0:
        return jnp.roll(self.reshape(-1), shifts[0]).reshape(self.shape)
    return jnp.roll(self, tuple(shifts), tuple(canonical_dim(dim, self.ndim) for dim in dims))


@lower("aten::rot90")
def aten_rot90(ctx: RuleContext, self: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    """aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor"""
    first, second = (canonical_dim(dim, self.ndim) for dim in dims)
    return jnp.rot90(self, k, (first, second))


def _diagonal_distance(shape: Sequence[int]) -> Array:
    """Column less row of each element of the last two dimensions."""
    return lax.broadcasted_iota(np.int32, shape[-2:], 1) - lax.broadcasted_iota(np.int32, shape[-2:], 0)


@lower("aten::tril")
def aten_tril(ctx: RuleContext, self: Array, diagonal: int = 0) -> Array:
    """aten::tril(Tensor self, SymInt diagonal=0) -> Tensor"""
    return jnp.where(_diagonal_distance(self.shape) <= diagonal, self, constant(0, self.dtype))


@lower("aten::triu")
def aten_triu(ctx: RuleContext, self: Array, diagonal: int = 0) -> Array:
    """aten::triu(Tensor self, SymInt diagonal=0) -> Tensor"""
    return jnp.where(_diagonal_distance(self.shape) >= diagonal, self, constant(0, self.dtype))


@lower("aten::_unsafe_view", "aten::_reshape_copy", "aten::view_copy", "aten::_reshape_alias_copy")
def aten__unsafe_view(ctx: RuleContext, self: Array, size: Sequence[int], stride: Sequence[int] = ()) -> Array:
    """The elements in row-major order under another shape."""
    return self.reshape(ctx.out_shape)


def slice_bounds(start: int | None, end: int | None, length: int) -> tuple[int, int]:
    """Start and end of a PyTorch slice, counted from the front and inside of ``length``."""
    start = 0 if start is None else start
    end = length if end is None else end
    start, end = (bound + length if bound < 0 else bound for bound in (start, end))
    start = min(max(start, 0), length)
    return start, min(max(end, start), length)


def _slice_index(ndim: int, dim: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * dim, part, *[slice(None)] * (ndim - dim - 1))


def _pad_into(x: Array, dim: int, length: int, start: int, step: int) -> Array:
    """``x`` spread along ``dim`` over zeros: its elements at ``start``, ``start + step`` and so on of ``length``."""
    used = (x.shape[dim] - 1) * step + 1 if x.shape[dim] else 0
    config = [(0, 0, 0)] * x.ndim
    config[dim] = (start, length - start - used, step - 1)
    return lax.pad(x, jnp.zeros((), x.dtype), config)


@lower("aten::slice_backward")
def aten_slice_backward(
    ctx: RuleContext, grad_output: Array, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Array:
    """aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step) -> Tensor"""
    dim = canonical_dim(dim, grad_output.ndim)
    start, _ = slice_bounds(start, end, input_sizes[dim])
    return _pad_into(grad_output, dim, input_sizes[dim], start, step)


@lower("aten::select_backward")
def aten_select_backward(
    ctx: RuleContext, grad_output: Array, input_sizes: Sequence[int], dim: int, index: int
) -> Array:
    """aten::select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor"""
    dim = canonical_dim(dim, len(input_sizes))
    return _pad_into(jnp.expand_dims(grad_output, dim), dim, input_sizes[dim], index % input_sizes[dim], 1)


@lower("aten::slice_scatter")
def aten_slice_scatter(
    ctx: RuleContext, self: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Array:
    """aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor"""
    dim = canonical_dim(dim, self.ndim)
    start, end = slice_bounds(start, end, self.shape[dim])
    src = cast(src, self.dtype)
    if step == 1:
        return lax.dynamic_update_slice_in_dim(self, src, np.int32(start), dim) if end > start else self
    return self.at[_slice_index(self.ndim, dim, slice(start, end, step))].set(src)


@lower("aten::select_scatter")
def aten_select_scatter(ctx: RuleContext, self: Array, src: Array, dim: int, index: int) -> Array:
    """aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"""
    dim = canonical_dim(dim, self.ndim)
    row = jnp.expand_dims(cast(src, self.dtype), dim)
    return lax.dynamic_update_slice_in_dim(self, row, np.int32(index % self.shape[dim]), dim)


def embed_diagonal(x: Array, rows: int, cols: int, offset: int) -> Array:
    """A matrix of zeros whose diagonal ``offset`` is the last dimension of ``x``.

    A diagonal is an equality of two index vectors, so it is a broadcast and a selection instead of a scatter.
    """
    first = max(-offset, 0)
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(first, rows - first - x.shape[-1], 0)])
    on_diagonal = _diagonal_distance((rows, cols)) == offset
    return jnp.where(on_diagonal, padded[..., :, None], constant(0, x.dtype))


@lower("aten::diag_embed")
def aten_diag_embed(ctx: RuleContext, self: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor"""
    size = self.shape[-1] + abs(offset)
    ndim = self.ndim + 1
    return jnp.moveaxis(embed_diagonal(self, size, size, offset), (-2, -1), (dim1 % ndim, dim2 % ndim))


@lower("aten::diagonal_backward")
def aten_diagonal_backward(
    ctx: RuleContext, grad_output: Array, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> Array:
    """aten::diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, int dim2) -> Tensor"""
    ndim = len(input_sizes)
    dim1, dim2 = dim1 % ndim, dim2 % ndim
    matrix = embed_diagonal(grad_output, input_sizes[dim1], input_sizes[dim2], offset)
    return jnp.moveaxis(matrix, (-2, -1), (dim1, dim2))


@lower("aten::diagonal_scatter")
def aten_diagonal_scatter(
    ctx: RuleContext, self: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    """aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor"""
    dim1, dim2 = dim1 % self.ndim, dim2 % self.ndim
    matrix = jnp.moveaxis(self, (dim1, dim2), (-2, -1))
    rows, cols = matrix.shape[-2:]
    embedded = embed_diagonal(cast(src, self.dtype), rows, cols, offset)
    merged = jnp.where(_diagonal_distance((rows, cols)) == offset, embedded, matrix)
    return jnp.moveaxis(merged, (-2, -1), (dim1, dim2))


@lower("aten::unfold_backward")
def aten_unfold_backward(
    ctx: RuleContext, grad_in: Array, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> Array:
    """aten::unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step) -> Tensor

    Windows that do not overlap are a padded reshape; overlapping ones add one shifted slice per place in the window.
    """
    if len(input_sizes) == 0:
        return grad_in.reshape(())
    dim = canonical_dim(dim, len(input_sizes))
    windows = jnp.moveaxis(grad_in, -1, dim + 1)
    length, num = input_sizes[dim], grad_in.shape[dim]
    if step >= size:
        config = [(0, 0, 0)] * windows.ndim
        config[dim + 1] = (0, step - size, 0)
        spread = lax.pad(windows, jnp.zeros((), windows.dtype), config)
        spread = spread.reshape(*windows.shape[:dim], num * step, *windows.shape[dim + 2:])
        config = [(0, 0, 0)] * spread.ndim
        config[dim] = (0, length - num * step, 0)
        return lax.pad(spread, jnp.zeros((), windows.dtype), config)
    wide = cast(windows, ctx.accum(windows.dtype))
    out = jnp.zeros(tuple(input_sizes), wide.dtype)
    for place in range(size):
        out = out + _pad_into(lax.index_in_dim(wide, place, dim + 1, keepdims=False), dim, length, place, step)
    return out


@lower("aten::split_with_sizes_copy", "aten::unsafe_split_with_sizes")
def aten_split_with_sizes(
    ctx: RuleContext, self: Array, split_sizes: Sequence[int], dim: int = 0
) -> list[Array]:
    """Pieces of the named sizes along one dimension, as new tensors."""
    dim = canonical_dim(dim, self.ndim)
    ends = np.cumsum(split_sizes).tolist()
    return [
        lax.slice_in_dim(self, end - size, end, axis=dim) for size, end in zip(split_sizes, ends, strict=True)
    ]


@lower("aten::split_copy.Tensor", "aten::unsafe_split.Tensor")
def aten_split(ctx: RuleContext, self: Array, split_size: int, dim: int = 0) -> list[Array]:
    """Pieces of one size along one dimension, the last of them shorter, as new tensors."""
    dim = canonical_dim(dim, self.ndim)
    length = self.shape[dim]
    starts = range(0, length, split_size) if length else [0]
    return [lax.slice_in_dim(self, start, min(start + split_size, length), axis=dim) for start in starts]


@lower("aten::narrow_copy")
def aten_narrow_copy(ctx: RuleContext, self: Array, dim: int, start: int, length: int) -> Array:
    """aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor"""
    dim = canonical_dim(dim, self.ndim)
    start = start + self.shape[dim] if start < 0 else start
    return lax.slice_in_dim(self, start, start + length, axis=dim)


@lower("aten::block_diag")
def aten_block_diag(ctx: RuleContext, tensors: Sequence[Array]) -> Array:
    """aten::block_diag(Tensor[] tensors) -> Tensor"""
    blocks = [cast(jnp.atleast_2d(x), ctx.out_dtype) for x in tensors]
    width, left, rows = sum(block.shape[1] for block in blocks), 0, []
    for block in blocks:
        right = width - left - block.shape[1]
        rows.append(lax.pad(block, jnp.zeros((), block.dtype), [(0, 0, 0), (left, right, 0)]))
        left += block.shape[1]
    return lax.concatenate(rows, 0)


def run_positions(repeats: Array, total: int) -> Array:
    """For each of ``total`` places, which run of the lengths ``repeats`` it lies in: ``[2, 1]`` gives ``[0, 0, 1]``."""
    small = index_dtype(max(total, repeats.shape[0]))
    ends = jnp.cumsum(cast(repeats, small), dtype=small)
    marks = jnp.zeros(total + 1, small).at[ends].add(np.ones((), small), mode="drop")
    return jnp.cumsum(marks[:total], dtype=small)
