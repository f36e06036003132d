"""Random numbers. Every draw takes its key from ``ctx.key()``; streams differ from PyTorch's, distributions do not.

Uniform numbers have as many random bits as the significand of their dtype, so that none rounds up to its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from torchtpu.rules._numbers import Scalar, cast, is_complex
from torchtpu.rules._wide import number, widen
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.registry import lower, lower_table

Array = jax.Array

_INT32_MAX = 2**31 - 1


def _digits(dtype: np.dtype) -> int:
    """Bits of the significand, the hidden one included: up to here every integer is exact."""
    return jnp.finfo(dtype).nmant + 1


def unit_uniform(key: Array, shape: tuple[int, ...], dtype: np.dtype, low: float = 0.0) -> Array:
    """Uniform numbers with the resolution of ``dtype``, in its compute dtype.

    Args:
        low: what to add to the integer behind each number: 0 gives [0, 1), 1 gives (0, 1].
    """
    digits = _digits(dtype)
    width = jnp.uint64 if digits > 24 else jnp.uint32
    bits = jax.random.bits(key, shape, width) >> (jnp.iinfo(width).bits - digits)
    wide = opmath(dtype)
    # The detour over a signed type is free, and its conversion to float is native on a TPU.
    signed = bits.astype(jnp.int64 if digits > 24 else jnp.int32)
    return (signed.astype(wide) + np.asarray(low, wide)) * np.asarray(2.0**-digits, wide)


def _normal(key: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    return jax.random.normal(key, shape, opmath(dtype))


def _uniform(ctx: RuleContext, low: Scalar, high: Scalar) -> Array:
    """Uniform over [low, high): what rounds to the end becomes the beginning, as on CUDA. Complex numbers are so in both parts."""
    if is_complex(ctx.out_dtype):
        parts = _uniform_of(ctx.key(), (2, *ctx.out_shape), np.finfo(ctx.out_dtype).dtype, low, high)
        return jax.lax.complex(parts[0], parts[1])
    return _uniform_of(ctx.key(), ctx.out_shape, ctx.out_dtype, low, high)


def _uniform_of(key: Array, shape: tuple[int, ...], dtype: np.dtype, low: Scalar, high: Scalar) -> Array:
    unit = unit_uniform(key, shape, dtype)
    low, high = number(low, unit), number(high, unit)
    value = (unit * (high - low) + low).astype(dtype)
    low, high = (jnp.asarray(x).astype(dtype) for x in (low, high))
    return jnp.where(value >= high, low, value)


@lower("aten::uniform")
def aten_uniform(ctx: RuleContext, self: Array, from_: Scalar = 0.0, to: Scalar = 1.0, **_: Any) -> Array:
    """aten::uniform(Tensor self, float from=0., float to=1., *, Generator? generator=None) -> Tensor"""
    return _uniform(ctx, from_, to)


@lower("aten::normal_functional")
def aten_normal_functional(
    ctx: RuleContext, self: Array, mean: Scalar = 0.0, std: Scalar = 1.0, *, generator: None = None
) -> Array:
    """aten::normal_functional(Tensor self, float mean=0., float std=1., *, Generator? generator=None) -> Tensor"""
    return _scaled_normal(ctx, mean, std)


@lower("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor")
def aten_normal(ctx: RuleContext, mean: Any, std: Any = 1.0, *, generator: None = None) -> Array:
    """Normal numbers whose mean, deviation or both are tensors."""
    return _scaled_normal(ctx, mean, std)


@lower("aten::normal.float_float")
def aten_normal_float_float(ctx: RuleContext, mean: Scalar, std: Scalar, size: tuple[int, ...], **_: Any) -> Array:
    """aten::normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"""  # noqa: E501
    return _scaled_normal(ctx, mean, std)


def _scaled_normal(ctx: RuleContext, mean: Any, std: Any) -> Array:
    unit = _normal(ctx.key(), ctx.out_shape, ctx.out_dtype)
    return unit * number(std, unit) + number(mean, unit)


@lower("aten::log_normal")
def aten_log_normal(
    ctx: RuleContext, self: Array, mean: Scalar = 1.0, std: Scalar = 2.0, *, generator: None = None
) -> Array:
    """aten::log_normal(Tensor self, float mean=1., float std=2., *, Generator? generator=None) -> Tensor"""
    return jnp.exp(_scaled_normal(ctx, mean, std))


def exponential(key: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Never zero: sampling by racing exponentials divides by them."""
    eps = np.asarray(jnp.finfo(opmath(dtype)).eps, opmath(dtype))
    wide = np.dtype(np.float64) if np.dtype(dtype) == np.float64 else np.dtype(np.float32)
    return jnp.maximum(-jnp.log(unit_uniform(key, shape, wide, low=1.0)), eps / 2)


