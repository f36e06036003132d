"""Normalisation layers and their gradients. Statistics are computed in float32 for 16-bit floats."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.rules._numbers import Scalar
from torchtpu.rules._wide import number, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array
Mask = tuple[bool, ...]


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance, axes kept. Two passes: the one-pass form loses small variances beside large means."""
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


def _affine(x: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...]) -> Array:
    """``x * weight + bias``, parameters reshaped to ``shape``."""
    if weight is not None:
        x = x * widen(weight).reshape(shape)
    return x if bias is None else x + widen(bias).reshape(shape)


def _grad_through_moments(g: Array, normed: Array, rstd: Array, axes: tuple[int, ...]) -> Array:
    """Gradient of ``(x - mean) * rstd`` in x, where mean and rstd are taken over ``axes``."""
    mean_g = jnp.mean(g, axes, keepdims=True)
    mean_gx = jnp.mean(g * normed, axes, keepdims=True)
    return rstd * (g - mean_g - normed * mean_gx)


def _inner_axes(x: Array, normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(normalized_shape), x.ndim))


def _outer_sum(x: Array, normalized_shape: tuple[int, ...]) -> Array:
    return jnp.sum(x, tuple(range(x.ndim - len(normalized_shape)))).reshape(tuple(normalized_shape))


