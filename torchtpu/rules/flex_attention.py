"""Attention whose scores a user's functions change and mask, and its gradient: blocks of keys under a running softmax.

Scores are computed and changed in the wide dtype, whatever that of the query. They exist for one block of keys at a time,
[B, H, Q, block], in the forward and in the backward pass; nothing of size queries x keys is kept between the two, and no block is
skipped, however sparse its mask.

Legend: B batch, H query heads, G of them for each of the K heads of keys and values, Q queries, N keys, D features.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from torchtpu.rules.context import RuleContext, Subgraph
from torchtpu.rules.registry import lower, lower_higher_order

_BLOCK = 512  # keys at a time
_LN2 = math.log(2)


@dataclass(frozen=True)
class _Attention:
    """What both passes share. ``key_BKND`` and ``value_BKND`` are padded to whole blocks."""

    ctx: RuleContext
    query_BHQD: Array
    key_BKND: Array
    value_BKND: Array
    num_keys: int
    block: int
    scale: float
    score_mod: Subgraph
    mask_mod: Subgraph
    score_buffers: Sequence[Any]
    mask_buffers: Sequence[Any]

    @property
    def num_blocks(self) -> int:
        return self.key_BKND.shape[2] // self.block

    def product(self, spec: str, a: Array, b: Array) -> Array:
        """A product accumulated in the wide dtype."""
        wide = self.ctx.accum(self.query_BHQD.dtype)
        return jnp.einsum(spec, a, b, precision=self.ctx.matmul_precision, preferred_element_type=wide)

    def grouped(self, x_BHQ_: Array) -> Array:
        """[B, H, Q, ...] as [B, K, G, Q, ...]."""
        batch, heads, *rest = x_BHQ_.shape
        num_kv_heads = self.key_BKND.shape[1]
        return x_BHQ_.reshape(batch, num_kv_heads, heads // num_kv_heads, *rest)

    def blocks(self) -> tuple[Array, Array, Array]:
        """Numbers, keys and values of the blocks, stacked for ``lax.scan``."""
        return lax.iota(np.int32, self.num_blocks), self._stacked(self.key_BKND), self._stacked(self.value_BKND)

    def _stacked(self, x_BKND: Array) -> Array:
        batch, heads, _, features = x_BKND.shape
        return jnp.moveaxis(x_BKND.reshape(batch, heads, self.num_blocks, self.block, features), 2, 0)

    def positions(self, number: Array) -> tuple[Array, ...]:
        """Batch, head, query and key positions of a block; beyond the last key it stands again, so that buffers hold them all."""
        keys = jnp.minimum(number * self.block + lax.iota(np.int32, self.block), self.num_keys - 1)
        return *(lax.iota(np.int32, n) for n in self.query_BHQD.shape[:3]), keys

    def scores(self, number: Array, key_BKND: Array) -> tuple[Array, Array, Array]:
        """Of a block: scaled scores, what ``score_mod`` makes of them, and which of them count; all [B, H, Q, block]."""
        raw = self.product("bkgqd,bknd->bkgqn", self.grouped(self.query_BHQD), key_BKND) * self.scale
        raw = raw.reshape(*self.query_BHQD.shape[:3], self.block)
        where = self.positions(number)
        changed = _everywhere(lambda score, *at: self.score_mod(score, *at, *self.score_buffers, wide=True)[0], 1)(raw, *where)
        kept = _everywhere(lambda *at: self.mask_mod(*at, *self.mask_buffers)[0], 0)(*where)
        exists = number * self.block + lax.iota(np.int32, self.block) < self.num_keys
        return raw, changed.astype(raw.dtype), kept & exists


def _everywhere(function: Callable[..., Any], num_scores: int, out_axes: Any = 0) -> Callable[..., Any]:
    """A function of single scores and positions as one of blocks of scores and of all positions of the four dims."""
    for dim in (3, 2, 1, 0):
        in_axes = (*[0] * num_scores, *(0 if d == dim else None for d in range(4)))
        function = jax.vmap(function, in_axes=in_axes, out_axes=out_axes)
    return function


def _attention(
    ctx: RuleContext, query: Array, key: Array, value: Array, score_mod: Subgraph, block_mask: Sequence[Any], scale: float,
    score_buffers: Sequence[Any], mask_buffers: Sequence[Any],
) -> _Attention:
    num_keys = key.shape[2]
    block = max(1, min(_BLOCK, num_keys))
    padding = (0, 0), (0, 0), (0, -num_keys % block), (0, 0)

    def padded(x: Array) -> Array:
        return jnp.pad(jnp.broadcast_to(x, (query.shape[0], *x.shape[1:])), padding)

    return _Attention(
        ctx, query, padded(key), padded(value), num_keys, block, scale, score_mod, block_mask[-1], score_buffers, mask_buffers)


@lower_higher_order("flex_attention")
def flex_attention(
    ctx: RuleContext, query: Array, key: Array, value: Array, score_mod: Subgraph, block_mask: Sequence[Any], scale: float,
    kernel_options: dict[str, Any], score_mod_other_buffers: Sequence[Any] = (), mask_mod_other_buffers: Sequence[Any] = (),
) -> tuple[Array, Array, Array]:
    """Attention, and of each row of scores the log-sum-exp and the largest, both to base 2.

    Which keys count is what ``mask_mod`` says; the block mask repeats it in coarser form and is not read. A row without any
    key gives zeros.
    """
    attention = _attention(ctx, query, key, value, score_mod, block_mask, scale, score_mod_other_buffers, mask_mod_other_buffers)
    rows = attention.grouped(query).shape[:4]
    wide = ctx.accum(query.dtype)

    def step(state: tuple[Array, ...], block: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
        highest, total, acc = state
        number, keys, values = block
        _, changed, kept = attention.scores(number, keys)
        scores = attention.grouped(jnp.where(kept, changed, -jnp.inf))
        higher = jnp.maximum(highest, jnp.max(scores, -1))
        finite = jnp.where(jnp.isneginf(higher), 0, higher)
        weights = jnp.exp(scores - finite[..., None])
        shrink = jnp.exp(highest - finite)
        total = total * shrink + jnp.sum(weights, -1)
        acc = acc * shrink[..., None] + attention.product("bkgqn,bknd->bkgqd", weights.astype(values.dtype), values)
        return (higher, total, acc), None

    nothing = jnp.full(rows, -jnp.inf, wide), jnp.zeros(rows, wide), jnp.zeros((*rows, value.shape[-1]), wide)
    (highest, total, acc), _ = lax.scan(step, nothing, attention.blocks())
    result = acc / jnp.where(total == 0, 1, total)[..., None]
    log_sum = jnp.where(total == 0, -jnp.inf, highest + jnp.log(total))
    shape = query.shape[:3]
    return result.reshape(*shape, -1), log_sum.reshape(shape) / _LN2, highest.reshape(shape) / _LN2


@lower_higher_order("flex_attention_backward")
def flex_attention_backward(
    ctx: RuleContext, query: Array, key: Array, value: Array, out: Array, logsumexp: Array, grad_out: Array | None,
    grad_logsumexp: Array | None, fw_graph: Subgraph, joint_graph: Subgraph, block_mask: Sequence[Any], scale: float,
    kernel_options: dict[str, Any], score_mod_other_buffers: Sequence[Any] = (), mask_mod_other_buffers: Sequence[Any] = (),
) -> tuple[Array, Array, Array, tuple[Array | None, ...]]:
    """Gradients of query, key, value, and of what ``score_mod`` reads; the scores are computed again, a block at a time."""
    attention = _attention(ctx, query, key, value, fw_graph, block_mask, scale, score_mod_other_buffers, mask_mod_other_buffers)
    wide = ctx.accum(query.dtype)
    grad_out = jnp.zeros_like(out) if grad_out is None else grad_out
    log_sum = jnp.where(jnp.isneginf(logsumexp), 0, logsumexp).astype(wide) * _LN2
    row_gradient = jnp.sum(out.astype(wide) * grad_out.astype(wide), -1)
    if grad_logsumexp is not None:
        row_gradient = row_gradient - grad_logsumexp.astype(wide) / _LN2
    query_BKGQD, grad_BKGQD = attention.grouped(query), attention.grouped(grad_out)
    joint = functools.partial(_joint, joint_graph, score_mod_other_buffers)

    def step(state: tuple[Array, Any], block: tuple[Array, ...]) -> tuple[tuple[Array, Any], tuple[Array, Array]]:
        grad_query, grad_buffers = state
        number, keys, values = block
        raw, changed, kept = attention.scores(number, keys)
        weights = jnp.where(kept, jnp.exp(changed - log_sum[..., None]), 0)
        grouped = attention.grouped(weights).astype(grad_out.dtype)
        grad_values = attention.product("bkgqn,bkgqd->bknd", grouped, grad_BKGQD)
        grad_weights = attention.product("bkgqd,bknd->bkgqn", grad_BKGQD, values).reshape(weights.shape)
        grad_changed = weights * (grad_weights - row_gradient[..., None])
        grad_raw, more = joint(raw, grad_changed, attention.positions(number))
        grad_scores = jnp.where(kept, grad_raw * scale, 0).astype(query.dtype)
        grad_scores = attention.grouped(grad_scores)
        grad_query = grad_query + attention.product("bkgqn,bknd->bkgqd", grad_scores, keys)
        grad_keys = attention.product("bkgqn,bkgqd->bknd", grad_scores, query_BKGQD)
        return (grad_query, jax.tree.map(jnp.add, grad_buffers, more)), (grad_keys, grad_values)

    block = jax.ShapeDtypeStruct((*query.shape[:3], attention.block), wide)
    none_yet = jax.eval_shape(lambda raw, grad: joint(raw, grad, attention.positions(jnp.int32(0)))[1], block, block)
    start = jnp.zeros(query_BKGQD.shape, wide), jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), none_yet)
    (grad_query, grad_buffers), stacked = lax.scan(step, start, attention.blocks())
    grad_key, grad_value = (_unstacked(g, like) for g, like in zip(stacked, (key, value), strict=True))
    return grad_query.reshape(query.shape), grad_key, grad_value, grad_buffers


def _joint(
    graph: Subgraph, buffers: Sequence[Any], raw: Array, grad_changed: Array, where: tuple[Array, ...]
) -> tuple[Array, tuple[Array | None, ...]]:
    """Gradients of a block of scores, and of buffers summed over it."""

    def one(score: Array, grad: Array, *at: Array) -> tuple[Array, tuple[Array | None, ...]]:
        grad_score, _, _, _, _, *grads = graph(score, *at, grad, *buffers, wide=True)
        return grad_score, tuple(None if g is None or not hasattr(g, "dtype") else _summed(g) for g in grads)

    return _everywhere(one, 2, (0, None))(raw, grad_changed, *where)


def _unstacked(blocks: Array, like: Array) -> Array:
    """Blocks of keys as one tensor of the shape of ``like``, without the padding; summed over a batch that shared them."""
    joined = jnp.moveaxis(blocks, 0, 2)
    joined = joined.reshape(*joined.shape[:2], -1, joined.shape[-1])[:, :, :like.shape[2]]
    return joined if joined.shape[0] == like.shape[0] else jnp.sum(joined, 0, keepdims=True)


@custom_vmap
def _summed(gradient: Array) -> Array:
    """Itself; under ``vmap``, the sum over what is mapped."""
    return gradient


@_summed.def_vmap
def _(size: int, batched: Sequence[bool], gradients: Array) -> tuple[Array, bool]:
    return _summed(jnp.sum(gradients, 0)), False


@lower("flex_lib::zeros_and_scatter")
def flex_lib_zeros_and_scatter(ctx: RuleContext, shape: Sequence[int], indices: Sequence[Array], vals: Array) -> Array:
    """flex_lib::zeros_and_scatter(SymInt[] shape, Tensor[] indices, Tensor vals) -> Tensor

    Zeros to which ``vals`` are added where the indices say: the gradient of reading a buffer. Under ``vmap`` all of them are
    added to the same zeros, because one such result for each score would be as large as scores times buffer.
    """

    @custom_vmap
    def scattered(places: tuple[Array, ...], values: Array) -> Array:
        return jnp.zeros(tuple(shape), values.dtype).at[places].add(values)

    @scattered.def_vmap
    def _(size: int, batched: Any, places: tuple[Array, ...], values: Array) -> tuple[Array, bool]:
        def spread(x: Array, is_batched: bool) -> Array:
            return x if is_batched else jnp.broadcast_to(x, (size, *x.shape))

        every = tuple(spread(place, is_batched) for place, is_batched in zip(places, batched[0], strict=True))
        return scattered(every, spread(values, batched[1])), False

    return scattered(tuple(indices), vals)
