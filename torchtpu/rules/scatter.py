"""Writing and reducing at one index per element along one dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._division import floored_quotient
from torchtpu.rules._numbers import Scalar, at_least_1d, canonical_dim, cast, constant, full, is_bool, is_inexact
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.indexing import whole_indices
from torchtpu.rules.registry import lower


def _scatter(write: Callable[..., Array], self: Array, dim: int, index: Array, src: Array) -> Array:
    """``write`` (one of lax.scatter*) ``src`` into ``self`` along ``dim``; all three of the same rank, at least 1.

    The index may be smaller than ``self`` and ``src`` in every other dimension: only that corner is read and written.
    """
    ndim = self.ndim
    corner = [self.shape[d] if d == dim else index.shape[d] for d in range(ndim)]
    part = lax.slice(self, [0] * ndim, corner)
    src = lax.slice(src, [0] * ndim, index.shape)
    others = tuple(d for d in range(ndim) if d != dim)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(dim,), scatter_dims_to_operand_dims=(dim,),
        operand_batching_dims=others, scatter_indices_batching_dims=others,
    )
    where = whole_indices(index, self.shape[dim])[..., None]
    part = write(part, where, src, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)
    if tuple(corner) == self.shape:
        return part
    return lax.dynamic_update_slice(self, part, [np.int32(0)] * ndim)


def _scatter_along(write: Callable[..., Array], self: Array, dim: int, index: Array, src: Array, dtype: Any) -> Array:
    if index.size == 0:
        return self
    x = at_least_1d(self)
    operands = (cast(x, dtype), canonical_dim(dim, x.ndim), at_least_1d(index), cast(at_least_1d(src), dtype))
    return _scatter(write, *operands).reshape(self.shape)


@lower("aten::scatter.src")
def aten_scatter_src(ctx: RuleContext, self: Array, dim: int, index: Array, src: Array) -> Array:
    """aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return _scatter_along(lax.scatter, self, dim, index, src, self.dtype)


@lower("aten::scatter.value")
def aten_scatter_value(ctx: RuleContext, self: Array, dim: int, index: Array, value: Scalar) -> Array:
    """aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    return _scatter_along(lax.scatter, self, dim, index, full(index.shape, value, self.dtype), self.dtype)


def _scatter_add(self: Array, dim: int, index: Array, src: Array) -> Array:
    if is_bool(self.dtype):
        return _scatter_along(lax.scatter_max, self, dim, index, src, self.dtype)
    return _scatter_along(lax.scatter_add, self, dim, index, src, opmath(self.dtype))


@lower("aten::scatter_add")
def aten_scatter_add(ctx: RuleContext, self: Array, dim: int, index: Array, src: Array) -> Array:
    """aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return _scatter_add(self, dim, index, src)


def _scatter_multiply(self: Array, dim: int, index: Array, src: Array) -> Array:
    if is_bool(self.dtype):
        return _scatter_along(lax.scatter_min, self, dim, index, src, self.dtype)
    return _scatter_along(lax.scatter_mul, self, dim, index, src, opmath(self.dtype))


@lower("aten::scatter.reduce")
def aten_scatter_reduce(ctx: RuleContext, self: Array, dim: int, index: Array, src: Array, *, reduce: str) -> Array:
    """aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor"""
    return {"add": _scatter_add, "multiply": _scatter_multiply}[reduce](self, dim, index, src)


@lower("aten::scatter.value_reduce")
def aten_scatter_value_reduce(
    ctx: RuleContext, self: Array, dim: int, index: Array, value: Scalar, *, reduce: str
) -> Array:
    """aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor"""
    return aten_scatter_reduce(ctx, self, dim, index, full(index.shape, value, self.dtype), reduce=reduce)


def _identity(reduce: str, dtype: Any) -> np.ndarray:
    """The value that a reduction starts from where ``self`` does not count."""
    if reduce in ("sum", "mean"):
        return constant(0, dtype)
    if reduce == "prod":
        return constant(1, dtype)
    low = reduce == "amax"
    if is_bool(dtype):
        return constant(not low, dtype)
    if is_inexact(dtype):
        return constant(-np.inf if low else np.inf, dtype)
    limits = jnp.iinfo(dtype)
    return constant(limits.min if low else limits.max, dtype)


def _mean(total: Array, counts: Array) -> Array:
    counts = jnp.maximum(counts, constant(1, counts.dtype))
    counts = cast(counts, total.dtype)
    return total / counts if is_inexact(total.dtype) else floored_quotient(total, counts)


def scatter_reduce(self: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool) -> Array:
    """``self`` with the elements of ``src`` that go to each place reduced into it, in the compute dtype.

    Without ``include_self``, places that something goes to start from the identity; others keep their value.
    """
    if index.size == 0:
        return self
    dtype = opmath(self.dtype)
    ones = jnp.ones(index.shape, np.int32)
    counts = _scatter_along(lax.scatter_add, jnp.zeros(self.shape, np.int32), dim, index, ones, np.int32)
    start = self if include_self else jnp.where(counts > 0, _identity(reduce, self.dtype), self)
    if reduce in ("sum", "mean"):
        out = _scatter_add(start, dim, index, src)
    elif reduce == "prod":
        out = _scatter_multiply(start, dim, index, src)
    else:
        write = {"amax": lax.scatter_max, "amin": lax.scatter_min}[reduce]
        out = _scatter_along(write, start, dim, index, src, self.dtype)
    if reduce != "mean":
        return out
    counts = counts + 1 if include_self else counts
    return jnp.where(counts > 0, _mean(cast(out, dtype), counts), cast(self, dtype))


@lower("aten::scatter_reduce.two")
def aten_scatter_reduce_two(
    ctx: RuleContext, self: Array, dim: int, index: Array, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor"""
    return scatter_reduce(self, dim, index, src, reduce, include_self)


@lower("aten::index_reduce")
def aten_index_reduce(
    ctx: RuleContext, self: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor"""
    x = at_least_1d(self)
    dim = canonical_dim(dim, x.ndim)
    source = source.reshape(*x.shape[:dim], index.size, *x.shape[dim + 1:])
    column = index.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    where = jnp.broadcast_to(column, source.shape)
    return scatter_reduce(x, dim, where, source, reduce, include_self).reshape(self.shape)
