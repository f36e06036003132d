"""Operators whose output shapes depend on values: they get concrete arrays, count first, and compute the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import canonical_dim, cast, index_dtype
from torchtpu.rules.context import RuleContext
from torchtpu.rules.indexing import Indices, aten_index_Tensor, is_mask, mask_positions, take_along
from torchtpu.rules.registry import lower_dynamic, lower_dynamic_case
from torchtpu.rules.shape import run_positions


def _count(mask: Array) -> int:
    return int(jnp.count_nonzero(mask))


@lower_dynamic("aten::nonzero")
def aten_nonzero(ctx: RuleContext, self: Array) -> Array:
    """aten::nonzero(Tensor self) -> Tensor"""
    count = _count(self)
    if self.ndim == 0:
        return jnp.zeros((count, 0), np.int64)
    if count == 0:
        return jnp.zeros((0, self.ndim), np.int64)
    parts = jnp.unravel_index(mask_positions(self, count, 0), self.shape)
    return cast(jnp.stack(parts, axis=1), np.int64)


@lower_dynamic("aten::masked_select")
def aten_masked_select(ctx: RuleContext, self: Array, mask: Array) -> Array:
    """aten::masked_select(Tensor self, Tensor mask) -> Tensor"""
    shape = jnp.broadcast_shapes(self.shape, mask.shape)
    self, mask = jnp.broadcast_to(self, shape).reshape(-1), jnp.broadcast_to(mask, shape)
    count = _count(mask)
    return take_along(self, 0, mask_positions(mask, count, 0)) if count else jnp.zeros(0, self.dtype)


def index_shape(self: tuple[int, ...], indices: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """The shape that indexing with integer tensors of these shapes gives; None keeps a dimension whole."""
    indices = [*indices, *[None] * (len(self) - len(indices))]
    used = [dim for dim, index in enumerate(indices) if index is not None]
    kept = [size for size, index in zip(self, indices, strict=True) if index is None]
    if not used:
        return self
    adjacent = used[-1] - used[0] == len(used) - 1
    start = used[0] if adjacent else 0
    return (*kept[:start], *np.broadcast_shapes(*(index for index in indices if index is not None)), *kept[start:])


@lower_dynamic_case("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index_with_masks(ctx: RuleContext, self: Array, indices: Indices) -> Array:
    """Advanced indexing with masks among the indices: counts them, then runs the static rule."""
    counts = [_count(index) if is_mask(index) else None for index in indices]
    shape = masked_index_shape(self.shape, indices, counts)
    outputs = (jax.ShapeDtypeStruct(shape, self.dtype),)
    return aten_index_Tensor(replace(ctx, outputs=outputs), self, indices)


def masked_index_shape(
    shape: tuple[int, ...], indices: Indices, counts: Sequence[int | None]
) -> tuple[int, ...]:
    """The shape of ``aten::index.Tensor``, given how many elements each mask has set (None for the other indices)."""
    sizes, parts = list(shape), []
    for index, count in zip(indices, counts, strict=True):
        if index is None or count is None:
            parts.append(None if index is None else index.shape)
        elif index.ndim == 0:
            sizes.insert(len(parts), 1)
            parts.append((count,))
        else:
            parts.extend([(count,)] * index.ndim)
    return index_shape(tuple(sizes), parts)


@lower_dynamic("aten::bincount")
def aten_bincount(ctx: RuleContext, self: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor"""
    size = max(int(jnp.max(self)) + 1 if self.size else 0, minlength)
    if weights is None:
        amounts = np.ones((), np.int64)
    else:
        amounts = cast(weights, np.float32 if weights.dtype == np.float32 else np.float64)
    dtype = np.int64 if weights is None else amounts.dtype
    return jnp.zeros(size, dtype).at[cast(self, index_dtype(size))].add(amounts)


@lower_dynamic("aten::repeat_interleave.Tensor")
def aten_repeat_interleave_Tensor(ctx: RuleContext, repeats: Array, *, output_size: int | None = None) -> Array:
    """aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor"""
    total = int(jnp.sum(repeats)) if output_size is None else output_size
    return cast(run_positions(repeats, total), repeats.dtype) if total else jnp.zeros(0, repeats.dtype)


