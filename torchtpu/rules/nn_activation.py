"""Activations and their gradients. All compute in float32 for 16-bit floats, as ATen does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.rules._exponentials import expm1
from torchtpu.rules._wide import number, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower, lower_table

Array = jax.Array
Scalar = Any

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
# Constants of the tanh form of GELU (Hendrycks and Gimpel, 2016).
_GELU_K = math.sqrt(2.0 / math.pi)
_GELU_C = 0.044715


def _silu(x: Array) -> Array:
    return x * lax.logistic(x)


def _silu_grad(g: Array, x: Array) -> Array:
    s = lax.logistic(x)
    return g * jnp.conj(s * (1 + x * (1 - s)))


def _mish_parts(x: Array) -> tuple[Array, Array]:
    """The square of 1 + exp(x), less one, and that plus two: their ratio is the hyperbolic tangent of softplus, one far right."""
    e = jnp.exp(jnp.minimum(x, 20))
    less = e * (e + 2)
    return less, less + 2


def _mish(x: Array) -> Array:
    less, more = _mish_parts(x)
    return x * (less / more)


def _mish_grad(g: Array, x: Array) -> Array:
    less, more = _mish_parts(x)
    left = jnp.where(x > 20, 0, 4 * (less + 1) / more / more)  # by the square of the tangent, of one
    return g * (less / more + x * lax.logistic(x) * left)


def _hardswish_grad(g: Array, x: Array) -> Array:
    return jnp.where(x <= -3, 0, jnp.where(x < 3, g * (x / 3 + 0.5), g))  # at NaN the gradient passes, as in ATen


def _hardsigmoid_grad(g: Array, x: Array) -> Array:
    return jnp.where((x > -3) & (x < 3), g / 6, 0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "aten::relu": lambda x: jnp.where(x < 0, 0, x),  # minus zero stays, as NaN does
    "aten::silu": _silu,
    "aten::mish": _mish,
    "aten::hardswish": lambda x: x * jnp.clip(x + 3, 0, 6) / 6,
    "aten::hardsigmoid": lambda x: jnp.clip(x + 3, 0, 6) / 6,
}

# The second argument is what the operator saved: its input, or its output for sigmoid and tanh.
GRADIENTS: dict[str, Callable[[Array, Array], Array]] = {
    "aten::silu_backward": _silu_grad,
    "aten::mish_backward": _mish_grad,
    "aten::hardswish_backward": _hardswish_grad,
    "aten::hardsigmoid_backward": _hardsigmoid_grad,
    "aten::sigmoid_backward": lambda g, y: g * jnp.conj(1 - y) * jnp.conj(y),
    "aten::tanh_backward": lambda g, y: g * jnp.conj((1 - y) * (1 + y))  # less is cancelled than of 1 - y * y,
}


def _make_activation(function: Callable[[Array], Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array) -> Array:
        return function(widen(self))

    return rule


def _make_gradient(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, grad_output: Array, saved: Array) -> Array:
        return function(widen(grad_output), widen(saved))

    return rule


lower_table(ACTIVATIONS, _make_activation)
lower_table(GRADIENTS, _make_gradient)


@lower("aten::gelu")
def aten_gelu(ctx: RuleContext, self: Array, *, approximate: str = "none") -> Array:
    """aten::gelu(Tensor self, *, str approximate="none") -> Tensor"""
    x = widen(self)
    if approximate == "tanh":
        return x * lax.logistic(2 * _GELU_K * (x + _GELU_C * x * x * x))  # half of 1 + tanh, which would cancel
    return 0.5 * x * (1 + lax.erf(x * _SQRT_HALF))


@lower("aten::gelu_backward")
def aten_gelu_backward(ctx: RuleContext, grad_output: Array, self: Array, *, approximate: str = "none") -> Array:
    """aten::gelu_backward(Tensor grad_output, Tensor self, *, str approximate="none") -> Tensor"""
    g, x = widen(grad_output), widen(self)
    if approximate == "tanh":
        inner, inner_grad = 2 * _GELU_K * (x + _GELU_C * x * x * x), 2 * _GELU_K * (1 + 3 * _GELU_C * x * x)
        return g * (lax.logistic(inner) * (1 + x * lax.logistic(-inner) * inner_grad))
    cdf = 0.5 * (1 + lax.erf(x * _SQRT_HALF))
    return g * (cdf + x * jnp.exp(-0.5 * x * x) * _INV_SQRT_2PI)


@lower("aten::threshold")
def aten_threshold(ctx: RuleContext, self: Array, threshold: Scalar, value: Scalar) -> Array:
    """aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor"""
    x = widen(self)
    return jnp.where(x <= number(threshold, x), number(value, x), x)


@lower("aten::threshold_backward")
def aten_threshold_backward(ctx: RuleContext, grad_output: Array, self: Array, threshold: Scalar) -> Array:
    """aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor"""
    x = widen(self)
    return jnp.where(x <= number(threshold, x), jnp.zeros((), grad_output.dtype), grad_output)


@lower("aten::leaky_relu")
def aten_leaky_relu(ctx: RuleContext, self: Array, negative_slope: Scalar = 0.01) -> Array:
    """aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"""
    x = widen(self)
    return jnp.where(x > 0, x, x * number(negative_slope, x))


@lower("aten::leaky_relu_backward")
def aten_leaky_relu_backward(
    ctx: RuleContext, grad_output: Array, self: Array, negative_slope: Scalar, self_is_result: bool
) -> Array:
    """aten::leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result) -> Tensor"""
    g = widen(grad_output)
    return jnp.where(self > 0, g, g * number(negative_slope, g))


@lower("aten::elu")
def aten_elu(ctx: RuleContext, self: Array, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Array:
    """aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor"""
    x = widen(self)
    alpha, scale, input_scale = (number(s, x) for s in (alpha, scale, input_scale))
    return jnp.where(x < 0, expm1(x * input_scale) * (alpha * scale), x * scale)


@lower("aten::elu_backward")
def aten_elu_backward(
    ctx: RuleContext, grad_output: Array, alpha: Scalar, scale: Scalar, input_scale: Scalar,
    is_result: bool, self_or_result: Array,
) -> Array:
    """aten::elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor self_or_result) -> Tensor"""  # noqa: E501
    g, x = widen(grad_output), widen(self_or_result)
    alpha, scale, input_scale = (number(s, x) for s in (alpha, scale, input_scale))
    negative = x + alpha * scale if is_result else alpha * scale * jnp.exp(x * input_scale)
    return jnp.where(x <= 0, g * input_scale * negative, g * scale)  # at NaN the gradient passes, as in ATen


@lower("aten::hardtanh")
def aten_hardtanh(ctx: RuleContext, self: Array, min_val: Scalar = -1, max_val: Scalar = 1) -> Array:
    """aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"""
    x = widen(self)
    return jnp.minimum(jnp.maximum(x, number(min_val, x)), number(max_val, x))


@lower("aten::hardtanh_backward")
def aten_hardtanh_backward(
    ctx: RuleContext, grad_output: Array, self: Array, min_val: Scalar, max_val: Scalar
) -> Array:
    """aten::hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val) -> Tensor"""
    x = widen(self)
    inside = (x > number(min_val, x)) & (x < number(max_val, x))
    return jnp.where(inside, grad_output, jnp.zeros((), grad_output.dtype))


@lower("aten::softplus")
def aten_softplus(ctx: RuleContext, self: Array, beta: Scalar = 1, threshold: Scalar = 20) -> Array:
    """aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor"""
    x = widen(self)
    scaled = x * number(beta, x)
    return jnp.where(scaled > number(threshold, x), x, jnp.log1p(jnp.exp(scaled)) / number(beta, x))


@lower("aten::softplus_backward")
def aten_softplus_backward(
    ctx: RuleContext, grad_output: Array, self: Array, beta: Scalar, threshold: Scalar
) -> Array:
    """aten::softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) -> Tensor"""
    g, x = widen(grad_output), widen(self)
    scaled = x * number(beta, x)
    return jnp.where(scaled > number(threshold, x), g, g * lax.logistic(scaled))


@lower("aten::log_sigmoid_forward")
def aten_log_sigmoid_forward(ctx: RuleContext, self: Array) -> tuple[Array, Array]:
    """aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)"""
    x = widen(self)
    z = jnp.exp(-jnp.abs(x))
    buffer = z if ctx.outputs[1].size == x.size else jnp.zeros(ctx.outputs[1].shape, x.dtype)
    return jnp.minimum(x, 0) - jnp.log1p(z), buffer


@lower("aten::log_sigmoid_backward")
def aten_log_sigmoid_backward(ctx: RuleContext, grad_output: Array, self: Array, buffer: Array) -> Array:
    """aten::log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor

    The buffer is recomputed, which is cheaper than keeping it from the forward pass.
    """
    return widen(grad_output) * lax.logistic(-widen(self))


@lower("aten::glu")
def aten_glu(ctx: RuleContext, self: Array, dim: int = -1) -> Array:
    """aten::glu(Tensor self, int dim=-1) -> Tensor"""
    a, b = jnp.split(widen(self), 2, axis=dim)
    return a * lax.logistic(b)


@lower("aten::glu_backward")
def aten_glu_backward(ctx: RuleContext, grad_output: Array, self: Array, dim: int) -> Array:
    """aten::glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor"""
    g = widen(grad_output)
    a, b = jnp.split(widen(self), 2, axis=dim)
    s = lax.logistic(b)
    return jnp.concatenate([g * s, g * a * s * (1 - s)], axis=dim)


@lower("aten::glu_jvp")
def aten_glu_jvp(ctx: RuleContext, glu: Array, x: Array, dx: Array, dim: int) -> Array:
    """aten::glu_jvp(Tensor glu, Tensor x, Tensor dx, int dim) -> Tensor"""
    (_, gate), (da, dgate) = (jnp.split(widen(v), 2, axis=dim) for v in (x, dx))
    s = lax.logistic(gate)
    return da * s + widen(glu) * (1 - s) * dgate


@lower("aten::glu_backward_jvp")
def aten_glu_backward_jvp(
    ctx: RuleContext, grad_x: Array, grad_glu: Array, x: Array, dgrad_glu: Array, dx: Array, dim: int
) -> Array:
    """aten::glu_backward_jvp(Tensor grad_x, Tensor grad_glu, Tensor x, Tensor dgrad_glu, Tensor dx, int dim) -> Tensor

    ``grad_x``, what ``glu_backward`` returned, is not needed.
    """
    at, along = (widen(grad_glu), widen(x)), (widen(dgrad_glu), widen(dx))
    return jax.jvp(lambda g, y: aten_glu_backward(ctx, g, y, dim), at, along)[1]


@lower("aten::_prelu_kernel")
def aten__prelu_kernel(ctx: RuleContext, self: Array, weight: Array) -> Array:
    """aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor"""
    x, w = widen(self), widen(weight)
    return jnp.where(x > 0, x, w * x)


@lower("aten::_prelu_kernel_backward")
def aten__prelu_kernel_backward(
    ctx: RuleContext, grad_output: Array, self: Array, weight: Array
) -> tuple[Array, Array]:
    """aten::_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)"""
    g, x, w = widen(grad_output), widen(self), widen(weight)
    return jnp.where(x > 0, g, w * g), jnp.where(x > 0, 0, x * g)


@lower("aten::hardshrink")
def aten_hardshrink(ctx: RuleContext, self: Array, lambd: Scalar = 0.5) -> Array:
    """aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor"""
    x = widen(self)
    limit = number(lambd, x)
    return jnp.where((x >= -limit) & (x <= limit), 0, x)


@lower("aten::softshrink")
def aten_softshrink(ctx: RuleContext, self: Array, lambd: Scalar = 0.5) -> Array:
    """aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor"""
    x = widen(self)
    limit = number(lambd, x)
    # Written so that NaN passes through.
    return jnp.where((x >= -limit) & (x <= limit), 0, x - jnp.sign(x) * limit)


@lower("aten::hardshrink_backward", "aten::softshrink_backward")
def aten_shrink_backward(ctx: RuleContext, grad: Array, self: Array, lambd: Scalar) -> Array:
    """The gradient of both shrink functions: it passes outside of [-lambd, lambd]."""
    x = widen(self)
    limit = number(lambd, x)
    return jnp.where((x < -limit) | (x > limit), grad, jnp.zeros((), grad.dtype))


@lower("aten::logit_backward")
def aten_logit_backward(ctx: RuleContext, grad_output: Array, self: Array, eps: float | None = None) -> Array:
    """aten::logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor"""
    g, x = widen(grad_output), widen(self)
    inside = g / (x * (1 - x))
    if eps is None:
        return jnp.where((x < 0) | (x > 1), jnp.nan, inside)
    low = number(eps, x)
    return jnp.where((x < low) | (x > 1 - low), 0, inside)


@lower("aten::rrelu_with_noise_backward")
def aten_rrelu_with_noise_backward(
    ctx: RuleContext, grad_output: Array, self: Array, noise: Array, lower: Scalar, upper: Scalar,
    training: bool, self_is_result: bool,
) -> Array:
    """aten::rrelu_with_noise_backward(Tensor grad_output, Tensor self, Tensor noise, Scalar lower, Scalar upper, bool training, bool self_is_result) -> Tensor"""  # noqa: E501
    g = widen(grad_output)
    if training:
        return g * widen(noise)
    slope = (number(lower, g) + number(upper, g)) / 2
    return jnp.where(self > 0, g, g * slope)
