"""Operators that make tensors from numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import (
    Scalar,
    cast,
    constant,
    full,
    index_dtype,
    is_inexact,
    is_static,
    is_zero,
    rounded,
)
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.registry import lower
from torchtpu.rules.shape import run_positions


@lower("aten::full")
def aten_full(ctx: RuleContext, size: Sequence[int], fill_value: Scalar, **_: Any) -> Array:
    """aten::full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return full(ctx.out_shape, fill_value, ctx.out_dtype)


@lower("aten::full_like")
def aten_full_like(ctx: RuleContext, self: Array, fill_value: Scalar, **_: Any) -> Array:
    """aten::full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor"""  # noqa: E501
    return full(ctx.out_shape, fill_value, ctx.out_dtype)


@lower("aten::new_full")
def aten_new_full(ctx: RuleContext, self: Array, size: Sequence[int], fill_value: Scalar, **_: Any) -> Array:
    """aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return full(ctx.out_shape, fill_value, ctx.out_dtype)


@lower("aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::_efficientzerotensor")
def aten_zeros(ctx: RuleContext, *_: Any, **__: Any) -> Array:
    """Zeros of a named shape or of the shape of another tensor."""
    return jnp.zeros(ctx.out_shape, ctx.out_dtype)


@lower("aten::ones", "aten::ones_like", "aten::new_ones")
def aten_ones(ctx: RuleContext, *_: Any, **__: Any) -> Array:
    """Ones of a named shape or of the shape of another tensor."""
    return jnp.ones(ctx.out_shape, ctx.out_dtype)


@lower("aten::scalar_tensor")
def aten_scalar_tensor(ctx: RuleContext, s: Scalar, **_: Any) -> Array:
    """aten::scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return full((), s, ctx.out_dtype)


def _arange(ctx: RuleContext, start: Scalar, step: Scalar) -> Array:
    """``start + k * step``: in whole numbers where start and step are, in the result's compute dtype otherwise."""
    (num,) = ctx.out_shape
    if not is_inexact(ctx.out_dtype):
        position = lax.iota(ctx.out_dtype, num)
    elif all(is_static(x) and float(x).is_integer() and abs(x) * max(num, 1) < 2**31 for x in (start, step)):
        position, start, step = lax.iota(index_dtype(num), num), int(start), int(step)
    else:
        position = lax.iota(opmath(ctx.out_dtype), num)
    scaled = position if is_static(step) and step == 1 else position * cast(step, position.dtype)
    return scaled if is_zero(start) else scaled + cast(start, position.dtype)


@lower("aten::arange")
def aten_arange(ctx: RuleContext, end: Scalar, **_: Any) -> Array:
    """aten::arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return _arange(ctx, 0, 1)


@lower("aten::arange.start")
def aten_arange_start(ctx: RuleContext, start: Scalar, end: Scalar, **_: Any) -> Array:
    """aten::arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return _arange(ctx, start, 1)


