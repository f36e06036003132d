"""Scaled dot-product attention and its gradient.

The backward pass computes the scores again, from q, k and the log-sum-exp of the forward pass, and the dropout mask
from the key that the forward pass returns, so that nothing of size queries x keys is kept between the two.

Legend: B batch, H heads of keys and values, G query heads a key head (grouped-query attention; 1 without), Q queries,
K keys, D features.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.rules._wide import number, wide_einsum, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array


def _with_batch(x: Array) -> Array:
    return x if x.ndim == 4 else x[None]


def _group(x: Array, num_kv_heads: int) -> Array:
    """[B, heads, ...] as [B, H, G, ...]."""
    return x.reshape(x.shape[0], num_kv_heads, x.shape[1] // num_kv_heads, *x.shape[2:])


def _group_bias(bias: Array, num_kv_heads: int, num_groups: int) -> Array:
    """An attention bias, broadcastable to [B, heads, Q, K], in a shape that broadcasts against [B, H, G, Q, K]."""
    bias = widen(bias).reshape((1,) * (4 - bias.ndim) + bias.shape)
    if bias.shape[1] == 1:
        return bias[:, :, None]
    return bias.reshape(bias.shape[0], num_kv_heads, num_groups, *bias.shape[2:])


def _scores(
    ctx: RuleContext, q_BHGQD: Array, k_BHKD: Array, attn_bias: Array | None, is_causal: bool, scale: float | None
) -> Array:
    """Scaled scores [B, H, G, Q, K], with the bias, and minus infinity above the diagonal where causal."""
    factor = 1 / math.sqrt(q_BHGQD.shape[-1]) if scale is None else scale
    scores = wide_einsum(ctx, "bhgqd,bhkd->bhgqk", q_BHGQD, k_BHKD)
    scores = scores * number(factor, scores)
    if attn_bias is not None:
        scores = scores + _group_bias(attn_bias, k_BHKD.shape[1], q_BHGQD.shape[2])
    if is_causal:
        # The diagonal starts at the first query and the first key even where their numbers differ.
        shape = scores.shape[-2:]
        keep = lax.broadcasted_iota(jnp.int32, shape, 0) >= lax.broadcasted_iota(jnp.int32, shape, 1)
        scores = jnp.where(keep, scores, -jnp.inf)
    return scores


def _dropout_factor(key_data: tuple[Array, Array], dropout_p: float, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """What each probability is multiplied with: zero where dropped, else the reciprocal of the share that is kept."""
    data = jnp.stack([jnp.asarray(word).reshape(()).astype(jnp.uint32) for word in key_data])
    key = jax.random.wrap_key_data(data, impl="threefry2x32")
    keep = 1.0 - dropout_p
    return jnp.where(jax.random.bits(key, shape, jnp.uint32) < jnp.uint32(min(int(keep * 2**32), 2**32 - 1)),
                     jnp.asarray(1 / keep if keep else 0.0, dtype), 0)


def _softmax(scores: Array) -> tuple[Array, Array]:
    """Probabilities, zero in rows that are all minus infinity, and log-sum-exp [..., 1], plus infinity for such rows."""
    row_max = jnp.max(scores, -1, keepdims=True, initial=-jnp.inf)
    row_max = jnp.where(row_max == -jnp.inf, 0, row_max)
    weights = jnp.exp(scores - row_max)
    total = jnp.sum(weights, -1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total), jnp.where(total == 0, jnp.inf, row_max + jnp.log(total))


def _attend(
    ctx: RuleContext, query: Array, k: Array, v: Array, attn_bias: Array | None, dropout_p: float, is_causal: bool,
    scale: float | None,
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Values [B, H, G, Q, D], log-sum-exp [B, H, G, Q, 1], and the two words of the dropout key."""
    q = _group(query, k.shape[1])
    scores = _scores(ctx, q, k, attn_bias, is_causal, scale)
    probs, lse = _softmax(scores)
    words = (jnp.zeros((), jnp.int64), jnp.zeros((), jnp.int64))
    if dropout_p > 0:
        data = jax.random.key_data(ctx.key())
        words = (data[0].astype(jnp.int64), data[1].astype(jnp.int64))
        probs = probs * _dropout_factor(words, dropout_p, probs.shape, probs.dtype)
    out = wide_einsum(ctx, "bhgqk,bhkd->bhgqd", probs.astype(v.dtype), v)
    return out, lse, words


@lower("aten::_scaled_dot_product_fused_attention_overrideable")
def aten__scaled_dot_product_fused_attention_overrideable(
    ctx: RuleContext, query: Array, key: Array, value: Array, attn_bias: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Array | int | None, ...]:
    """aten::_scaled_dot_product_fused_attention_overrideable(Tensor query, Tensor key, Tensor value, Tensor? attn_bias=None, float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)

    A row without any key to attend to gives zeros, and its log-sum-exp is plus infinity, so that its gradient is zero.
    The two words of the dropout key travel as ``philox_seed`` and ``philox_offset``.
    """  # noqa: E501
    out, lse, words = _attend(ctx, _with_batch(query), _with_batch(key), _with_batch(value), attn_bias, dropout_p, is_causal, scale)
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    return (out.reshape(*query.shape[:-1], value.shape[-1]), lse.reshape(ctx.outputs[1].shape), None, None,
            num_queries, num_keys, *words, None)


