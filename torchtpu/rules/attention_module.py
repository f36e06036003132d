"""The fused forward passes of ``torch.nn.MultiheadAttention`` and ``TransformerEncoderLayer`` outside of training, and parts."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.rules._numbers import Scalar
from torchtpu.rules._wide import number, wide_einsum, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array

# Values of mask_type: what the dimensions of the mask are.
QUERIES_BY_KEYS, BATCH_BY_KEYS = 0, 1


def _linear(ctx: RuleContext, x: Array, weight: Array, bias: Array | None) -> Array:
    """``x @ weight.T + bias`` in the wide dtype."""
    out = wide_einsum(ctx, "...i,oi->...o", x.astype(weight.dtype), weight)
    return out if bias is None else out + widen(bias)


def _allowed(mask: Array, mask_type: int | None) -> Array:
    """A mask, set where attention is forbidden, as one that broadcasts to [batch, heads, queries, keys] and allows."""
    if mask_type == QUERIES_BY_KEYS or (mask_type is None and mask.ndim == 2 and mask.shape[0] == mask.shape[1]):
        mask = mask[None, None]
    elif mask_type == BATCH_BY_KEYS or mask.ndim == 2:
        mask = mask[:, None, None]
    return mask == 0


def _heads(x: Array, num_head: int) -> Array:
    return x.reshape(*x.shape[:2], num_head, -1).swapaxes(1, 2)


def _attend(ctx: RuleContext, query: Array, key: Array, value: Array, num_head: int, qkv: tuple[Array, Array],
            proj: tuple[Array, Array], mask: Array | None, mask_type: int | None) -> tuple[Array, Array]:
    """Output of multi-head attention, and the probabilities [batch, heads, queries, keys]."""
    dtype = query.dtype
    weights, biases = jnp.split(qkv[0], 3), jnp.split(qkv[1], 3)
    q, k, v = (_heads(_linear(ctx, x, w, b), num_head)
               for x, w, b in zip((query, key, value), weights, biases, strict=True))
    q = q * (1 / math.sqrt(q.shape[-1]))
    scores = wide_einsum(ctx, "bhqd,bhkd->bhqk", q.astype(dtype), k.astype(dtype))
    if mask is not None:
        scores = jnp.where(_allowed(mask, mask_type), scores, -jnp.inf)
    probs = jax.nn.softmax(scores, axis=-1)
    out = wide_einsum(ctx, "bhqk,bhkd->bqhd", probs.astype(dtype), v.astype(dtype))
    return _linear(ctx, out.reshape(*out.shape[:2], -1), *proj), probs


@lower("aten::_native_multi_head_attention")
def aten__native_multi_head_attention(
    ctx: RuleContext, query: Array, key: Array, value: Array, embed_dim: int, num_head: int, qkv_weight: Array,
    qkv_bias: Array, proj_weight: Array, proj_bias: Array, mask: Array | None = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Array, Array | None]:
    """aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, bool need_weights=True, bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)"""  # noqa: E501
    out, probs = _attend(ctx, query, key, value, num_head, (qkv_weight, qkv_bias), (proj_weight, proj_bias), mask,
                         mask_type)
    if not need_weights:
        return out, None
    return out, jnp.mean(probs, axis=1) if average_attn_weights else probs


def _layer_norm(x: Array, weight: Array, bias: Array, eps: Scalar) -> Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + number(eps, var)) * widen(weight) + widen(bias)


@lower("aten::_transformer_encoder_layer_fwd")
def aten__transformer_encoder_layer_fwd(
    ctx: RuleContext, src: Array, embed_dim: int, num_heads: int, qkv_weight: Array, qkv_bias: Array,
    proj_weight: Array, proj_bias: Array, use_gelu: bool, norm_first: bool, eps: Scalar, norm_weight_1: Array,
    norm_bias_1: Array, norm_weight_2: Array, norm_bias_2: Array, ffn_weight_1: Array, ffn_bias_1: Array,
    ffn_weight_2: Array, ffn_bias_2: Array, mask: Array | None = None, mask_type: int | None = None,
) -> Array:
    """aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, Tensor norm_weight_1, Tensor norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor"""  # noqa: E501
    def attend(x: Array) -> Array:
        x = x.astype(src.dtype)
        return _attend(ctx, x, x, x, num_heads, (qkv_weight, qkv_bias), (proj_weight, proj_bias), mask, mask_type)[0]

    def feed_forward(x: Array) -> Array:
        hidden = _linear(ctx, x, ffn_weight_1, ffn_bias_1)
        hidden = jax.nn.gelu(hidden, approximate=False) if use_gelu else jnp.maximum(hidden, 0)
        return _linear(ctx, hidden, ffn_weight_2, ffn_bias_2)

    def norm_1(x: Array) -> Array:
        return _layer_norm(x, norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Array) -> Array:
        return _layer_norm(x, norm_weight_2, norm_bias_2, eps)

    x = widen(src)
    if norm_first:
        x = x + attend(norm_1(x))
        return x + feed_forward(norm_2(x))
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x))


@lower("aten::_transform_bias_rescale_qkv")
def aten__transform_bias_rescale_qkv(
    ctx: RuleContext, qkv: Array, qkv_bias: Array, num_heads: int
) -> tuple[Array, Array, Array]:
    """aten::_transform_bias_rescale_qkv(Tensor qkv, Tensor qkv_bias, int num_heads) -> (Tensor, Tensor, Tensor)

    Shapes: qkv [batch, tokens, 3 * heads * width] -> three times [batch, heads, tokens, width]
    """
    q, k, v = (_heads(x, num_heads) for x in jnp.split(widen(qkv) + widen(qkv_bias), 3, axis=-1))
    return q * number(1 / math.sqrt(q.shape[-1]), q), k, v


@lower("aten::_masked_softmax")
def aten__masked_softmax(
    ctx: RuleContext, self: Array, mask: Array, dim: int | None = None, mask_type: int | None = None
) -> Array:
    """aten::_masked_softmax(Tensor self, Tensor mask, int? dim=None, int? mask_type=None) -> Tensor

    The mask is set where nothing is wanted; where that is everywhere, the result is NaN.
    """
    if self.size == 0:
        return self
    allowed = _allowed(mask, mask_type) if mask_type in (QUERIES_BY_KEYS, BATCH_BY_KEYS) else ~mask
    x = jnp.atleast_1d(widen(self))
    return jax.nn.softmax(jnp.where(allowed, x, number(-jnp.inf, x)), axis=-1 if dim is None else dim).reshape(self.shape)


@lower("aten::_masked_softmax_backward")
def aten__masked_softmax_backward(
    ctx: RuleContext, grad_output: Array, output: Array, mask: Array, dim: int | None = None
) -> Array:
    """aten::_masked_softmax_backward(Tensor grad_output, Tensor output, Tensor mask, int? dim=None) -> Tensor"""
    grad, out = jnp.atleast_1d(widen(grad_output)), jnp.atleast_1d(widen(output))
    zero = number(0, grad)
    total = jnp.sum(jnp.where(mask, zero, grad * out), -1 if dim is None else dim, keepdims=True)
    return jnp.where(mask, zero, out * (grad - total)).reshape(grad_output.shape)
