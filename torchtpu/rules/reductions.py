"""Reductions: sums, products, extrema, moments and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._extremes import largest, smallest
from torchtpu.rules._numbers import (
    Scalar,
    at_least_1d,
    canonical_dim,
    canonical_dims,
    cast,
    constant,
    index_dtype,
    is_complex,
    is_inexact,
    is_static,
    truth,
)
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.registry import lower, lower_table

Dims = int | Sequence[int] | None


def _count(x: Array, dims: tuple[int, ...]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def _sum(x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    return jnp.sum(x, dims, dtype=x.dtype, keepdims=keepdim)  # or narrow integers would be summed in 64 bits


def _widened(ctx: RuleContext, x: Array) -> Array:
    """``x`` in the dtype in which its sum is accumulated, which follows the result's: integers count in int64."""
    return cast(cast(x, ctx.out_dtype) if not is_inexact(x.dtype) else x, opmath(ctx.out_dtype))


@lower("aten::sum", "aten::sum.dim_IntList")
def aten_sum(ctx: RuleContext, self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """The sum over the named dimensions, or all."""
    return _sum(_widened(ctx, self), canonical_dims(dim, self.ndim), keepdim)


@lower("aten::nansum")
def aten_nansum(ctx: RuleContext, self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    x = jnp.where(self != self, constant(0, self.dtype), self)
    return aten_sum(ctx, x, dim, keepdim)


@lower("aten::mean", "aten::mean.dim")
def aten_mean(ctx: RuleContext, self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """The mean over the named dimensions, or all; NaN of nothing."""
    dims = canonical_dims(dim, self.ndim)
    total = _sum(_widened(ctx, self), dims, keepdim)
    return total / constant(_count(self, dims), total.dtype)


@lower("aten::prod")
def aten_prod(ctx: RuleContext, self: Array, *, dtype: Any = None) -> Array:
    """aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    x = _widened(ctx, self)
    return jnp.prod(x, dtype=x.dtype)


@lower("aten::prod.dim_int")
def aten_prod_dim_int(ctx: RuleContext, self: Array, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    x = _widened(ctx, self)
    return jnp.prod(x, canonical_dims(dim, self.ndim), dtype=x.dtype, keepdims=keepdim)


@lower("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def aten_count_nonzero(ctx: RuleContext, self: Array, dim: Dims = None) -> Array:
    """The number of elements that are not zero, over the named dimensions or all."""
    counts = cast(truth(self), index_dtype(self.size))
    return jnp.sum(counts, canonical_dims(dim, self.ndim), dtype=counts.dtype)


def _truth_rule(reduce: Callable[..., Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        if dim is not None and not isinstance(dim, int) and len(dim) == 0:
            return truth(self)  # the one reduction for which ATen takes an empty list as no dimension
        return reduce(truth(self), canonical_dims(dim, self.ndim), keepdims=keepdim)

    return rule


# Every overload of any and all: whole, one dimension, a list of them.
TRUTH = {
    f"aten::{name}{overload}": function
    for name, function in (("any", jnp.any), ("all", jnp.all))
    for overload in ("", ".dim", ".dims")
}
lower_table(TRUTH, _truth_rule)


def _extreme_rule(reduce: Callable[..., Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        return reduce(self, canonical_dims(dim, self.ndim), keepdims=keepdim)

    return rule


EXTREMES = {"aten::amax": largest, "aten::amin": smallest, "aten::max": largest, "aten::min": smallest}
lower_table(EXTREMES, _extreme_rule)


def arg_extreme(x: Array, dim: int, find: Callable[..., Array]) -> Array:
    """The first index of the extreme along one dimension, which stays with length 1; the first NaN wins."""
    if x.dtype == np.bool_:
        x = x.astype(np.int8)
    return jnp.expand_dims(find(x, dim, index_dtype(x.shape[dim])), dim)


def _extreme_dim_rule(pair: tuple[Callable[..., Array], Callable[..., Array]]) -> Callable[..., Any]:
    reduce, find = pair

    def rule(ctx: RuleContext, self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        x = at_least_1d(self)
        dim = canonical_dim(dim, x.ndim)
        values, indices = reduce(x, dim, keepdims=True), arg_extreme(x, dim, find)
        shape = ctx.out_shape
        return values.reshape(shape), indices.reshape(shape)

    return rule


EXTREMES_DIM = {"aten::max.dim": (largest, lax.argmax), "aten::min.dim": (smallest, lax.argmin)}
lower_table(EXTREMES_DIM, _extreme_dim_rule)


def _arg_rule(find: Callable[..., Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        x = self.reshape(-1) if dim is None else at_least_1d(self)
        return arg_extreme(x, canonical_dim(dim or 0, x.ndim), find).reshape(ctx.out_shape)

    return rule


lower_table({"aten::argmax": lax.argmax, "aten::argmin": lax.argmin}, _arg_rule)


@lower("aten::aminmax")
def aten_aminmax(
    ctx: RuleContext, self: Array, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)"""
    dims = canonical_dims(dim, self.ndim)
    return smallest(self, dims, keepdims=keepdim), largest(self, dims, keepdims=keepdim)


@lower("aten::_aminmax", "aten::_aminmax.dim")
def aten__aminmax(ctx: RuleContext, self: Array, dim: int | None = None, keepdim: bool = False) -> tuple[Array, Array]:
    """What ``aminmax`` was called before it was public."""
    return aten_aminmax(ctx, self, dim=dim, keepdim=keepdim)


def moments(x: Array, dims: tuple[int, ...], correction: Scalar) -> tuple[Array, Array]:
    """Variance and mean over ``dims``, which stay with length 1; ``x`` must be in its compute dtype.

    Two passes, as in ATen: the mean of squares less the square of the mean would cancel.
    """
    count = _count(x, dims)
    mean = jnp.sum(x, dims, keepdims=True) / constant(count, x.dtype)
    centred = x - mean
    if is_complex(x.dtype):
        squares = lax.real(centred) * lax.real(centred) + lax.imag(centred) * lax.imag(centred)
    else:
        squares = centred * centred
    correction = 1 if correction is None else correction
    if is_static(correction):
        divisor = constant(max(count - correction, 0), squares.dtype)
    else:
        divisor = jnp.maximum(constant(count, squares.dtype) - cast(correction, squares.dtype), 0)
    return jnp.sum(squares, dims, keepdims=True) / divisor, mean


def _moments_rule(parts: tuple[bool, bool]) -> Callable[..., Any]:
    root, with_mean = parts

    def rule(
        ctx: RuleContext, self: Array, dim: Dims = None, *, correction: Scalar = None, keepdim: bool = False
    ) -> Any:
        dims = canonical_dims(dim, self.ndim)
        variance, mean = moments(cast(self, opmath(self.dtype)), dims, correction)
        spread = jnp.sqrt(variance) if root else variance
        if not keepdim:
            spread, mean = jnp.squeeze(spread, dims), jnp.squeeze(mean, dims)
        return (spread, mean) if with_mean else spread

    return rule


# (square root, also the mean)
MOMENTS = {
    "aten::var.correction": (False, False),
    "aten::std.correction": (True, False),
    "aten::var_mean.correction": (False, True),
    "aten::std_mean.correction": (True, True),
}
lower_table(MOMENTS, _moments_rule)


@lower("aten::logsumexp")
def aten_logsumexp(ctx: RuleContext, self: Array, dim: Dims, keepdim: bool = False) -> Array:
    """aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor"""
    x = cast(self, opmath(ctx.out_dtype))
    dims = canonical_dims(dim, self.ndim)
    if is_complex(x.dtype) or x.size == 0:
        return jnp.log(jnp.sum(jnp.exp(x), dims, keepdims=keepdim))
    high = jnp.max(x, dims, keepdims=True)
    high = jnp.where(jnp.isinf(high), constant(0, x.dtype), high)
    total = jnp.log(jnp.sum(jnp.exp(x - high), dims, keepdims=True)) + high
    return total if keepdim else jnp.squeeze(total, dims)


def vector_norm(x: Array, ord: Scalar, dims: tuple[int, ...], keepdim: bool) -> Array:
    """The ``ord``-norm over ``dims`` of ``x`` in its compute dtype; an array as order takes the general formula."""
    if is_static(ord) and ord == 2 and is_complex(x.dtype):
        return jnp.sqrt(jnp.sum(lax.real(x * lax.conj(x)), dims, keepdims=keepdim))
    if is_static(ord) and ord == 2:
        return jnp.sqrt(jnp.sum(x * x, dims, keepdims=keepdim))
    size = jnp.abs(x)
    if is_static(ord):
        if ord == float("inf"):
            return largest(size, dims, keepdims=keepdim)
        if ord == float("-inf"):
            return smallest(size, dims, keepdims=keepdim)
        if ord == 0:
            return jnp.sum(cast(size != 0, size.dtype), dims, keepdims=keepdim)
        if ord == 1:
            return jnp.sum(size, dims, keepdims=keepdim)
    order = cast(ord, size.dtype)
    total = jnp.sum(jnp.power(size, order), dims, keepdims=keepdim)
    return jnp.power(total, constant(1, size.dtype) / order)


@lower("aten::linalg_vector_norm")
def aten_linalg_vector_norm(
    ctx: RuleContext, self: Array, ord: Scalar = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""  # noqa: E501
    x = cast(self, self.dtype if dtype is None else dtype)
    return vector_norm(cast(x, opmath(x.dtype)), ord, canonical_dims(dim, self.ndim), keepdim)


@lower("aten::linalg__powsum")
def aten_linalg__powsum(
    ctx: RuleContext, self: Array, ord: Scalar = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """aten::linalg__powsum(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor

    The norm before its root is taken; of order zero every element counts, one that is zero as well.
    """
    x = cast(self, self.dtype if dtype is None else dtype)
    size = jnp.abs(cast(x, opmath(x.dtype)))
    power = size * size if is_static(ord) and ord == 2 else jnp.power(size, cast(ord, size.dtype))
    return _sum(power, canonical_dims(dim, self.ndim), keepdim)


@lower("aten::norm.Scalar", "aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", "aten::norm.ScalarOpt_dtype")
def aten_norm(
    ctx: RuleContext, self: Array, p: Scalar = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """The vector norm of order ``p`` (2 when None) over the named dimensions, or all."""
    return aten_linalg_vector_norm(ctx, self, 2 if p is None else p, dim, keepdim, dtype=dtype)


@lower("aten::trace")
def aten_trace(ctx: RuleContext, self: Array) -> Array:
    """aten::trace(Tensor self) -> Tensor"""
    rows, cols = (lax.broadcasted_iota(np.int32, self.shape, dim) for dim in (0, 1))
    return jnp.sum(jnp.where(rows == cols, _widened(ctx, self), constant(0, opmath(ctx.out_dtype))))


def _double_words(x: Array) -> tuple[Array, Array]:
    """High and low word of float32 numbers as float64: computed on bits, which a TPU does not have of float64."""
    bits = lax.bitcast_convert_type(x, np.uint32)
    fraction, biased = bits & np.uint32(0x7FFFFF), (bits >> np.uint32(23)) & np.uint32(0xFF)
    shift = lax.clz(fraction) - np.uint32(8)  # of a subnormal number, whose first bit is not implied
    tiny = (biased == 0) & (fraction != 0)
    fraction = jnp.where(tiny, (fraction << shift) & np.uint32(0x7FFFFF), fraction)
    exponent = jnp.where(tiny, np.uint32(897) - shift, biased + np.uint32(896))
    exponent = jnp.where(biased == 255, np.uint32(2047), jnp.where((biased == 0) & ~tiny, np.uint32(0), exponent))
    high = (bits & np.uint32(1 << 31)) | (exponent << np.uint32(20)) | (fraction >> np.uint32(3))
    return high, fraction << np.uint32(29)


@lower("aten::hash_tensor")
def aten_hash_tensor(ctx: RuleContext, self: Array, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Array:
    """aten::hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor

    The exclusive or of all elements, as bits of float64 or int64.
    """

    def combined(words: Array) -> Array:
        found = lax.reduce(words, np.zeros((), words.dtype), lax.bitwise_xor, canonical_dims(dim, self.ndim))
        return found.reshape(ctx.out_shape).astype(np.uint64)

    if self.dtype == np.float64:
        return combined(lax.bitcast_convert_type(self, np.uint64))
    if not is_inexact(self.dtype):
        return combined(cast(self, np.uint64))
    high, low = (combined(words) for words in _double_words(self.astype(np.float32)))
    return (high << np.uint64(32)) | low