@lower("aten::scaled_dot_product_attention")
def aten_scaled_dot_product_attention(
    ctx: RuleContext, query: Array, key: Array, value: Array, attn_mask: Array | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Array:
    """aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor

    Of exported programs only: everywhere else PyTorch takes it apart itself. There, its parts lay out their results in memory in
    another way than it did when the program was traced, and views that were taken of its result would not exist.
    """  # noqa: E501
    def with_heads(x: Array) -> Array:
        if x.ndim <= 3:
            return x.reshape(*x.shape[:-2], *[1] * (4 - x.ndim), *x.shape[-2:])
        return x.reshape(-1, *x.shape[-3:])

    bias = attn_mask
    if bias is not None:
        bias = jnp.where(bias, 0.0, -jnp.inf).astype(query.dtype) if bias.dtype == np.bool_ else bias
        if bias.ndim > 2:
            bias = with_heads(jnp.broadcast_to(bias, (*query.shape[:-2], *bias.shape[-2:])))
    out, _, _ = _attend(ctx, with_heads(query), with_heads(key), with_heads(value), bias, dropout_p, is_causal, scale)
    return out.reshape(*query.shape[:-1], value.shape[-1])


@lower("aten::_scaled_dot_product_fused_attention_overrideable_backward")
def aten__scaled_dot_product_fused_attention_overrideable_backward(
    ctx: RuleContext, grad_out: Array, query: Array, key: Array, value: Array, attn_bias: Array | None,
    grad_input_mask: tuple[bool, ...], out: Array, logsumexp: Array, cum_seq_q: Array | None,
    cum_seq_k: Array | None, max_q: int, max_k: int, dropout_p: float, is_causal: bool, philox_seed: Array,
    philox_offset: Array, *, scale: float | None = None,
) -> tuple[Array | None, ...]:
    """aten::_scaled_dot_product_fused_attention_overrideable_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor attn_bias, bool[4] grad_input_mask, Tensor out, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, Tensor philox_seed, Tensor philox_offset, *, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor grad_attn_bias)

    Source: the backward pass of Dao et al., FlashAttention (2022), appendix B.2: the sum over keys of P * dP equals that over
    features of out * grad_out, with dropout as well.
    """  # noqa: E501
    k, v = _with_batch(key), _with_batch(value)
    num_heads = k.shape[1]
    q, g, o = (_group(_with_batch(x), num_heads) for x in (query, grad_out, out))
    g = g.astype(v.dtype)
    scores = _scores(ctx, q, k, attn_bias, is_causal, scale)
    if scores.dtype == np.float64:  # of which PyTorch keeps the log-sum-exp in float32
        probs, _ = _softmax(scores)
    else:
        probs = jnp.exp(scores - widen(logsumexp).reshape(*scores.shape[:-1], 1))
    grad_probs = wide_einsum(ctx, "bhgqd,bhkd->bhgqk", g, v)
    dropped = probs
    if dropout_p > 0:
        factor = _dropout_factor((philox_seed, philox_offset), dropout_p, probs.shape, probs.dtype)
        dropped, grad_probs = probs * factor, grad_probs * factor
    row = jnp.sum(widen(o) * widen(g), -1, keepdims=True)
    grad_scores = probs * (grad_probs - row)
    factor = number(1 / math.sqrt(q.shape[-1]) if scale is None else scale, grad_scores)
    # Sized down before the products, whose rounding the scaling commutes with up to a power of two.
    scaled = (grad_scores * factor).astype(q.dtype)
    grads = (
        lambda: wide_einsum(ctx, "bhgqk,bhkd->bhgqd", scaled, k).reshape(query.shape),
        lambda: wide_einsum(ctx, "bhgqk,bhgqd->bhkd", scaled, q).reshape(key.shape),
        lambda: wide_einsum(ctx, "bhgqk,bhgqd->bhkd", dropped.astype(g.dtype), g).reshape(value.shape),
        lambda: _bias_grad(grad_scores, attn_bias),
    )
    return tuple(grad() if wanted else None for grad, wanted in zip(grads, grad_input_mask, strict=True))


def _bias_grad(grad_scores: Array, attn_bias: Array | None) -> Array | None:
    """The gradient of the scores summed over the dimensions that the bias was broadcast along."""
    if attn_bias is None:
        return None
    full = grad_scores.reshape(grad_scores.shape[0], -1, *grad_scores.shape[3:])
    shape = (1,) * (4 - attn_bias.ndim) + attn_bias.shape
    axes = tuple(i for i in range(4) if shape[i] == 1 and full.shape[i] != 1)
    return jnp.sum(full, axes, keepdims=True).reshape(attn_bias.shape)


@lower("aten::_safe_softmax")
def aten__safe_softmax(ctx: RuleContext, self: Array, dim: int, dtype: jnp.dtype | None = None) -> Array:
    """aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor

    A softmax that is zero, not NaN, where all of a row is minus infinity.
    """
    x = widen(self if dtype is None else self.astype(dtype))
    masked = jnp.all(x == -jnp.inf, axis=dim, keepdims=True)
    return jnp.where(masked, 0, jax.nn.softmax(jnp.where(masked, 0, x), axis=dim))