@lower("aten::arange.start_step")
def aten_arange_start_step(ctx: RuleContext, start: Scalar, end: Scalar, step: Scalar = 1, **_: Any) -> Array:
    """aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return _arange(ctx, start, step)


@lower("aten::range", "aten::range.step")
def aten_range(ctx: RuleContext, start: Scalar, end: Scalar, step: Scalar = 1, **_: Any) -> Array:
    """Numbers from ``start`` to ``end``, the end included."""
    return _arange(ctx, start, step)


def _eye(ctx: RuleContext) -> Array:
    rows, cols = (lax.broadcasted_iota(np.int32, ctx.out_shape, dim) for dim in (0, 1))
    return cast(rows == cols, ctx.out_dtype)


@lower("aten::eye")
def aten_eye(ctx: RuleContext, n: int, **_: Any) -> Array:
    """aten::eye(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""
    return _eye(ctx)


@lower("aten::eye.m")
def aten_eye_m(ctx: RuleContext, n: int, m: int, **_: Any) -> Array:
    """aten::eye.m(SymInt n, SymInt m, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return _eye(ctx)


def _end(x: Scalar, dtype: np.dtype) -> Any:
    return cast(x, dtype) if is_static(x) or not is_inexact(dtype) else rounded(x, dtype)


def _linspace(ctx: RuleContext, start: Scalar, end: Scalar, steps: int) -> Array:
    """Evenly spaced numbers, each counted from the nearer end, as ATen does, which rounds the ends to the dtype of the result."""
    dtype = opmath(ctx.out_dtype) if is_inexact(ctx.out_dtype) else np.dtype(np.float64)
    if steps == 1 and is_inexact(ctx.out_dtype):  # and here it does not
        return jnp.asarray(cast(start, dtype))[None]
    first, last = (jnp.asarray(cast(_end(x, ctx.out_dtype), dtype)) for x in (start, end))
    if steps == 1:
        return first[None]
    position = lax.iota(index_dtype(steps), steps)
    step = (last - first) / constant(steps - 1, dtype)
    front = first + step * cast(position, dtype)
    back = last - step * cast(steps - 1 - position, dtype)
    return jnp.where(position < steps // 2, front, back)


@lower("aten::linspace", "aten::linspace.Tensor_Tensor", "aten::linspace.Tensor_Scalar", "aten::linspace.Scalar_Tensor")
def aten_linspace(ctx: RuleContext, start: Scalar, end: Scalar, steps: int, **_: Any) -> Array:
    """Evenly spaced numbers between two ends, each a number or a 0-d tensor."""
    return _linspace(ctx, start, end, steps)


@lower("aten::logspace", "aten::logspace.Tensor_Tensor", "aten::logspace.Tensor_Scalar", "aten::logspace.Scalar_Tensor")
def aten_logspace(ctx: RuleContext, start: Scalar, end: Scalar, steps: int, base: Scalar = 10.0, **_: Any) -> Array:
    """Powers of ``base`` with evenly spaced exponents between two ends, each a number or a 0-d tensor."""
    exponents = _linspace(ctx, start, end, steps)
    return jnp.power(cast(base, exponents.dtype), exponents)


def _triangle_indices(ctx: RuleContext, first: np.ndarray, counts: np.ndarray) -> Array:
    """Row and column of each kept element, row by row: row ``r`` keeps ``counts[r]`` elements from column ``first[r]``.

    Only the row bounds become constants of the program; the indices themselves are computed.
    """
    total = ctx.out_shape[1]
    small = index_dtype(max(total, counts.shape[0]))
    if total == 0:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    rows = run_positions(jnp.asarray(counts.astype(small)), total)
    shift = (first - (np.cumsum(counts) - counts)).astype(small)
    return jnp.stack([rows, lax.iota(small, total) + jnp.asarray(shift)[rows]])


@lower("aten::tril_indices")
def aten_tril_indices(ctx: RuleContext, row: int, col: int, offset: int = 0, **_: Any) -> Array:
    """aten::tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    rows = np.arange(row)
    return _triangle_indices(ctx, np.zeros_like(rows), np.clip(rows + offset + 1, 0, col))


@lower("aten::triu_indices")
def aten_triu_indices(ctx: RuleContext, row: int, col: int, offset: int = 0, **_: Any) -> Array:
    """aten::triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    first = np.clip(np.arange(row) + offset, 0, col)
    return _triangle_indices(ctx, first, col - first)


@lower("aten::complex")
def aten_complex(ctx: RuleContext, real: Array, imag: Array) -> Array:
    """aten::complex(Tensor real, Tensor imag) -> Tensor"""
    return lax.complex(*jnp.broadcast_arrays(real, imag))


@lower("aten::polar")
def aten_polar(ctx: RuleContext, abs: Array, angle: Array) -> Array:
    """aten::polar(Tensor abs, Tensor angle) -> Tensor"""
    size, angle = jnp.broadcast_arrays(abs, angle)
    return lax.complex(size * jnp.cos(angle), size * jnp.sin(angle))
