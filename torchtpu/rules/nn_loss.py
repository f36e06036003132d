"""Losses and their gradients.

The class axis of the negative log-likelihood is never gathered from or scattered to: comparing it with an iota fuses
into the log-softmax beside it, works on a sharded class axis, and makes the gradient one elementwise pass. A
vocabulary of 50,000 is no exception: the log-softmax and its gradient read the whole row anyway.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.rules._wide import MEAN, NONE, number, reduce_loss, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array


def _class_axis(logp: Array) -> int:
    return 1 if logp.ndim > 1 else 0


def _target_index(logp: Array, target: Array, ignore_index: int) -> tuple[Array, Array, Array]:
    """The class of every row (-1 of ignored ones), the ignored rows, and the rows with a bad target."""
    axis = _class_axis(logp)
    target = target.reshape(logp.shape[:axis] + logp.shape[axis + 1:])
    ignored = target == ignore_index
    bad = ~ignored & ((target < 0) | (target >= logp.shape[axis]))
    return jnp.where(ignored, -1, target.astype(jnp.int32)), ignored, bad


def _target_mask(logp: Array, index: Array) -> Array:
    """One-hot along the class axis; of no class where the index is -1."""
    axis = _class_axis(logp)
    return lax.broadcasted_iota(jnp.int32, logp.shape, axis) == jnp.expand_dims(index, axis)


def _at_targets(x: Array, index: Array) -> Array:
    """The element of each row at its target; zero where the index is -1.

    A TPU sums under a mask, in the loop that makes ``x``. XLA:CPU would write the masked matrix to memory: there it is a gather.
    """
    axis = _class_axis(x)

    def masked(x: Array, index: Array) -> Array:
        return jnp.sum(jnp.where(_target_mask(x, index), x, 0), axis)

    def gathered(x: Array, index: Array) -> Array:
        found = jnp.take_along_axis(x, jnp.expand_dims(index, axis), axis, mode="clip")
        return jnp.where(index < 0, 0, jnp.squeeze(found, axis))

    return lax.platform_dependent(x, index, tpu=masked, default=gathered) if x.size else masked(x, index)


def _class_weight(logp: Array, weight: Array) -> Array:
    """Class weights, shaped to broadcast against the log-probabilities."""
    return widen(weight).reshape((-1,) + (1,) * max(logp.ndim - 2, 0))


@lower("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def aten_nll_loss_forward(
    ctx: RuleContext, self: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    """Negative log-likelihood of classes (axis 1, or the only axis), with the total weight that a mean divides by.

    Differs: a target outside of the classes makes the loss NaN, where PyTorch raises.
    """
    x = widen(self)
    index, ignored, bad = _target_index(x, target, ignore_index)
    weighted = x if weight is None else x * _class_weight(x, weight)
    loss = jnp.where(bad, jnp.nan, -_at_targets(weighted, index))
    if reduction == NONE and x.ndim > 1:
        return loss, jnp.zeros((), x.dtype)
    if weight is None:
        total = jnp.sum(~ignored, dtype=jnp.int32).astype(x.dtype)
    else:
        total = jnp.sum(_at_targets(jnp.broadcast_to(_class_weight(x, weight), x.shape), index))
    loss = jnp.sum(loss)
    return (loss / total if reduction == MEAN else loss), total


@lower("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def aten_nll_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, weight: Array | None,
    reduction: int, ignore_index: int, total_weight: Array,
) -> Array:
    """Gradient of the negative log-likelihood: the negative class weight at the target, zero elsewhere."""
    x, g = widen(self), widen(grad_output)
    mask = _target_mask(x, _target_index(x, target, ignore_index)[0])
    if reduction == MEAN:
        g = g / widen(total_weight)
    if reduction == NONE and x.ndim > 1:
        g = jnp.expand_dims(g, 1)
    if weight is not None:
        g = g * _class_weight(x, weight)
    return jnp.where(mask, -g, 0)


def _loss_grad(reduction: int, size: int, grad_output: Array, grad: Array) -> Array:
    """Chain the gradient of an elementwise loss with that of its reduction."""
    grad = grad * widen(grad_output)
    return grad / size if reduction == MEAN and size else grad


@lower("aten::mse_loss")
def aten_mse_loss(ctx: RuleContext, self: Array, target: Array, reduction: int = MEAN) -> Array:
    """aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"""
    return reduce_loss(jnp.square(self.astype(ctx.compute_dtype) - target.astype(ctx.compute_dtype)), reduction)


@lower("aten::mse_loss_backward")
def aten_mse_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, reduction: int
) -> Array:
    """aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor"""
    diff = self.astype(ctx.compute_dtype) - target.astype(ctx.compute_dtype)
    return _loss_grad(reduction, diff.size, grad_output, 2 * diff)


@lower("aten::smooth_l1_loss")
def aten_smooth_l1_loss(
    ctx: RuleContext, self: Array, target: Array, reduction: int = MEAN, beta: float = 1.0
) -> Array:
    """aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> Tensor"""
    z = jnp.abs(self.astype(ctx.compute_dtype) - target.astype(ctx.compute_dtype))
    beta = number(beta, z)
    return reduce_loss(jnp.where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta), reduction)


@lower("aten::smooth_l1_loss_backward")
def aten_smooth_l1_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, reduction: int, beta: float
) -> Array:
    """aten::smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta) -> Tensor"""
    x = self.astype(ctx.compute_dtype) - target.astype(ctx.compute_dtype)
    beta = number(beta, x)
    grad = jnp.where(x <= -beta, -1, jnp.where(x >= beta, 1, x / beta))
    return _loss_grad(reduction, x.size, grad_output, grad)


@lower("aten::huber_loss")
def aten_huber_loss(ctx: RuleContext, self: Array, target: Array, reduction: int = MEAN, delta: float = 1.0) -> Array:
    """aten::huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.) -> Tensor"""
    z = jnp.abs(self.astype(ctx.compute_dtype) - target.astype(ctx.compute_dtype))
    delta = number(delta, z)
    return reduce_loss(jnp.where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta)), reduction)


@lower("aten::huber_loss_backward")
def aten_huber_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, reduction: int, delta: float
) -> Array:
    """aten::huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta) -> Tensor"""
    x = self.astype(ctx.compute_dtype) - target.astype(ctx.compute_dtype)
    delta = number(delta, x)
    return _loss_grad(reduction, x.size, grad_output, jnp.clip(x, -delta, delta))


@lower("aten::binary_cross_entropy")
def aten_binary_cross_entropy(
    ctx: RuleContext, self: Array, target: Array, weight: Array | None = None, reduction: int = MEAN
) -> Array:
    """aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor

    Logarithms are clamped at -100, as ATen does, so that a saturated probability costs a finite loss.
    """
    x, t = widen(self), widen(target)
    loss = (t - 1) * jnp.maximum(jnp.log1p(-x), -100) - t * jnp.maximum(jnp.log(x), -100)
    return reduce_loss(loss if weight is None else loss * widen(weight), reduction)


@lower("aten::binary_cross_entropy_backward")
def aten_binary_cross_entropy_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    """aten::binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor"""  # noqa: E501
    x, t = widen(self), widen(target)
    grad = (x - t) / jnp.maximum((1 - x) * x, 1e-12)
    return _loss_grad(reduction, x.size, grad_output, grad if weight is None else grad * widen(weight))


@lower("aten::binary_cross_entropy_with_logits")
def aten_binary_cross_entropy_with_logits(
    ctx: RuleContext, self: Array, target: Array, weight: Array | None = None, pos_weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    """aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor"""  # noqa: E501
    x, t = widen(self), widen(target)
    softplus = jnp.log1p(jnp.exp(-jnp.abs(x))) + jnp.maximum(-x, 0)
    if pos_weight is not None:
        softplus = softplus * (1 + (widen(pos_weight) - 1) * t)
    loss = (1 - t) * x + softplus
    return reduce_loss(loss if weight is None else loss * widen(weight), reduction)


@lower("aten::soft_margin_loss")
def aten_soft_margin_loss(ctx: RuleContext, self: Array, target: Array, reduction: int = MEAN) -> Array:
    """aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"""
    return reduce_loss(jnp.log1p(jnp.exp(-widen(target) * widen(self))), reduction)


@lower("aten::soft_margin_loss_backward")
def aten_soft_margin_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, reduction: int
) -> Array:
    """aten::soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor"""
    t = widen(target)
    return _loss_grad(reduction, self.size, grad_output, -t * lax.logistic(-t * widen(self)))
