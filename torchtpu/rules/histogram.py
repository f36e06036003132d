"""Histograms of one or several dimensions. Every bin includes its left edge, the last one its right edge too."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import constant
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower
from torchtpu.rules.search import search_sorted

Range = Sequence[float] | None


def _edges(x: Array, bins: int, range: Range) -> Array:
    """Edges at equal distances, over the data where no range is given. One value gets half a unit to each side."""
    if range is not None:
        low, high = (jnp.asarray(constant(value, x.dtype)) for value in range)
    elif x.size:
        low, high = jnp.min(x), jnp.max(x)
    else:
        low, high = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
    half = jnp.where(low == high, constant(0.5, x.dtype), constant(0, x.dtype))
    low, high = low - half, high + half
    step = (high - low) / constant(bins, x.dtype)
    place = jnp.arange(bins + 1, dtype=x.dtype)
    # From both ends, as ATen's linspace: the last edge is exact.
    return jnp.where(place < (bins + 1) // 2, low + step * place, high - step * (bins - place))


def _count(x_ND: Array, edges: Sequence[Array], weight: Array | None, density: bool) -> Array:
    shape = tuple(edge.size - 1 for edge in edges)
    flat, inside = jnp.zeros(x_ND.shape[0], np.int32), jnp.ones(x_ND.shape[0], np.bool_)
    for dim, edge in enumerate(edges):
        x = x_ND[:, dim]
        place = jnp.minimum(search_sorted(edge, x, right=True) - 1, shape[dim] - 1)
        flat = flat * np.int32(shape[dim]) + place
        inside &= (x >= edge[0]) & (x <= edge[-1])
    amount = jnp.ones((), x_ND.dtype) if weight is None else weight.reshape(-1)
    total = int(np.prod(shape, dtype=np.int64))
    counts = jnp.zeros(total, x_ND.dtype).at[jnp.where(inside, flat, np.int32(total))].add(amount, mode="drop").reshape(shape)
    if density:
        counts = counts / jnp.sum(counts)
        for dim, edge in enumerate(edges):
            counts = counts / jnp.expand_dims(jnp.diff(edge), tuple(d for d, _ in enumerate(shape) if d != dim))
    return counts


@lower("aten::histogram.bins_tensor")
def aten_histogram_bins_tensor(
    ctx: RuleContext, self: Array, bins: Array, *, weight: Array | None = None, density: bool = False
) -> tuple[Array, Array]:
    """aten::histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)"""  # noqa: E501
    return _count(self.reshape(-1, 1), [bins], weight, density), bins


@lower("aten::histogram.bin_ct")
def aten_histogram_bin_ct(
    ctx: RuleContext, self: Array, bins: int = 100, *, range: Range = None, weight: Array | None = None, density: bool = False
) -> tuple[Array, Array]:
    """aten::histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)"""  # noqa: E501
    edges = _edges(self.reshape(-1), bins, range)
    return _count(self.reshape(-1, 1), [edges], weight, density), edges


@lower("aten::_histogramdd_bin_edges")
def aten__histogramdd_bin_edges(
    ctx: RuleContext, self: Array, bins: Sequence[int], *, range: Range = None, weight: Array | None = None, density: bool = False
) -> list[Array]:
    """aten::_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor[]"""  # noqa: E501
    x_ND = self.reshape(-1, self.shape[-1])
    return [_edges(x_ND[:, dim], num, range and range[2 * dim:2 * dim + 2]) for dim, num in enumerate(bins)]


@lower("aten::_histogramdd_from_bin_cts")
def aten__histogramdd_from_bin_cts(
    ctx: RuleContext, self: Array, bins: Sequence[int], *, range: Range = None, weight: Array | None = None, density: bool = False
) -> Array:
    """aten::_histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor"""  # noqa: E501
    edges = aten__histogramdd_bin_edges(ctx, self, bins, range=range)
    return _count(self.reshape(-1, self.shape[-1]), edges, weight, density)


@lower("aten::_histogramdd_from_bin_tensors")
def aten__histogramdd_from_bin_tensors(
    ctx: RuleContext, self: Array, bins: Sequence[Array], *, weight: Array | None = None, density: bool = False
) -> Array:
    """aten::_histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False) -> Tensor"""
    return _count(self.reshape(-1, self.shape[-1]), bins, weight, density)
