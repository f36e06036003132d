"""Random permutations, samples from tables of weights, and distributions that need rejection sampling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from torchtpu.rules._numbers import index_dtype
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.random import exponential, unit_uniform
from torchtpu.rules.registry import lower

Array = jax.Array

# Up to this many comparisons, samples with replacement compare with every weight instead of searching.
MAX_COMPARISONS = 1 << 22
# From here on, a Poisson number is within a hundredth of a normal one that was corrected for its skew.
LARGE_RATE = 4096


@lower("aten::randperm", "aten::randperm.generator")
def aten_randperm(ctx: RuleContext, n: int, **_: Any) -> Array:
    """The integers below ``n`` in random order."""
    return jax.random.permutation(ctx.key(), jnp.arange(n, dtype=index_dtype(n)))


@lower("aten::multinomial")
def aten_multinomial(
    ctx: RuleContext, self: Array, num_samples: int, replacement: bool = False, *, generator: None = None
) -> Array:
    """aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor

    One sample, or several different ones, are the winners of a race between exponentials with these rates.

    Differs: weights that are negative, not finite or all zero are not refused: that would wait for their values.
    """
    weights = widen(self)
    if num_samples == 1 or not replacement:
        race = weights / exponential(ctx.key(), weights.shape, weights.dtype)
        if num_samples == 1:
            return jnp.argmax(race, axis=-1, keepdims=True)
        return jax.lax.top_k(race, num_samples)[1]
    cumulative = jnp.cumsum(weights, axis=-1)
    total = cumulative[..., -1:]
    # Below the total in spite of rounding, or the search would run past the last weight that is not zero. A TPU's float64 has
    # fewer digits than others', and no next number.
    below = 1 - max(float(jnp.finfo(weights.dtype).eps), 2.0**-40)
    draw = jnp.minimum(unit_uniform(ctx.key(), ctx.out_shape, weights.dtype), weights.dtype.type(below)) * total
    if weights.shape[-1] * draw.size <= MAX_COMPARISONS:
        return jnp.sum(cumulative[..., None, :] <= draw[..., None], axis=-1, dtype=jnp.int32)
    rows = (-1, weights.shape[-1]), (-1, num_samples)
    found = jax.vmap(lambda c, d: jnp.searchsorted(c, d, side="right"))(
        cumulative.reshape(rows[0]), draw.reshape(rows[1]))
    return found.reshape(ctx.out_shape)


@lower("aten::poisson")
def aten_poisson(ctx: RuleContext, self: Array, generator: None = None) -> Array:
    """aten::poisson(Tensor self, Generator? generator=None) -> Tensor

    Large rates go by the quantiles of a normal number (Cornish and Fisher, to the second term): rejection sampling subtracts
    numbers there that single precision no longer tells apart, and 32-bit counts come to their end.
    """
    rate = widen(self)
    z = jax.random.normal(ctx.key(), rate.shape, rate.dtype)
    large = jnp.floor(rate + jnp.sqrt(rate) * z + (jnp.square(z) - 1) / 6 + 0.5)
    few = jnp.where(rate < LARGE_RATE, rate, 0).astype(np.float32)
    few = jax.random.poisson(ctx.key(), few, rate.shape, jnp.int32).astype(rate.dtype)
    return jnp.where(rate < LARGE_RATE, few, large)


@lower("aten::binomial")
def aten_binomial(ctx: RuleContext, count: Array, prob: Array, generator: None = None) -> Array:
    """aten::binomial(Tensor count, Tensor prob, Generator? generator=None) -> Tensor"""
    return jax.random.binomial(ctx.key(), widen(count), widen(prob), ctx.out_shape)


def _as_given(x: Array) -> Array:
    """Kept from being specialised where it is a constant of the program: a power with a known exponent is rounded otherwise.

    XLA:CPU's optimiser drops the barrier before it folds constants: there the last bit may still depend on the mode.
    """
    return jax.lax.optimization_barrier(x)


@lower("aten::_standard_gamma")
def aten__standard_gamma(ctx: RuleContext, self: Array, generator: None = None) -> Array:
    """aten::_standard_gamma(Tensor self, Generator? generator=None) -> Tensor"""
    alpha = _as_given(widen(self))
    # Tiny shapes underflow to zero, which no density allows.
    return jnp.maximum(jax.random.gamma(ctx.key(), alpha, alpha.shape, alpha.dtype), np.finfo(alpha.dtype).tiny)


@lower("aten::_standard_gamma_grad")
def aten__standard_gamma_grad(ctx: RuleContext, self: Array, output: Array) -> Array:
    """aten::_standard_gamma_grad(Tensor self, Tensor output) -> Tensor"""
    # Its decorator fills in the dtype.
    return jax.lax.random_gamma_grad(widen(self), widen(output))  # pyright: ignore[reportCallIssue]


@lower("aten::_sample_dirichlet")
def aten__sample_dirichlet(ctx: RuleContext, self: Array, generator: None = None) -> Array:
    """aten::_sample_dirichlet(Tensor self, Generator? generator=None) -> Tensor"""
    alpha = _as_given(widen(self))
    # Normalised in the logarithm: the gammas of tiny shapes underflow.
    return jax.nn.softmax(jax.random.loggamma(ctx.key(), alpha, alpha.shape, alpha.dtype), axis=-1)
