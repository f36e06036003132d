"""Casts that neural-network rules share: data to the dtype ATen computes in, numbers to the dtype of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.rules._numbers import cast
from torchtpu.rules.context import RuleContext, opmath

# Reduction argument of the loss operators.
NONE, MEAN, SUM = 0, 1, 2


def widen(x: jax.Array) -> jax.Array:
    """``x`` in the dtype that ATen computes in: 16-bit floats as float32, everything else unchanged."""
    return x.astype(opmath(x.dtype))


def wide_on_cpu(product: Callable[[jax.Array, jax.Array], jax.Array], left: jax.Array, right: jax.Array) -> jax.Array:
    """A product of two arrays of one dtype: of 16-bit floats as they are, which a CPU widens first.

    It has the same values, as these products are exact in float32. XLA:CPU multiplies bfloat16 more slowly than it converts it, and
    lacks some products of 16-bit floats.
    """
    if opmath(left.dtype) == left.dtype:
        return product(left, right)
    return lax.platform_dependent(left, right, cpu=lambda left, right: product(widen(left), widen(right)), default=product)


def wide_einsum(ctx: RuleContext, spec: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """A product of two arrays of one dtype, accumulated and returned in the dtype that ATen computes in."""
    wide = ctx.accum(left.dtype)

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.einsum(spec, left, right, precision=ctx.matmul_precision, preferred_element_type=wide)

    return wide_on_cpu(product, left, right)


def number(value: Any, like: jax.Array) -> Any:
    """A Scalar argument (Python number or 0-d array) as a 0-d array or constant of the dtype of ``like``."""
    return cast(value, like.dtype)


def reduce_loss(loss: jax.Array, reduction: int) -> jax.Array:
    """Apply the reduction argument of a loss operator; the mean of nothing is NaN, as in ATen."""
    if reduction == NONE:
        return loss
    total = jnp.sum(loss)
    return total if reduction == SUM else total / loss.size if loss.size else total * jnp.nan
