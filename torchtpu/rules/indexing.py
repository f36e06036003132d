"""Reading and writing at index tensors and masks.

Every rule here has a static shape. Masks in ``index`` give a result as long as they have elements set: the length is
taken from the output that is asked for (see ``index_with_masks`` in ``dynamic.py``, which counts first).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeGuard

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import (
    Scalar,
    at_least_1d,
    canonical_dim,
    cast,
    constant,
    index_dtype,
    is_bool,
    is_static,
    scaled,
    truth,
)
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Indices = Sequence[Array | None]
UNSAFE = "promise_in_bounds"  # indices outside are the user's fault: clamped when read, dropped or clamped when written


def is_mask(index: Array | None) -> TypeGuard[Array]:
    """Whether an index is a mask: a bool tensor, or a uint8 one as PyTorch still takes them."""
    return index is not None and index.dtype in (np.dtype(np.bool_), np.dtype(np.uint8))


def whole_indices(index: Array, length: int) -> Array:
    """Indices counted from the front, as narrow as the length allows."""
    dtype = index_dtype(length)
    small = cast(index, dtype) if index.dtype.itemsize > 4 or dtype.itemsize > 4 else index
    if not jnp.issubdtype(small.dtype, jnp.signedinteger):
        return small
    small = cast(small, np.int32) if small.dtype.itemsize < 4 else small
    return jnp.where(small < 0, small + constant(length, small.dtype), small)


def mask_positions(mask: Array, size: int, fill: int) -> Array:
    """The row-major positions at which a mask is set, ``size`` of them; ``fill`` after the last."""
    flat = truth(mask).reshape(-1)
    small = index_dtype(max(flat.size, size, abs(fill)))
    rank = jnp.where(flat, jnp.cumsum(flat, dtype=small) - np.ones((), small), constant(size, small))
    start = jnp.full(size, constant(fill, small))
    return start.at[rank].set(lax.iota(small, flat.size), mode="drop", unique_indices=False)


def _mask_places(masks: Sequence[Array], count: int | None, several: bool) -> list[Array]:
    """Row-major positions of the elements set in each mask, all of one length; past the last, outside of the mask.

    ``count`` is that length where it is known, otherwise the masks' sizes bound it. A mask with a single element set
    broadcasts against the ``several`` other indices.
    """
    size = max(mask.size for mask in masks) if count is None else count
    places = [mask_positions(mask, size, mask.size) for mask in masks]
    if not several or (count is None and len(masks) == 1) or size == 0:
        return places
    totals = [jnp.sum(truth(mask), dtype=np.int32) for mask in masks]
    widest = functools.reduce(jnp.maximum, totals) if count is None else np.int32(count)
    used = lax.iota(np.int32, size) < widest
    return [
        jnp.where((total == np.int32(1)) & used, place[0], place) for total, place in zip(totals, places, strict=True)
    ]


def _split_masks(self: Array, indices: Indices, count: int | None) -> list[Array | None]:
    """Integer indices in place of masks, a mask giving one per dimension it covers; as many in all as ``self`` has.

    ``count`` is the number of places of each mask, None where it is not known. Places past the last lie outside.
    """
    masks = [index for index in indices if is_mask(index)]
    several = sum(index is not None for index in indices) > 1
    places = iter(_mask_places(masks, count, several) if masks else ())
    out: list[Array | None] = []
    for index in indices:
        if not is_mask(index):
            out.append(index if index is None else whole_indices(index, self.shape[len(out)]))
            continue
        place, length = next(places), index.shape[0]
        parts = (place,)
        if index.ndim > 1:
            parts = jnp.unravel_index(place, index.shape)
            parts = (jnp.where(place >= index.size, constant(length, place.dtype), parts[0]), *parts[1:])
        out.extend(cast(part, index_dtype(index.size)) for part in parts)
    return out + [None] * (self.ndim - len(out))


def _with_0d_masks_expanded(self: Array, indices: Indices) -> tuple[Array, list[Array | None]]:
    """A 0-d mask adds a dimension of length 1 to ``self`` and indexes it."""
    out: list[Array | None] = []
    for index in indices:
        if is_mask(index) and index.ndim == 0:
            self = jnp.expand_dims(self, sum(x.ndim if is_mask(x) else 1 for x in out))
            index = index.reshape(1)
        out.append(index)
    return self, out


def _numpy_index(indices: Sequence[Array | None]) -> tuple[Array | slice, ...]:
    """As NumPy and JAX write an index. Both put the broadcast dimensions where PyTorch does."""
    return tuple(slice(None) if index is None else index for index in indices)


@lower("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def aten_index_Tensor(ctx: RuleContext, self: Array, indices: Indices) -> Array:
    """Advanced indexing. With masks, the number of places is read off the shape of the output."""
    self, indices = _with_0d_masks_expanded(self, indices)
    count = None
    if any(is_mask(index) for index in indices):
        count = _mask_count(ctx.out_shape, self, indices)
    whole = _split_masks(self, indices, count)
    if self.size == 0 or any(index is not None and index.size == 0 for index in whole):
        return jnp.zeros(ctx.out_shape, self.dtype)
    return self.at[_numpy_index(whole)].get(mode=UNSAFE)


def _mask_count(out_shape: tuple[int, ...], self: Array, indices: Indices) -> int:
    """How many places the masks have, given the shape of the result."""
    covered = [index.ndim if is_mask(index) else 1 for index in indices]
    used = [index is not None for index in indices]
    others = [index.shape for index in indices if index is not None and not is_mask(index)]
    if any(shape and shape[-1] > 1 for shape in others):
        return next(shape[-1] for shape in others if shape and shape[-1] > 1)
    width = max([1, *(len(shape) for shape in others)])
    first, last = used.index(True), len(used) - 1 - used[::-1].index(True)
    adjacent = all(used[first : last + 1])
    start = sum(covered[:first]) if adjacent else 0
    return out_shape[start + width - 1]


def _masked_put(self: Array, mask: Array, values: Array, accumulate: bool) -> Array | None:
    """Writing one value at all places of a mask over the leading dimensions: a selection. None if the values differ."""
    rest = self.shape[mask.ndim:]
    if values.ndim > len(rest) and any(size != 1 for size in values.shape[: values.ndim - len(rest)]):
        return None
    values = values.reshape(values.shape[max(values.ndim - len(rest), 0):])
    spread = jnp.broadcast_to(values, rest)
    where = truth(mask).reshape(mask.shape + (1,) * len(rest))
    return jnp.where(where, self + spread if accumulate else spread, self)


def index_put(self: Array, indices: Indices, values: Array, accumulate: bool) -> Array:
    """``self`` with ``values`` written or added at the indices; masks are not counted, places past the last dropped."""
    shape = self.shape
    self, indices = _with_0d_masks_expanded(self, indices)
    values = cast(values, self.dtype)
    masks = [index for index in indices if is_mask(index)]
    if len(masks) == 1 and all(index is None for index in indices[1:]) and is_mask(indices[0]):
        done = _masked_put(self, masks[0], values, accumulate)
        if done is not None:
            return done.reshape(shape)
    whole = _split_masks(self, indices, _put_count(self, indices, values) if masks else None)
    if self.size == 0 or values.size == 0 or any(index is not None and index.size == 0 for index in whole):
        return self.reshape(shape)
    # PyTorch takes values with leading dimensions of length 1 beyond those of the indexed part.
    target = self.at[_numpy_index(whole)]
    if not accumulate:
        return target.set(values, mode="drop").reshape(shape)
    if is_bool(self.dtype):
        return target.max(values, mode="drop").reshape(shape)
    return target.add(values, mode="drop").reshape(shape)


def _put_count(self: Array, indices: Indices, values: Array) -> int | None:
    """The number of places of the masks of a write, where other indices or the values tell it; None if they do not."""
    others = [index.shape for index in indices if index is not None and not is_mask(index)]
    known = [shape[-1] for shape in others if shape and shape[-1] > 1]
    if known:
        return known[0]
    covered = [index.ndim if is_mask(index) else 1 for index in indices]
    used = [index is not None for index in indices]
    last = len(used) - 1 - used[::-1].index(True)
    first = used.index(True)
    adjacent = all(used[first : last + 1])
    # Dimensions of the indexed part after the one that counts places.
    after = self.ndim - sum(covered[: last + 1]) if adjacent else self.ndim - sum(
        n for n, is_used in zip(covered, used, strict=True) if is_used)
    place = values.ndim - 1 - after
    return values.shape[place] if place >= 0 and values.shape[place] > 1 else None


@lower("aten::index_put", "aten::_unsafe_index_put")
def aten_index_put(
    ctx: RuleContext, self: Array, indices: Indices, values: Array, accumulate: bool = False
) -> Array:
    """Advanced indexing on the left of an assignment."""
    return index_put(self, indices, values, accumulate)


@lower("aten::_index_put_impl")
def aten__index_put_impl(
    ctx: RuleContext, self: Array, indices: Indices, values: Array, accumulate: bool = False, unsafe: bool = False
) -> Array:
    """aten::_index_put_impl(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, bool unsafe=False) -> Tensor"""
    return index_put(self, indices, values, accumulate)


def take_along(self: Array, dim: int, index: Array) -> Array:
    """Whole slices of ``self`` along ``dim``, one for each element of the 1-d ``index``."""
    return jnp.take(self, index, axis=dim, mode="clip")


@lower("aten::index_select")
def aten_index_select(ctx: RuleContext, self: Array, dim: int, index: Array) -> Array:
    """aten::index_select(Tensor self, int dim, Tensor index) -> Tensor"""
    x = at_least_1d(self)
    dim = canonical_dim(dim, x.ndim)
    if x.size == 0:
        return jnp.zeros(ctx.out_shape, self.dtype)
    return take_along(x, dim, whole_indices(index.reshape(-1), x.shape[dim])).reshape(ctx.out_shape)


@lower("aten::gather")
def aten_gather(ctx: RuleContext, self: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"""
    if index.size == 0:
        return jnp.zeros(index.shape, self.dtype)
    x, where = at_least_1d(self), at_least_1d(index)
    dim = canonical_dim(dim, x.ndim)
    # The index may be shorter than `self` in every other dimension: the rest of `self` is not read.
    limits = [x.shape[d] if d == dim else where.shape[d] for d in range(x.ndim)]
    x = lax.slice(x, [0] * x.ndim, limits)
    return jnp.take_along_axis(x, whole_indices(where, x.shape[dim]), dim, mode=UNSAFE).reshape(index.shape)


