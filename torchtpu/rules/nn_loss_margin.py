"""Margin losses over classes, and their gradients. Rows are samples; a single sample may come as a vector.

Shapes: self [N, D], [D] or []; target [N] (multi_margin) or as self (multilabel_margin).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._wide import MEAN, NONE, SUM, number, reduce_loss, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1] if x.ndim else 1)


def _chained(grad: Array, grad_output: Array, reduction: int) -> Array:
    """A gradient of each row's loss, chained with that of the reduction and of the mean over classes."""
    size = grad.shape[1] * (grad.shape[0] if reduction == MEAN else 1)
    return grad * widen(grad_output).reshape(-1, 1) / size


@lower("aten::multi_margin_loss_backward")
def aten_multi_margin_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, p: float, margin: float, weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    """aten::multi_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, Scalar p, Scalar margin, Tensor? weight=None, int reduction=1) -> Tensor"""  # noqa: E501
    x_ND = _rows(widen(self))
    if x_ND.size == 0:
        return self
    hit = lax.broadcasted_iota(np.int32, x_ND.shape, 1) == target.reshape(-1, 1).astype(np.int32)
    distance = number(margin, x_ND) - jnp.sum(jnp.where(hit, x_ND, 0), 1, keepdims=True) + x_ND
    slope = jnp.where((distance > 0) & ~hit, jnp.ones_like(x_ND) if p == 1 else 2 * distance, 0)
    if weight is not None:
        slope = slope * jnp.sum(jnp.where(hit, widen(weight), 0), 1, keepdims=True)
    slope = jnp.where(hit, -jnp.sum(slope, 1, keepdims=True), slope)
    return _chained(slope, grad_output, reduction).reshape(self.shape)


def _labels(target: Array) -> Array:
    """For every sample, label and class whether that label is this class; labels end at the first negative one."""
    given_NJ = lax.cummin((_rows(target) >= 0).astype(np.int8), 1) > 0
    label_NJ = jnp.where(given_NJ, _rows(target).astype(np.int32), -1)
    return label_NJ[:, :, None] == lax.iota(np.int32, label_NJ.shape[1])


def _distances(x_ND: Array, is_NJD: Array) -> Array:
    """By how much each class comes too near to each label; not positive where it is a label itself."""
    label_NJ1 = jnp.sum(jnp.where(is_NJD, x_ND[:, None, :], 0), 2, keepdims=True)
    counts = jnp.any(is_NJD, 2, keepdims=True) & ~jnp.any(is_NJD, 1, keepdims=True)
    return jnp.where(counts, 1 - label_NJ1 + x_ND[:, None, :], 0)


@lower("aten::multilabel_margin_loss_forward")
def aten_multilabel_margin_loss_forward(ctx: RuleContext, self: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    """aten::multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor output, Tensor is_target)

    PyTorch's decomposition counts the first class once for every label that is not given.
    """
    x_ND, is_NJD = _rows(widen(self)), _labels(target)
    loss = jnp.sum(jnp.maximum(_distances(x_ND, is_NJD), 0), (1, 2)) / x_ND.shape[1]
    kept = reduction if ctx.out_shape or reduction != NONE else SUM
    return reduce_loss(loss, kept), jnp.any(is_NJD, 1).reshape(target.shape)


@lower("aten::multilabel_margin_loss_backward")
def aten_multilabel_margin_loss_backward(
    ctx: RuleContext, grad_output: Array, self: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    """aten::multilabel_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, Tensor is_target) -> Tensor"""  # noqa: E501
    x_ND, is_NJD = _rows(widen(self)), _labels(target)
    near = (_distances(x_ND, is_NJD) > 0).astype(x_ND.dtype)
    slope = jnp.sum(near, 1) - jnp.sum(jnp.where(is_NJD, jnp.sum(near, 2, keepdims=True), 0), 1)
    return _chained(slope, grad_output, reduction).reshape(self.shape)
