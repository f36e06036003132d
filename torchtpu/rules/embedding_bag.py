"""Sums, means and maxima of bags of embedding rows, and their gradients.

A bag is a run of indices; ``offsets`` says where each begins. Results beside the first are for the gradient only.
Shapes: weight [V, D], indices [I], offsets [B] or, with the last one included, [B + 1].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import cast, constant
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.indexing import take_along, whole_indices
from torchtpu.rules.registry import lower
from torchtpu.rules.search import search_sorted

SUM, MEAN, MAX = 0, 1, 2


def _bags(offsets: Array, num_indices: int) -> Array:
    """The bag of each index."""
    return search_sorted(offsets.astype(np.int32), jnp.arange(num_indices, dtype=np.int32), right=True) - np.int32(1)


def _as_wanted(x: Array, wanted: jax.ShapeDtypeStruct) -> Array:
    """A result that ATen leaves empty, or unset, where it has no use for it."""
    return x if x.shape == wanted.shape else jnp.zeros(wanted.shape, wanted.dtype)


@lower("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def aten__embedding_bag(
    ctx: RuleContext, weight: Array, indices: Array, offsets: Array, scale_grad_by_freq: bool = False, mode: int = SUM,
    sparse: bool = False, per_sample_weights: Array | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    """What each bag comes to, the bag of each index, the size of each bag, and where its maxima came from."""
    out, *others = ctx.outputs
    num_bags = out.shape[0]
    if 0 in out.shape or indices.size == 0:
        return tuple(jnp.zeros(o.shape, o.dtype) for o in ctx.outputs)  # pyright: ignore[reportReturnType]
    bag_I = _bags(offsets[:num_bags], indices.size)
    # Indices that do not count go to a bag that does not exist.
    kept_I = jnp.where(indices == padding_idx, np.int32(num_bags), bag_I) if padding_idx >= 0 else bag_I
    sizes_B = jax.ops.segment_sum(jnp.ones(indices.shape, np.int32), kept_I, num_bags)
    rows_ID = widen(take_along(weight, 0, whole_indices(indices, weight.shape[0])))
    winners_BD = jnp.zeros(out.shape, np.int32)
    if mode == MAX:
        result, winners_BD = _maxima(rows_ID, kept_I, num_bags)
        winners_BD = jnp.where(sizes_B[:, None] > 0, jnp.take(indices, winners_BD, mode="clip"), 0)
        result = jnp.where(sizes_B[:, None] > 0, result, 0)
    else:
        if per_sample_weights is not None:
            rows_ID = rows_ID * widen(per_sample_weights)[:, None]
        result = jax.ops.segment_sum(rows_ID, kept_I, num_bags)
        if mode == MEAN:
            result = result / jnp.maximum(sizes_B, 1).astype(result.dtype)[:, None]
    return result, *(_as_wanted(x, o) for x, o in zip((bag_I, sizes_B, winners_BD), others, strict=True))  # pyright: ignore


def _maxima(rows_ID: Array, bag_I: Array, num_bags: int) -> tuple[Array, Array]:
    """The maximum of each bag and column, and the first index that has it."""
    best_BD = jax.ops.segment_max(rows_ID, bag_I, num_bags)
    place_I1 = jnp.arange(bag_I.size, dtype=np.int32)[:, None]
    is_best = (rows_ID == jnp.take(best_BD, bag_I, 0, mode="clip"))
    return best_BD, jax.ops.segment_min(jnp.where(is_best, place_I1, np.int32(bag_I.size)), bag_I, num_bags)


def _grad_of_rows(
    grad: Array, indices: Array, bag_I: Array, bag_size: Array, maximum_indices: Array, num_weights: int,
    scale_grad_by_freq: bool, mode: int, per_sample_weights: Array | None, padding_idx: int,
) -> Array:
    grad_BD = widen(grad)
    zeros = jnp.zeros((num_weights, grad.shape[1]), grad_BD.dtype)
    if grad.size == 0 or indices.size == 0:
        return zeros
    if mode == MAX:
        row_BD = jnp.where(bag_size[:, None] > 0, maximum_indices, num_weights).astype(np.int32)
        return zeros.at[row_BD, jnp.arange(grad.shape[1], dtype=np.int32)].add(grad_BD, mode="drop")
    row_I = indices.astype(np.int32)
    if padding_idx >= 0:
        row_I = jnp.where(row_I == padding_idx, np.int32(num_weights), row_I)
    if mode == MEAN:
        grad_BD = grad_BD / jnp.maximum(bag_size, 1).astype(grad_BD.dtype)[:, None]
    grad_ID = jnp.take(grad_BD, bag_I.astype(np.int32), 0, mode="clip")
    if per_sample_weights is not None:
        grad_ID = grad_ID * widen(per_sample_weights)[:, None]
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, grad_BD.dtype).at[row_I].add(constant(1, grad_BD.dtype), mode="drop")
        grad_ID = grad_ID / jnp.take(counts, row_I, mode="clip")[:, None]
    return zeros.at[row_I].add(grad_ID, mode="drop")


@lower("aten::_embedding_bag_backward")
def aten__embedding_bag_backward(
    ctx: RuleContext, grad: Array, indices: Array, offsets: Array, offset2bag: Array, bag_size: Array, maximum_indices: Array,
    num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: Array | None, padding_idx: int = -1,
) -> Array:
    """aten::_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, int padding_idx=-1) -> Tensor

    Differs: dense where a sparse one was asked for; ``scale_grad_by_freq`` divides by how often this index occurs, the CPU's own
    by that of another one.
    """  # noqa: E501
    bag_I = _bags(offsets[:grad.shape[0]], indices.size)
    return _grad_of_rows(grad, indices, bag_I, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
                         per_sample_weights, padding_idx)


@lower("aten::_embedding_bag_dense_backward")
def aten__embedding_bag_dense_backward(
    ctx: RuleContext, grad: Array, indices: Array, offset2bag: Array, bag_size: Array, maximum_indices: Array, num_weights: int,
    scale_grad_by_freq: bool, mode: int, per_sample_weights: Array | None, padding_idx: int = -1,
) -> Array:
    """aten::_embedding_bag_dense_backward(Tensor grad, Tensor indices, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights, int padding_idx=-1) -> Tensor"""  # noqa: E501
    return _grad_of_rows(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
                         per_sample_weights, padding_idx)


@lower("aten::_embedding_bag_per_sample_weights_backward")
def aten__embedding_bag_per_sample_weights_backward(
    ctx: RuleContext, grad: Array, weight: Array, indices: Array, offsets: Array, offset2bag: Array, mode: int,
    padding_idx: int = -1,
) -> Array:
    """aten::_embedding_bag_per_sample_weights_backward(Tensor grad, Tensor weight, Tensor indices, Tensor offsets, Tensor offset2bag, int mode, int padding_idx=-1) -> Tensor"""  # noqa: E501
    if grad.size == 0 or indices.size == 0:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    bag_I = _bags(offsets[:grad.shape[0]], indices.size)
    rows_ID = widen(take_along(weight, 0, whole_indices(indices, weight.shape[0])))
    result = jnp.sum(jnp.take(widen(grad), bag_I, 0, mode="clip") * rows_ID, 1)
    return jnp.where(indices == padding_idx, cast(0, result.dtype), result) if padding_idx >= 0 else result