@lower("aten::take")
def aten_take(ctx: RuleContext, self: Array, index: Array) -> Array:
    """aten::take(Tensor self, Tensor index) -> Tensor"""
    if index.size == 0:
        return jnp.zeros(index.shape, self.dtype)
    return take_along(self.reshape(-1), 0, whole_indices(index, self.size))


@lower("aten::put")
def aten_put(ctx: RuleContext, self: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor"""
    flat = self.reshape(-1)
    return index_put(flat, [index.reshape(-1)], source.reshape(-1), accumulate).reshape(self.shape)


def _flat_slices(self: Array, dim: int, index: Array) -> tuple[Array, int, tuple[Array | slice, ...]]:
    x = at_least_1d(self)
    dim = canonical_dim(dim, x.ndim)
    return x, dim, (*[slice(None)] * dim, whole_indices(index.reshape(-1), x.shape[dim]))


@lower("aten::index_add")
def aten_index_add(
    ctx: RuleContext, self: Array, dim: int, index: Array, source: Array, *, alpha: Scalar = 1
) -> Array:
    """aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor"""
    x, dim, where = _flat_slices(self, dim, index)
    wide = ctx.accum(self.dtype)
    source = scaled(cast(source, wide), alpha).reshape(*x.shape[:dim], index.size, *x.shape[dim + 1:])
    if is_bool(self.dtype):
        return x.at[where].max(source, mode="drop").reshape(self.shape)
    return cast(x, wide).at[where].add(source, mode="drop").reshape(self.shape)


@lower("aten::index_copy")
def aten_index_copy(ctx: RuleContext, self: Array, dim: int, index: Array, source: Array) -> Array:
    """aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor"""
    x, dim, where = _flat_slices(self, dim, index)
    source = source.reshape(*x.shape[:dim], index.size, *x.shape[dim + 1:])
    return x.at[where].set(cast(source, self.dtype), mode="drop").reshape(self.shape)


@lower("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor")
def aten_index_fill(ctx: RuleContext, self: Array, dim: int, index: Array, value: Scalar) -> Array:
    """One number written into whole slices along one dimension."""
    x, dim, where = _flat_slices(self, dim, index)
    # A selection: which slices are hit is a small vector, so the big tensor needs no scatter.
    hit = jnp.zeros(x.shape[dim], bool).at[where[dim]].set(True, mode="drop")
    hit = hit.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    return jnp.where(hit, cast(value, self.dtype), x).reshape(self.shape)


@lower("aten::masked_scatter")
def aten_masked_scatter(ctx: RuleContext, self: Array, mask: Array, source: Array) -> Array:
    """aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor"""
    shape = jnp.broadcast_shapes(self.shape, mask.shape)
    self, mask = jnp.broadcast_to(self, shape), truth(jnp.broadcast_to(mask, shape))
    if source.size == 0:
        return self
    small = index_dtype(self.size)
    rank = jnp.cumsum(mask.reshape(-1), dtype=small) - np.ones((), small)
    picked = take_along(source.reshape(-1), 0, jnp.maximum(rank, 0)).reshape(shape)
    return jnp.where(mask, cast(picked, self.dtype), self)


@lower("aten::masked_scatter_backward")
def aten_masked_scatter_backward(ctx: RuleContext, grad_output: Array, mask: Array, sizes: Sequence[int]) -> Array:
    """aten::masked_scatter_backward(Tensor grad_output, Tensor mask, SymInt[] sizes) -> Tensor"""
    size = int(np.prod(sizes, dtype=np.int64))
    shape = jnp.broadcast_shapes(grad_output.shape, mask.shape)
    grad = jnp.broadcast_to(grad_output, shape).reshape(-1)
    positions = mask_positions(jnp.broadcast_to(mask, shape), size, fill=grad.size)
    return grad.at[positions].get(mode="fill", fill_value=0).reshape(tuple(sizes))


@lower("aten::embedding")
def aten_embedding(
    ctx: RuleContext, weight: Array, indices: Array, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"""  # noqa: E501
    return take_along(weight, 0, whole_indices(indices, weight.shape[0]))


@lower("aten::embedding_dense_backward")
def aten_embedding_dense_backward(
    ctx: RuleContext, grad_output: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    """aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor"""  # noqa: E501
    wide = ctx.accum(grad_output.dtype)
    flat = cast(indices.reshape(-1), index_dtype(num_weights))
    grad = cast(grad_output.reshape(flat.size, grad_output.shape[-1]), wide)
    if is_static(padding_idx) and padding_idx >= 0:
        flat = jnp.where(flat == padding_idx, constant(num_weights, flat.dtype), flat)
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, wide).at[flat].add(constant(1, wide), mode="drop")
        grad = grad / take_along(counts, 0, flat)[:, None]
    return jnp.zeros((num_weights, grad.shape[-1]), wide).at[flat].add(grad, mode="drop")


@lower("aten::nonzero_static")
def aten_nonzero_static(ctx: RuleContext, self: Array, *, size: int, fill_value: int = -1) -> Array:
    """aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor"""
    if self.ndim == 0 or self.size == 0:
        return jnp.full(ctx.out_shape, constant(fill_value, np.int64))
    positions = mask_positions(self, size, self.size)
    outside = positions >= self.size
    parts = jnp.unravel_index(jnp.where(outside, 0, positions), self.shape)
    return jnp.stack([jnp.where(outside, fill_value, part) for part in parts], axis=1)
