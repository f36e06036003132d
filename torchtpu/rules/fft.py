"""Fourier transforms along some dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

# The normalization argument: what the sum is divided by, given the number of its terms.
_DIVISORS = {0: lambda terms: 1.0, 1: math.sqrt, 2: float}


def _scaled(value: Array, normalization: int, terms: int) -> Array:
    divisor = _DIVISORS[normalization](terms)
    return value if divisor == 1 else value * jnp.asarray(1 / divisor, value.real.dtype)


def _num_terms(shape: Sequence[int], dim: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dim)


def _along(dim: Sequence[int], ndim: int) -> tuple[int, ...]:
    return tuple(d % ndim for d in dim)


@lower("aten::_fft_c2c")
def aten__fft_c2c(ctx: RuleContext, self: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    """aten::_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor"""
    axes = _along(dim, self.ndim)
    # JAX's "forward" norm leaves the inverse undivided.
    value = jnp.fft.fftn(self, axes=axes) if forward else jnp.fft.ifftn(self, axes=axes, norm="forward")
    return _scaled(value, normalization, _num_terms(self.shape, axes))


@lower("aten::_fft_r2c")
def aten__fft_r2c(ctx: RuleContext, self: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor"""
    axes = _along(dim, self.ndim)
    value = jnp.fft.rfftn(self, axes=axes) if onesided else jnp.fft.fftn(self, axes=axes)
    return _scaled(value, normalization, _num_terms(self.shape, axes))


@lower("aten::_fft_c2r")
def aten__fft_c2r(ctx: RuleContext, self: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor"""
    axes = _along(dim, self.ndim)
    sizes = [*(self.shape[d] for d in axes[:-1]), last_dim_size]
    value = jnp.fft.irfftn(self, s=sizes, axes=axes, norm="forward")
    return _scaled(value, normalization, math.prod(sizes))
