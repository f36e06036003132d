"""Finding places in sorted sequences, membership and histograms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import Scalar, cast, constant, index_dtype, is_inexact, is_zero
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

# Below this many boundaries, comparing with each of them is faster on a vector unit than a binary search of gathers.
_COMPARE_ALL = 256


def _before(boundary: Array, value: Array, right: bool) -> Array:
    """Whether a value belongs after a boundary; NaN belongs after every one."""
    return ~(boundary > value) if right else ~(boundary >= value)


def _binary_search(sequence_BN: Array, value_BM: Array, right: bool) -> Array:
    length = sequence_BN.shape[-1]
    small = index_dtype(length)
    low = jnp.zeros(value_BM.shape, small)
    high = jnp.full(value_BM.shape, constant(length, small))
    for _ in range(length.bit_length()):
        middle = (low + high) // constant(2, small)
        boundary = jnp.take_along_axis(sequence_BN, jnp.minimum(middle, constant(length - 1, small)), -1)
        after = _before(boundary, value_BM, right) & (low < high)
        low, high = jnp.where(after, middle + constant(1, small), low), jnp.where(after, high, middle)
    return low


def search_sorted(sequence: Array, values: Array, right: bool) -> Array:
    """For each value the first place at which it keeps the last dimension of ``sequence`` sorted.

    ``sequence`` is one row for all values, or has the leading dimensions of ``values``.
    """
    if values.size == 0 or sequence.shape[-1] == 0:
        return jnp.zeros(values.shape, np.int32)
    dtype = jnp.promote_types(sequence.dtype, values.dtype)
    sequence, values = cast(sequence, dtype), cast(values, dtype)
    if sequence.shape[-1] <= _COMPARE_ALL:
        lines = sequence if sequence.ndim == 1 else sequence[..., None, :]
        return jnp.sum(_before(lines, values[..., None], right), -1, dtype=np.int32)
    if sequence.ndim == 1:
        return _binary_search(sequence[None], values.reshape(1, -1), right).reshape(values.shape)
    return _binary_search(sequence, values, right)


def _side(right: bool, side: str | None) -> bool:
    return right if side is None else side == "right"


@lower("aten::searchsorted.Tensor")
def aten_searchsorted_Tensor(
    ctx: RuleContext, sorted_sequence: Array, self: Array, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Array | None = None,
) -> Array:
    """aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor"""  # noqa: E501
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, -1)
    return search_sorted(sorted_sequence, self, _side(right, side))


@lower("aten::searchsorted.Scalar")
def aten_searchsorted_Scalar(
    ctx: RuleContext, sorted_sequence: Array, self: Scalar, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Array | None = None,
) -> Array:
    """aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor"""  # noqa: E501
    value = jnp.asarray(cast(self, ctx.common_dtype))
    return aten_searchsorted_Tensor(
        ctx, sorted_sequence, value, out_int32=out_int32, right=right, side=side, sorter=sorter)


@lower("aten::bucketize.Tensor")
def aten_bucketize_Tensor(
    ctx: RuleContext, self: Array, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    """aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor"""
    return search_sorted(boundaries, self, right)


@lower("aten::bucketize.Scalar")
def aten_bucketize_Scalar(
    ctx: RuleContext, self: Scalar, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    """aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor"""
    return search_sorted(boundaries, jnp.asarray(cast(self, ctx.common_dtype)), right)


@lower("aten::isin.Tensor_Tensor", "aten::isin.Tensor_Scalar", "aten::isin.Scalar_Tensor")
def aten_isin(
    ctx: RuleContext, elements: Array, test_elements: Array, *, assume_unique: bool = False, invert: bool = False
) -> Array:
    """Whether each element is among the tested ones; either may be a number."""
    dtype = ctx.common_dtype
    elements, tests = jnp.asarray(cast(elements, dtype)), jnp.asarray(cast(test_elements, dtype)).reshape(-1)
    if tests.size <= _COMPARE_ALL:
        found = jnp.any(elements[..., None] == tests, -1)
    else:
        ordered = lax.sort(tests)
        place = jnp.minimum(search_sorted(ordered, elements, right=False), tests.size - 1)
        found = ordered[place] == elements
    return ~found if invert else found


@lower("aten::histc")
def aten_histc(ctx: RuleContext, self: Array, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Array:
    """aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor

    Dtypes:  integers too, as on a GPU: the CPU has floats only
    """
    x = self.reshape(-1)
    wide = x if is_inexact(x.dtype) else cast(x, np.int64)  # the product below has to be exact
    low, high = cast(min, wide.dtype), cast(max, wide.dtype)
    if is_zero(min) and is_zero(max) and x.size:  # the range of the data; of one value, that value and one to each side
        low, high = jnp.min(wide), jnp.max(wide)
    flat = low == high
    low, high = jnp.where(flat, low - 1, low), jnp.where(flat, high + 1, high)
    if is_inexact(x.dtype):
        place = jnp.floor((wide - low) / (high - low) * constant(bins, wide.dtype))
    else:
        place = (wide - low) * constant(bins, wide.dtype) // (high - low)
    place = cast(place, np.int32)
    place = jnp.where((wide >= low) & (wide <= high), jnp.minimum(place, bins - 1), bins)
    return jnp.zeros(bins, ctx.accum(x.dtype)).at[place].add(constant(1, ctx.accum(x.dtype)), mode="drop")