@lower("aten::native_layer_norm")
def aten_native_layer_norm(
    ctx: RuleContext, input: Array, normalized_shape: tuple[int, ...], weight: Array | None, bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    """aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    x = widen(input)
    mean, var = _moments(x, _inner_axes(x, normalized_shape))
    rstd = lax.rsqrt(var + number(eps, var))
    return _affine((x - mean) * rstd, weight, bias, tuple(normalized_shape)), mean, rstd


@lower("aten::native_layer_norm_backward")
def aten_native_layer_norm_backward(
    ctx: RuleContext, grad_out: Array, input: Array, normalized_shape: tuple[int, ...], mean: Array, rstd: Array,
    weight: Array | None, bias: Array | None, output_mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    g, x = widen(grad_out), widen(input)
    axes = _inner_axes(x, normalized_shape)
    stat_shape = x.shape[: axes[0]] + (1,) * len(axes)
    mean, rstd = widen(mean).reshape(stat_shape), widen(rstd).reshape(stat_shape)
    normed = (x - mean) * rstd
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = _affine(g, weight, None, tuple(normalized_shape))
        grad_input = _grad_through_moments(scaled, normed, rstd, axes)
    if output_mask[1]:
        grad_weight = _outer_sum(g * normed, normalized_shape)
    if output_mask[2]:
        grad_bias = _outer_sum(g, normalized_shape)
    return grad_input, grad_weight, grad_bias


@lower("aten::_fused_rms_norm")
def aten__fused_rms_norm(
    ctx: RuleContext, input: Array, normalized_shape: tuple[int, ...], weight: Array | None, eps: float | None
) -> tuple[Array, Array]:
    """aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)"""
    x = widen(input)
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    mean_square = jnp.mean(jnp.square(x), _inner_axes(x, normalized_shape), keepdims=True)
    rstd = lax.rsqrt(mean_square + number(eps, x))
    return _affine(x * rstd, weight, None, tuple(normalized_shape)), rstd


@lower("aten::_fused_rms_norm_backward")
def aten__fused_rms_norm_backward(
    ctx: RuleContext, grad_out: Array, input: Array, normalized_shape: tuple[int, ...], rstd: Array,
    weight: Array | None, output_mask: Mask,
) -> tuple[Array | None, Array | None]:
    """aten::_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)"""  # noqa: E501
    g, x = widen(grad_out), widen(input)
    axes = _inner_axes(x, normalized_shape)
    rstd = widen(rstd).reshape(x.shape[: axes[0]] + (1,) * len(axes))
    normed = x * rstd
    grad_input = grad_weight = None
    if output_mask[0]:
        scaled = _affine(g, weight, None, tuple(normalized_shape))
        grad_input = rstd * (scaled - normed * jnp.mean(scaled * normed, axes, keepdims=True))
    if output_mask[1] and weight is not None:
        grad_weight = _outer_sum(g * normed, normalized_shape)
    return grad_input, grad_weight


@lower("aten::native_group_norm")
def aten_native_group_norm(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, N: int, C: int, HxW: int,
    group: int, eps: float,
) -> tuple[Array, Array, Array]:
    """aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    x = widen(input).reshape(N, group, C // group, HxW)
    mean, var = _moments(x, (2, 3))
    rstd = lax.rsqrt(var + number(eps, var))
    out = _affine((x - mean) * rstd, weight, bias, (1, group, C // group, 1))
    return out.reshape(input.shape), mean.reshape(N, group), rstd.reshape(N, group)


@lower("aten::native_group_norm_backward")
def aten_native_group_norm_backward(
    ctx: RuleContext, grad_out: Array, input: Array, mean: Array, rstd: Array, weight: Array | None, N: int, C: int,
    HxW: int, group: int, output_mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    grouped = (N, group, C // group, HxW)
    g, x = widen(grad_out).reshape(grouped), widen(input).reshape(grouped)
    mean, rstd = (widen(s).reshape(N, group, 1, 1) for s in (mean, rstd))
    normed = (x - mean) * rstd
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = _affine(g, weight, None, (1, group, C // group, 1))
        grad_input = _grad_through_moments(scaled, normed, rstd, (2, 3)).reshape(input.shape)
    if output_mask[1]:
        grad_weight = jnp.sum(g * normed, (0, 3)).reshape(C)
    if output_mask[2]:
        grad_bias = jnp.sum(g, (0, 3)).reshape(C)
    return grad_input, grad_weight, grad_bias


def _channels(x: Array) -> tuple[int, ...]:
    """The shape in which a vector of channels broadcasts against ``x``."""
    return (1, -1) + (1,) * (x.ndim - 2)


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _batch_norm(
    input: Array, weight: Array | None, bias: Array | None, running_mean: Array | None, running_var: Array | None,
    training: bool, momentum: Scalar, eps: float,
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """Output, mean and inverse deviation used, and the new running statistics."""
    x = widen(input)
    shape = _channels(x)
    if training:
        mean, var = _moments(x, _all_but_channels(x))
        flat_mean, flat_var = mean.reshape(-1), var.reshape(-1)
        count = x.size // x.shape[1] if x.shape[1] else 0
        if running_mean is not None:
            running_mean = _running(running_mean, flat_mean, momentum)
        if running_var is not None:
            # The running variance is unbiased, the one that normalises is not.
            unbiased = flat_var * (count / (count - 1) if count > 1 else math.nan)
            running_var = _running(running_var, unbiased, momentum)
    else:
        assert running_mean is not None and running_var is not None
        mean, var = widen(running_mean).reshape(shape), widen(running_var).reshape(shape)
    rstd = lax.rsqrt(var + number(eps, var))
    out = _affine((x - mean) * rstd, weight, bias, shape)
    return out, mean.reshape(-1), rstd.reshape(-1), running_mean, running_var


def _running(old: Array, new: Array, momentum: Scalar) -> Array:
    momentum = number(momentum, new)
    return (1 - momentum) * widen(old) + momentum * new


@lower("aten::batch_norm_update_stats")
def aten_batch_norm_update_stats(
    ctx: RuleContext, input: Array, running_mean: Array | None, running_var: Array | None, momentum: Scalar
) -> tuple[Array, ...]:
    """aten::batch_norm_update_stats(Tensor input, Tensor? running_mean, Tensor? running_var, float momentum) -> (Tensor, Tensor)

    Mean and biased variance; and, which the schema hides, the new running statistics if there are old ones.
    """
    _, mean, _, *new = _batch_norm(input, None, None, running_mean, running_var, True, momentum, 0.0)
    var = _moments(widen(input), _all_but_channels(input))[1].reshape(-1)
    return mean, var, *(statistic for statistic in new if statistic is not None)


def _saved(ctx: RuleContext, index: int, value: Array) -> Array:
    """A saved statistic, or an empty tensor where PyTorch saves none (outside of training)."""
    shape = ctx.outputs[index].shape
    return value if value.shape == shape else jnp.zeros(shape, value.dtype)


@lower("aten::native_batch_norm")
def aten_native_batch_norm(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, running_mean: Array | None,
    running_var: Array | None, training: bool, momentum: Scalar, eps: float,
) -> tuple[Array, Array, Array]:
    """aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)

    The schema hides that the running statistics are updated: with them and in training, the recorder must use
    ``_native_batch_norm_legit_functional`` and write its last two results back.
    """  # noqa: E501
    out, mean, rstd, _, _ = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return out, _saved(ctx, 1, mean), _saved(ctx, 2, rstd)


@lower("aten::_native_batch_norm_legit_functional")
def aten__native_batch_norm_legit_functional(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, running_mean: Array,
    running_var: Array, training: bool, momentum: Scalar, eps: float,
) -> tuple[Array, Array, Array, Array, Array]:
    """aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)"""  # noqa: E501
    out, mean, rstd, new_mean, new_var = _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    assert new_mean is not None and new_var is not None
    return out, _saved(ctx, 1, mean), _saved(ctx, 2, rstd), new_mean, new_var


@lower("aten::_native_batch_norm_legit.no_stats")
def aten__native_batch_norm_legit_no_stats(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, training: bool, momentum: Scalar,
    eps: float,
) -> tuple[Array, Array, Array]:
    """aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    return _batch_norm(input, weight, bias, None, None, True, momentum, eps)[:3]


@lower("aten::_native_batch_norm_legit_no_training")
def aten__native_batch_norm_legit_no_training(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, running_mean: Array,
    running_var: Array, momentum: Scalar, eps: float,
) -> tuple[Array, Array, Array]:
    """aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    return aten_native_batch_norm(ctx, input, weight, bias, running_mean, running_var, False, momentum, eps)


@lower("aten::_batch_norm_with_update_functional")
def aten__batch_norm_with_update_functional(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, running_mean: Array,
    running_var: Array, momentum: Scalar, eps: float,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """aten::_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)"""  # noqa: E501
    out, mean, rstd, new_mean, new_var = _batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    assert new_mean is not None and new_var is not None
    return out, mean, rstd, _no_reserve(ctx), new_mean, new_var


@lower("aten::_batch_norm_no_update")
def aten__batch_norm_no_update(
    ctx: RuleContext, input: Array, weight: Array | None, bias: Array | None, running_mean: Array | None,
    running_var: Array | None, momentum: Scalar, eps: float,
) -> tuple[Array, Array, Array, Array]:
    """aten::_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)"""  # noqa: E501
    saved = aten_native_batch_norm(ctx, input, weight, bias, running_mean, running_var, False, momentum, eps)
    return *saved, _no_reserve(ctx)


def _no_reserve(ctx: RuleContext) -> Array:
    """The workspace that only cuDNN fills."""
    return jnp.zeros(ctx.outputs[3].shape, ctx.outputs[3].dtype)


@lower("aten::native_batch_norm_backward")
def aten_native_batch_norm_backward(
    ctx: RuleContext, grad_out: Array, input: Array, weight: Array | None, running_mean: Array | None,
    running_var: Array | None, save_mean: Array | None, save_invstd: Array | None, train: bool, eps: float,
    output_mask: Mask,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    g, x = widen(grad_out), widen(input)
    shape, axes = _channels(x), _all_but_channels(x)
    if train:
        assert save_mean is not None and save_invstd is not None
        mean, rstd = widen(save_mean).reshape(shape), widen(save_invstd).reshape(shape)
    else:
        assert running_mean is not None and running_var is not None
        mean, var = widen(running_mean).reshape(shape), widen(running_var).reshape(shape)
        rstd = lax.rsqrt(var + number(eps, var))
    normed = (x - mean) * rstd
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        # The weight is constant over the axes of the statistics, so it can multiply at the end, once a channel.
        scale = rstd if weight is None else rstd * widen(weight).reshape(shape)
        grad_input = _grad_through_moments(g, normed, scale, axes) if train else g * scale
    if output_mask[1]:
        grad_weight = jnp.sum(g * normed, axes)
    if output_mask[2]:
        grad_bias = jnp.sum(g, axes)
    return grad_input, grad_weight, grad_bias


@lower("aten::batch_norm_backward")
def aten_batch_norm_backward(
    ctx: RuleContext, grad_out: Array, input: Array, weight: Array, running_mean: Array | None,
    running_var: Array | None, save_mean: Array | None, save_var: Array | None, update: bool, eps: float,
    output_mask: Mask, reserve: Array,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::batch_norm_backward(Tensor grad_out, Tensor input, Tensor weight, Tensor? running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_var, bool update, float eps, bool[3] output_mask, Tensor reserve) -> (Tensor, Tensor, Tensor)

    ``save_var`` holds the inverse deviation, as the forward operators above return it.
    """  # noqa: E501
    return aten_native_batch_norm_backward(
        ctx, grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask)


@lower("aten::_weight_norm_interface_backward")
def aten__weight_norm_interface_backward(
    ctx: RuleContext, grad_w: Array, saved_v: Array, saved_g: Array, saved_norms: Array, dim: int
) -> tuple[Array, Array]:
    """aten::_weight_norm_interface_backward(Tensor grad_w, Tensor saved_v, Tensor saved_g, Tensor saved_norms, int dim) -> (Tensor, Tensor)

    Of w = g v / |v|, where the norm is over every dimension but ``dim``.
    """  # noqa: E501
    grad, v, g = widen(grad_w), widen(saved_v), widen(saved_g)
    norms = widen(saved_norms).reshape(g.shape)
    others = tuple(d for d in range(v.ndim) if d != dim % v.ndim)
    along = jnp.sum(grad * v, axis=others, keepdims=True) / norms
    return g / norms * (grad - v * (along / norms)), along