@lower("aten::exponential")
def aten_exponential(ctx: RuleContext, self: Array, lambd: Scalar = 1.0, *, generator: None = None) -> Array:
    """aten::exponential(Tensor self, float lambd=1., *, Generator? generator=None) -> Tensor"""
    value = exponential(ctx.key(), ctx.out_shape, ctx.out_dtype)
    return value / number(lambd, value)


@lower("aten::cauchy")
def aten_cauchy(
    ctx: RuleContext, self: Array, median: Scalar = 0.0, sigma: Scalar = 1.0, *, generator: None = None
) -> Array:
    """aten::cauchy(Tensor self, float median=0., float sigma=1., *, Generator? generator=None) -> Tensor"""
    unit = unit_uniform(ctx.key(), ctx.out_shape, opmath(ctx.out_dtype), low=0.5)
    return number(median, unit) + number(sigma, unit) * jnp.tan(np.asarray(math.pi, unit.dtype) * (unit - 0.5))


@lower("aten::geometric")
def aten_geometric(ctx: RuleContext, self: Array, p: Scalar, *, generator: None = None) -> Array:
    """aten::geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor"""
    unit = unit_uniform(ctx.key(), ctx.out_shape, np.dtype(np.float32), low=1.0)
    return jnp.maximum(jnp.ceil(jnp.log(unit) / jnp.log1p(-number(p, unit))), 1)


def _bernoulli(ctx: RuleContext, p: Any) -> Array:
    """Whether a uniform number of [0, 1) lies below ``p``: never for 0, always for 1."""
    unit = unit_uniform(ctx.key(), ctx.out_shape, np.dtype(np.float32))
    return unit < number(p, unit)


@lower("aten::bernoulli")
def aten_bernoulli(ctx: RuleContext, self: Array, *, generator: None = None) -> Array:
    """aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor"""
    return _bernoulli(ctx, self)


@lower("aten::bernoulli.p", "aten::bernoulli.Tensor")
def aten_bernoulli_p(ctx: RuleContext, self: Array, p: Any, *, generator: None = None) -> Array:
    """Ones with a probability given as a number or a broadcast tensor, in the shape and dtype of ``self``."""
    return _bernoulli(ctx, p)


@lower("aten::native_dropout")
def aten_native_dropout(ctx: RuleContext, input: Array, p: Scalar, train: bool | None) -> tuple[Array, Array]:
    """aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)"""
    if train is False:
        return input, jnp.ones(input.shape, jnp.bool_)
    x = widen(input)
    keep = 1 - number(p, x)
    mask = _bernoulli(ctx, keep)
    scale = jnp.where(keep == 0, 0, 1 / jnp.where(keep == 0, 1, keep))
    return jnp.where(mask, x * scale, 0), mask


@lower("aten::native_dropout_backward")
def aten_native_dropout_backward(ctx: RuleContext, grad_output: Array, mask: Array, scale: Scalar) -> Array:
    """aten::native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor"""
    g = cast(grad_output, opmath(ctx.out_dtype))
    return jnp.where(mask != 0, g * number(scale, g), 0)


@lower("aten::rrelu_with_noise_functional")
def aten_rrelu_with_noise_functional(
    ctx: RuleContext, self: Array, noise: Array, lower: Scalar = 0.125, upper: Scalar = 1 / 3,
    training: bool = False, generator: None = None,
) -> tuple[Array, Array]:
    """aten::rrelu_with_noise_functional(Tensor self, Tensor noise, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None) -> (Tensor, Tensor noise_out)"""  # noqa: E501
    x = widen(self)
    low, high = number(lower, x), number(upper, x)
    if not training:
        return jnp.where(x > 0, x, x * ((low + high) / 2)), noise
    slope = jnp.where(x <= 0, unit_uniform(ctx.key(), x.shape, x.dtype) * (high - low) + low, 1)
    return x * slope, slope