def _runs(rows: Array) -> tuple[Array, Array, Array]:
    """Of rows in order: where each run of equal rows starts, the run of each row, and how long each run is."""
    num = rows.shape[0]
    width = rows.size // num
    changed = jnp.any((rows[1:] != rows[:-1]).reshape(num - 1, width), axis=1)
    fresh = jnp.concatenate([jnp.ones(1, bool), changed])
    count = _count(fresh)
    starts = mask_positions(fresh, count, 0)
    small = starts.dtype
    run = jnp.cumsum(fresh, dtype=small) - np.ones((), small)
    ends = jnp.concatenate([starts[1:], jnp.full(1, num, small)])
    return starts, run, ends - starts


def _unique_rows(rows: Array, order: Array | None) -> tuple[Array, Array, Array]:
    """Distinct rows, the place of each row among them, and their counts; ``order`` sorts the rows, None leaves them."""
    ordered = rows if order is None else take_along(rows, 0, order)
    starts, run, counts = _runs(ordered)
    inverse = run if order is None else jnp.zeros_like(run).at[order].set(run, unique_indices=True)
    return take_along(ordered, 0, starts), inverse, counts


_NONE = (0,)


def _wanted(part: Array, wanted: bool, shape: tuple[int, ...] | None = None) -> Array:
    """An index result as int64, empty where it was not asked for."""
    if not wanted:
        return jnp.zeros(_NONE, np.int64)
    part = cast(part, np.int64)
    return part if shape is None else part.reshape(shape)


def _unique_flat(self: Array, sort: bool) -> tuple[Array, Array, Array]:
    flat = self.reshape(-1)
    if flat.size == 0:
        return flat, jnp.zeros(0, np.int64), jnp.zeros(0, np.int64)
    if not sort:
        return _unique_rows(flat, None)
    keys = flat.astype(np.int8) if flat.dtype == np.bool_ else flat
    order = lax.sort((keys, lax.iota(index_dtype(flat.size), flat.size)), num_keys=1, is_stable=True)[1]
    return _unique_rows(flat, order)


@lower_dynamic("aten::_unique2")
def aten__unique2(
    ctx: RuleContext, self: Array, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Array, Array, Array]:
    """aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)

    Differs: sorted even where that is not asked for.
    """  # noqa: E501
    values, inverse, counts = _unique_flat(self, sort=True)
    return values, _wanted(inverse, return_inverse, self.shape), _wanted(counts, return_counts)


@lower_dynamic("aten::_unique")
def aten__unique(
    ctx: RuleContext, self: Array, sorted: bool = True, return_inverse: bool = False
) -> tuple[Array, Array]:
    """aten::_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)"""
    values, inverse, _ = _unique_flat(self, sort=True)
    return values, _wanted(inverse, return_inverse, self.shape)


def _unique_along(self: Array, dim: int, sort: bool) -> tuple[Array, Array, Array]:
    dim = canonical_dim(dim, self.ndim)
    rows = jnp.moveaxis(self, dim, 0)
    if rows.size == 0:
        return self, jnp.zeros(0, np.int64), jnp.zeros(0, np.int64)
    order = None
    if sort:
        flat = rows.reshape(rows.shape[0], -1)
        flat = flat.astype(np.int8) if flat.dtype == np.bool_ else flat
        position = lax.iota(index_dtype(rows.shape[0]), rows.shape[0])
        columns = [flat[:, k] for k in range(flat.shape[1])]
        order = lax.sort((*columns, position), num_keys=len(columns), is_stable=True)[-1]
    values, inverse, counts = _unique_rows(rows, order)
    return jnp.moveaxis(values, 0, dim), inverse, counts


@lower_dynamic("aten::unique_dim")
def aten_unique_dim(
    ctx: RuleContext, self: Array, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Array, Array, Array]:
    """aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    values, inverse, counts = _unique_along(self, dim, sort=True)
    return values, _wanted(inverse, True), _wanted(counts, True)  # asked for or not, as ATen does along a dimension


@lower_dynamic("aten::unique_dim_consecutive")
def aten_unique_dim_consecutive(
    ctx: RuleContext, self: Array, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Array, Array, Array]:
    """aten::unique_dim_consecutive(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    values, inverse, counts = _unique_along(self, dim, sort=False)
    return values, _wanted(inverse, True), _wanted(counts, True)


@lower_dynamic("aten::unique_consecutive")
def aten_unique_consecutive(
    ctx: RuleContext, self: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Array, Array, Array]:
    """aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    if dim is not None and self.ndim > 1:
        return aten_unique_dim_consecutive(ctx, self, dim, return_inverse, return_counts)
    values, inverse, counts = _unique_flat(self, sort=False)
    return values, _wanted(inverse, return_inverse, self.shape), _wanted(counts, return_counts)
