"""Sorting and order statistics; NaN counts as the greatest value, as in PyTorch."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import at_least_1d, canonical_dim, constant, index_dtype, is_inexact
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _keys(x: Array) -> Array:
    return x.astype(np.int8) if x.dtype == np.bool_ else x


def sort_with_indices(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Sorted values and where they came from; equal values keep their order."""
    keys = _keys(x)
    position = lax.broadcasted_iota(index_dtype(x.shape[dim]), x.shape, dim)
    if descending:  # reversed twice, which keeps the order of equal values
        keys, position = lax.rev(keys, (dim,)), lax.rev(position, (dim,))
    values, indices = lax.sort((keys, position), dimension=dim, is_stable=True, num_keys=1)
    if descending:
        values, indices = lax.rev(values, (dim,)), lax.rev(indices, (dim,))
    return values.astype(x.dtype), indices


def _sort(self: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    x = at_least_1d(self)
    values, indices = sort_with_indices(x, canonical_dim(dim, x.ndim), descending)
    return values.reshape(self.shape), indices.reshape(self.shape)


@lower("aten::sort")
def aten_sort(ctx: RuleContext, self: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"""
    return _sort(self, dim, descending)


@lower("aten::sort.stable")
def aten_sort_stable(
    ctx: RuleContext, self: Array, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    """aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"""
    return _sort(self, dim, descending)


@lower("aten::topk")
def aten_topk(
    ctx: RuleContext, self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)

    Differs: of equal values the first are taken, where the CPU's choice is unspecified.
    """
    x = at_least_1d(self)
    dim = canonical_dim(dim, x.ndim)
    shape = ctx.out_shape
    if is_inexact(x.dtype) and not largest:
        values, indices = sort_with_indices(x, dim, descending=False)
        values, indices = (lax.slice_in_dim(part, 0, k, axis=dim) for part in (values, indices))
        return values.reshape(shape), indices.reshape(shape)
    keys = jnp.moveaxis(_keys(x), dim, -1)
    if is_inexact(x.dtype):
        keys = jnp.where(keys != keys, constant(np.nan, keys.dtype), keys)  # one NaN, of positive sign
    values, indices = lax.top_k(keys if largest else ~keys, k)
    values = (values if largest else ~values).astype(x.dtype)
    return jnp.moveaxis(values, -1, dim).reshape(shape), jnp.moveaxis(indices, -1, dim).reshape(shape)


def _take(
    sorted_pair: tuple[Array, Array], rank: int | Array, dim: int, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """The pair at one rank along ``dim``: a number, or an array with length 1 there."""
    if isinstance(rank, int):
        values, indices = (lax.slice_in_dim(part, rank, rank + 1, axis=dim) for part in sorted_pair)
    else:
        values, indices = (jnp.take_along_axis(part, rank, dim) for part in sorted_pair)
    return values.reshape(shape), indices.reshape(shape)


@lower("aten::kthvalue")
def aten_kthvalue(ctx: RuleContext, self: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    x = at_least_1d(self)
    dim = canonical_dim(dim, x.ndim)
    return _take(sort_with_indices(x, dim, False), k - 1, dim, ctx.out_shape)


def _median(x: Array, dim: int, skip_nan: bool, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The lower median; the first NaN if there is one and NaNs are not skipped."""
    pair = sort_with_indices(x, dim, False)
    if not is_inexact(x.dtype):
        return _take(pair, (x.shape[dim] - 1) // 2, dim, shape)
    num_numbers = jnp.sum(x == x, dim, keepdims=True, dtype=np.int32)
    if skip_nan:
        rank = jnp.maximum(num_numbers - 1, 0) // 2
    else:
        rank = jnp.where(num_numbers < x.shape[dim], num_numbers, (x.shape[dim] - 1) // 2)
    return _take(pair, rank, dim, shape)


def _median_all(self: Array, skip_nan: bool) -> Array:
    if self.size == 0:
        return jnp.asarray(constant(np.nan if is_inexact(self.dtype) else np.iinfo(self.dtype).min, self.dtype))
    return _median(self.reshape(-1), 0, skip_nan, ())[0]


@lower("aten::median")
def aten_median(ctx: RuleContext, self: Array) -> Array:
    """aten::median(Tensor self) -> Tensor"""
    return _median_all(self, skip_nan=False)


@lower("aten::nanmedian")
def aten_nanmedian(ctx: RuleContext, self: Array) -> Array:
    """aten::nanmedian(Tensor self) -> Tensor"""
    return _median_all(self, skip_nan=True)


@lower("aten::median.dim")
def aten_median_dim(ctx: RuleContext, self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    Differs: the index is that of the first equal value, where the CPU's choice is unspecified.
    """
    x = at_least_1d(self)
    return _median(x, canonical_dim(dim, x.ndim), False, ctx.out_shape)


@lower("aten::nanmedian.dim")
def aten_nanmedian_dim(ctx: RuleContext, self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    x = at_least_1d(self)
    return _median(x, canonical_dim(dim, x.ndim), True, ctx.out_shape)


@lower("aten::mode")
def aten_mode(ctx: RuleContext, self: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    x = at_least_1d(self)
    dim = canonical_dim(dim, x.ndim)
    length = x.shape[dim]
    values, indices = (jnp.moveaxis(part, dim, -1) for part in sort_with_indices(x, dim, False))
    position = lax.broadcasted_iota(np.int32, values.shape, values.ndim - 1)
    fresh = jnp.concatenate(
        [jnp.ones((*values.shape[:-1], 1), bool), values[..., 1:] != values[..., :-1]], axis=-1)
    start = lax.cummax(jnp.where(fresh, position, 0), values.ndim - 1)
    run = position - start  # length so far; the first longest run belongs to the smallest value
    end = lax.argmax(run, values.ndim - 1, np.int32)[..., None] if length else run
    shape = ctx.out_shape
    return (jnp.take_along_axis(values, end, -1).reshape(shape), jnp.take_along_axis(indices, end, -1).reshape(shape))