def _integers(ctx: RuleContext, low: int, high: int) -> Array:
    """Integers of [low, high), drawn in 32 bits where the range allows."""
    if low >= -_INT32_MAX and high <= _INT32_MAX:
        return jax.random.randint(ctx.key(), ctx.out_shape, low, high, jnp.int32)
    if high - low >= 2**64:
        return jax.random.bits(ctx.key(), ctx.out_shape, jnp.uint64).astype(jnp.int64)
    return jax.random.randint(ctx.key(), ctx.out_shape, low, min(high, 2**63 - 1), jnp.int64)


def _end(dtype: np.dtype) -> int:
    """One past the largest integer that ``random_`` without bounds draws: all that the dtype can hold exactly."""
    if dtype == np.bool_:
        return 2
    return 2 ** _digits(dtype) + 1 if jnp.issubdtype(dtype, jnp.floating) else int(jnp.iinfo(dtype).max) + 1


@lower("aten::random")
def aten_random(ctx: RuleContext, self: Array, *, generator: None = None) -> Array:
    """aten::random(Tensor self, *, Generator? generator=None) -> Tensor"""
    return _integers(ctx, 0, _end(ctx.out_dtype))


@lower("aten::random.from")
def aten_random_from(ctx: RuleContext, self: Array, from_: int, to: int | None, *, generator: None = None) -> Array:
    """aten::random.from(Tensor self, int from, int? to, *, Generator? generator=None) -> Tensor"""
    return _integers(ctx, from_, _end(ctx.out_dtype) if to is None else to)


@lower("aten::random.to")
def aten_random_to(ctx: RuleContext, self: Array, to: int, *, generator: None = None) -> Array:
    """aten::random.to(Tensor self, int to, *, Generator? generator=None) -> Tensor"""
    return _integers(ctx, 0, to)


# Factories: only traced graphs hold them, eager code draws in place. Their shape is that of the output.
FACTORIES: dict[str, Callable[[RuleContext], Array]] = {
    "aten::rand": lambda ctx: _uniform(ctx, 0.0, 1.0),
    "aten::rand_like": lambda ctx: _uniform(ctx, 0.0, 1.0),
    "aten::randn": lambda ctx: _normal(ctx.key(), ctx.out_shape, ctx.out_dtype),
    "aten::randn_like": lambda ctx: _normal(ctx.key(), ctx.out_shape, ctx.out_dtype),
}


def _make_factory(draw: Callable[[RuleContext], Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, size_or_self: Any, **_: Any) -> Array:
        return draw(ctx)

    return rule


lower_table(FACTORIES, _make_factory)
lower_table({f"{key}.generator": draw for key, draw in FACTORIES.items()}, _make_factory)


@lower("aten::randint", "aten::randint.generator")
def aten_randint(ctx: RuleContext, high: int, size: tuple[int, ...], **_: Any) -> Array:
    """Integers of [0, high) in a new tensor."""
    return _integers(ctx, 0, high)


@lower("aten::randint.low", "aten::randint.low_generator")
def aten_randint_low(ctx: RuleContext, low: int, high: int, size: tuple[int, ...], **_: Any) -> Array:
    """Integers of [low, high) in a new tensor."""
    return _integers(ctx, low, high)


@lower("aten::randint_like", "aten::randint_like.generator")
def aten_randint_like(ctx: RuleContext, self: Array, high: int, **_: Any) -> Array:
    """Integers of [0, high) in the shape of a tensor."""
    return _integers(ctx, 0, high)


@lower("aten::randint_like.low_dtype", "aten::randint_like.low_generator_dtype")
def aten_randint_like_low_dtype(ctx: RuleContext, self: Array, low: int, high: int, **_: Any) -> Array:
    """Integers of [low, high) in the shape of a tensor."""
    return _integers(ctx, low, high)
