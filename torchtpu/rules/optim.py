"""Fused optimizer steps and the two operators of gradient scaling.

Each rule is one formula applied to every parameter of the list; XLA fuses it into one pass over the parameter's arrays.
``found_inf`` leaves everything as it was, which a select does without a branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from torchtpu.rules._numbers import Scalar
from torchtpu.rules._wide import number, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array
Arrays = list[Array]


def _unscaled(grad: Array, grad_scale: Array | None) -> Array:
    g = widen(grad)
    return g if grad_scale is None else g / number(grad_scale, g)


def _unless(found_inf: Array | None, old: Array, new: Array) -> Array:
    """``new``, or ``old`` where the gradients held an infinity or a NaN."""
    if found_inf is None:
        return new
    return jnp.where(found_inf.reshape(()) == 1, old.astype(new.dtype), new)


def _one_minus(x: Scalar, like: Array) -> Any:
    """``1 - x``, subtracted before it is rounded to the dtype of ``like``: run-time numbers come as float64."""
    return number(1 - x, like)


def _one_minus_power(base: Scalar, exponent: Array) -> Array:
    """``1 - base ** exponent`` without the cancellation that a base near one suffers in float32.

    Only the difference from one needs more than float32: a TPU has no logarithm of float64.
    """
    return -jnp.expm1(exponent * jnp.log1p(-_one_minus(base, exponent)))


def _adam(decoupled_decay: bool) -> Callable[..., tuple[Arrays, ...]]:
    def rule(
        ctx: RuleContext, self: Arrays, grads: Arrays, exp_avgs: Arrays, exp_avg_sqs: Arrays, max_exp_avg_sqs: Arrays,
        state_steps: Arrays, *, lr: Scalar, beta1: Scalar, beta2: Scalar, weight_decay: Scalar, eps: Scalar,
        amsgrad: bool, maximize: bool, grad_scale: Array | None = None, found_inf: Array | None = None,
    ) -> tuple[Arrays, ...]:
        columns: tuple[Arrays, ...] = ([], [], [], [], [])
        for i, param in enumerate(self):
            grad = _unscaled(grads[i], grad_scale)
            old = (param, grads[i], exp_avgs[i], exp_avg_sqs[i], *(max_exp_avg_sqs[i: i + 1] if amsgrad else ()))
            p, avg, avg_sq = widen(param), widen(exp_avgs[i]), widen(exp_avg_sqs[i])
            g = -grad if maximize else grad
            rate, decay = number(lr, p), number(weight_decay, p)
            if decoupled_decay:
                p = p - rate * decay * p
            else:
                g = g + decay * p
            avg = avg + (g - avg) * _one_minus(beta1, p)
            avg_sq = number(beta2, p) * avg_sq + _one_minus(beta2, p) * g * g
            step = state_steps[i].reshape(()).astype(p.dtype)
            correction1, correction2 = _one_minus_power(beta1, step), _one_minus_power(beta2, step)
            largest = jnp.maximum(widen(max_exp_avg_sqs[i]), avg_sq) if amsgrad else avg_sq
            denominator = jnp.sqrt(largest) / jnp.sqrt(correction2) + number(eps, p)
            p = p - (rate / correction1) * avg / denominator
            new = (p, grads[i] if grad_scale is None else grad, avg, avg_sq, *((largest,) if amsgrad else ()))
            for column, before, after in zip(columns, old, new, strict=False):
                column.append(_unless(found_inf, before, after))
        return columns

    return rule


lower("aten::_fused_adam", "aten::_fused_adam.tensor_lr")(_adam(decoupled_decay=False))
lower("aten::_fused_adamw", "aten::_fused_adamw.tensor_lr")(_adam(decoupled_decay=True))


@lower("aten::_fused_sgd", "aten::_fused_sgd.tensor_lr")
def aten__fused_sgd(
    ctx: RuleContext, self: Arrays, grads: Arrays, momentum_buffer_list: Arrays, *, weight_decay: Scalar,
    momentum: Scalar, lr: Scalar, dampening: Scalar, nesterov: bool, maximize: bool, is_first_step: bool,
    grad_scale: Array | None = None, found_inf: Array | None = None,
) -> tuple[Arrays, ...]:
    """One step of stochastic gradient descent; without momentum the list of buffers is empty."""
    columns: tuple[Arrays, ...] = ([], [], [])
    for i, param in enumerate(self):
        grad = _unscaled(grads[i], grad_scale)
        p = widen(param)
        g = -grad if maximize else grad
        g = g + number(weight_decay, p) * p
        old, new = [param, grads[i]], [grads[i] if grad_scale is None else grad]
        if momentum_buffer_list:
            old.append(momentum_buffer_list[i])
            factor = number(momentum, p)
            buffer = g if is_first_step else factor * widen(old[-1]) + _one_minus(dampening, p) * g
            g = g + factor * buffer if nesterov else buffer
            new.append(buffer)
        new.insert(0, p - number(lr, p) * g)
        for column, before, after in zip(columns, old, new, strict=False):
            column.append(_unless(found_inf, before, after))
    return columns


@lower("aten::_fused_adagrad", "aten::_fused_adagrad.tensor_lr")
def aten__fused_adagrad(
    ctx: RuleContext, self: Arrays, grads: Arrays, state_sums: Arrays, state_steps: Arrays, *, lr: Scalar,
    lr_decay: Scalar, weight_decay: Scalar, eps: Scalar, maximize: bool, grad_scale: Array | None = None,
    found_inf: Array | None = None,
) -> tuple[Arrays, ...]:
    """One step of Adagrad; the overload with a number for ``lr`` returns the steps as well, unchanged."""
    columns: tuple[Arrays, ...] = ([], [], [])
    for i, param in enumerate(self):
        grad = _unscaled(grads[i], grad_scale)
        p = widen(param)
        g = (-grad if maximize else grad) + number(weight_decay, p) * p
        step = state_steps[i].reshape(()).astype(p.dtype)
        rate = number(lr, p) / (1 + (step - 1) * number(lr_decay, p))
        total = widen(state_sums[i]) + g * g
        new = (p - rate * g / (jnp.sqrt(total) + number(eps, p)), grads[i] if grad_scale is None else grad, total)
        for column, before, after in zip(columns, (param, grads[i], state_sums[i]), new, strict=True):
            column.append(_unless(found_inf, before, after))
    return columns if ctx.op.endswith(".tensor_lr") else (*columns, list(state_steps))


@lower("aten::_amp_foreach_non_finite_check_and_unscale")
def aten__amp_foreach_non_finite_check_and_unscale(
    ctx: RuleContext, self: Arrays, found_inf: Array, inv_scale: Array
) -> tuple[Arrays, Array]:
    """aten::_amp_foreach_non_finite_check_and_unscale(Tensor[] self, Tensor found_inf, Tensor inv_scale) -> (Tensor[] self_out, Tensor found_inf_out)"""  # noqa: E501
    found = found_inf.reshape(()) != 0
    scaled = []
    for grad in self:
        found = found | ~jnp.all(jnp.isfinite(grad))
        g = widen(grad)
        scaled.append(g * inv_scale.reshape(()).astype(g.dtype))
    return scaled, jnp.where(found, 1, found_inf.reshape(())).astype(found_inf.dtype).reshape(found_inf.shape)


@lower("aten::_amp_update_scale")
def aten__amp_update_scale(
    ctx: RuleContext, self: Array, growth_tracker: Array, found_inf: Array, scale_growth_factor: Scalar,
    scale_backoff_factor: Scalar, growth_interval: int,
) -> tuple[Array, Array]:
    """aten::_amp_update_scale(Tensor self, Tensor growth_tracker, Tensor found_inf, float scale_growth_factor, float scale_backoff_factor, int growth_interval) -> (Tensor, Tensor growth_tracker_out)

    A scale that would overflow when it grows stays as it is.
    """  # noqa: E501
    found = found_inf.reshape(()) != 0
    successes = growth_tracker + 1
    grows = successes == growth_interval
    grown = self * number(scale_growth_factor, self)
    grown = jnp.where(jnp.isfinite(grown), grown, self)
    scale = jnp.where(found, self * number(scale_backoff_factor, self), jnp.where(grows, grown, self))
    return scale, jnp.where(found | grows, 0, successes).astype(growth_tracker.dtype)
