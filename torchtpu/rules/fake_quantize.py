"""Fake quantisation: rounding to a grid of integers and back, for training that knows of it, and the gradients.

ATen keeps scales in float32 whatever the data, and rounds halves to the even neighbour.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import Scalar, cast, constant
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _places(x: Array, scale: Array, zero_point: Array) -> Array:
    """Places on the grid, still without bounds; whole numbers in the dtype of ``x``."""
    inverse = constant(1, np.float32) / scale
    return cast(zero_point, x.dtype) + jnp.round(x * cast(inverse, x.dtype))


def _bounded(places: Array, low: int, high: int) -> Array:
    """Places within the bounds; NaN goes to the lower one."""
    least = constant(low, places.dtype)
    return jnp.where(places > least, jnp.minimum(places, constant(high, places.dtype)), least)


def _values(places: Array, scale: Array, zero_point: Array) -> Array:
    return cast(places - cast(zero_point, places.dtype), np.float32) * scale


def _inside(places: Array, low: int, high: int) -> Array:
    return (places >= low) & (places <= high)


def _quantized(x: Array, scale: Array, zero_point: Array, low: int, high: int) -> tuple[Array, Array]:
    """Values on the grid, and which of them lay within its bounds."""
    x, scale = widen(x), cast(scale, np.float32)
    places = _places(x, scale, zero_point)
    return _values(_bounded(places, low, high), scale, zero_point), _inside(places, low, high)


def _along(x: Array, parameter: Array, axis: int) -> Array:
    """One parameter a channel, to be broadcast with ``x``."""
    return parameter.reshape([-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)])


def _learned_zero_point(zero_point: Array, low: int, high: int) -> Array:
    """It is trained as a float, and used as a whole number within the bounds."""
    return jnp.clip(jnp.round(cast(zero_point, np.float32)), constant(low, np.float32), constant(high, np.float32))


@lower("aten::fake_quantize_per_tensor_affine_cachemask")
def aten_fake_quantize_per_tensor_affine_cachemask(
    ctx: RuleContext, self: Array, scale: Scalar, zero_point: Scalar, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """aten::fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> (Tensor output, Tensor mask)"""  # noqa: E501
    return _quantized(self, jnp.asarray(cast(scale, np.float32)), zero_point, quant_min, quant_max)


@lower("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def aten__fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
    ctx: RuleContext, self: Array, scale: Array, zero_point: Array, fake_quant_enabled: Array, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)"""  # noqa: E501
    enabled = fake_quant_enabled.reshape(-1)[0] != 0
    out, mask = _quantized(self, scale.reshape(-1)[0], zero_point.reshape(-1)[0], quant_min, quant_max)
    return jnp.where(enabled, cast(out, self.dtype), self), mask | ~enabled


@lower("aten::fake_quantize_per_channel_affine_cachemask")
def aten_fake_quantize_per_channel_affine_cachemask(
    ctx: RuleContext, self: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """aten::fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> (Tensor output, Tensor mask)

    Zero points that are floats are added before the rounding.

    Differs: an infinity goes to the bound on its side; on the CPU either one goes to the lower bound.
    """  # noqa: E501
    scale, zero_point = (_along(self, parameter, axis) for parameter in (scale, zero_point))
    if jnp.issubdtype(zero_point.dtype, jnp.integer):
        return _quantized(self, scale, zero_point, quant_min, quant_max)
    x, scale = widen(self), cast(scale, np.float32)
    places = jnp.round(x * cast(constant(1, np.float32) / scale, x.dtype) + cast(zero_point, x.dtype))
    return _values(_bounded(places, quant_min, quant_max), scale, zero_point), _inside(places, quant_min, quant_max)


@lower("aten::_fake_quantize_learnable_per_tensor_affine")
def aten__fake_quantize_learnable_per_tensor_affine(
    ctx: RuleContext, self: Array, scale: Array, zero_point: Array, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Array:
    """aten::_fake_quantize_learnable_per_tensor_affine(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, float grad_factor=1.) -> Tensor"""  # noqa: E501
    zero_point = _learned_zero_point(zero_point.reshape(-1)[0], quant_min, quant_max)
    return _quantized(self, scale.reshape(-1)[0], zero_point, quant_min, quant_max)[0]


@lower("aten::_fake_quantize_learnable_per_channel_affine")
def aten__fake_quantize_learnable_per_channel_affine(
    ctx: RuleContext, self: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int,
    grad_factor: float = 1.0,
) -> Array:
    """aten::_fake_quantize_learnable_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max, float grad_factor=1.) -> Tensor"""  # noqa: E501
    zero_point = _along(self, _learned_zero_point(zero_point, quant_min, quant_max), axis)
    return _quantized(self, _along(self, scale, axis), zero_point, quant_min, quant_max)[0]


def _learned_gradients(
    grad: Array, x: Array, scale: Array, zero_point: Array, low: int, high: int, factor: float
) -> tuple[Array, Array, Array]:
    """In the argument, and by element in scale and zero point (Esser and others, Learned Step Size Quantization, 2020)."""
    grad, x, scale = widen(grad), widen(x), cast(scale, np.float32)
    zero_point = _learned_zero_point(zero_point, low, high)
    places = _places(x, scale, zero_point)
    inside, zero = _inside(places, low, high), constant(0, grad.dtype)
    bound = cast(jnp.where(places < low, constant(low, np.float32), constant(high, np.float32)) - zero_point, grad.dtype)
    rounding = (cast(_values(places, scale, zero_point), x.dtype) - x) / cast(scale, x.dtype)
    weighted = grad * constant(factor, grad.dtype)
    in_scale = weighted * jnp.where(inside, rounding, bound)
    in_zero_point = jnp.where(inside, zero, -weighted * cast(scale, grad.dtype))
    return jnp.where(inside, grad, zero), in_scale, in_zero_point


@lower("aten::_fake_quantize_learnable_per_tensor_affine_backward")
def aten__fake_quantize_learnable_per_tensor_affine_backward(
    ctx: RuleContext, grad: Array, self: Array, scale: Array, zero_point: Array, quant_min: int, quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Array, Array, Array]:
    """aten::_fake_quantize_learnable_per_tensor_affine_backward(Tensor grad, Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, float grad_factor=1.) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    in_x, *others = _learned_gradients(
        grad, self, scale.reshape(-1)[0], zero_point.reshape(-1)[0], quant_min, quant_max, grad_factor)
    in_scale, in_zero_point = (jnp.sum(other).reshape(1) for other in others)
    return in_x, in_scale, in_zero_point


@lower("aten::_fake_quantize_learnable_per_channel_affine_backward")
def aten__fake_quantize_learnable_per_channel_affine_backward(
    ctx: RuleContext, grad: Array, self: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Array, Array, Array]:
    """aten::_fake_quantize_learnable_per_channel_affine_backward(Tensor grad, Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max, float grad_factor=1.) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    in_x, *others = _learned_gradients(
        grad, self, _along(self, scale, axis), _along(self, zero_point, axis), quant_min, quant_max, grad_factor)
    rest = tuple(dim for dim in range(self.ndim) if dim != axis % self.ndim)
    in_scale, in_zero_point = (jnp.sum(other, rest) for other in others)
    return in_x, in_scale, in_zero_point
