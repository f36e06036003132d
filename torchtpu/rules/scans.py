"""Running sums, products and extrema along one dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import at_least_1d, canonical_dim, cast, index_dtype
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.elementwise_binary import complex_logaddexp
from torchtpu.rules.registry import lower_table


def _scan_rule(scan: Callable[..., Array]) -> Callable[..., Array]:
    def rule(ctx: RuleContext, self: Array, dim: int, *, dtype: Any = None) -> Array:
        wide = np.dtype(np.int32) if ctx.out_dtype == np.bool_ else opmath(ctx.out_dtype)  # in place, a number may be a bool
        x = at_least_1d(cast(cast(self, ctx.out_dtype), wide))
        return scan(x, canonical_dim(dim, x.ndim)).reshape(self.shape)

    return rule


def _join_sums(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Two sums of exponentials, each as its largest exponent and the sum relative to that."""
    most = jnp.maximum(left[0], right[0])
    base = jnp.where(jnp.isinf(most), 0, most)
    return most, left[1] * jnp.exp(left[0] - base) + right[1] * jnp.exp(right[0] - base)


def _logcumsumexp(x: Array, dim: int) -> Array:
    """Rounded once, at the end: logarithms of running sums would be rounded at every step, which gradients of it exponentiate."""
    if jnp.iscomplexobj(x):
        return lax.associative_scan(complex_logaddexp, x, axis=dim)
    most, total = lax.associative_scan(_join_sums, (x, jnp.ones_like(x)), axis=dim)
    return most + jnp.log(total)


# Accumulated in the result's compute dtype.
SCANS = {
    "aten::cumsum": lax.cumsum,
    "aten::cumprod": lax.cumprod,
    "aten::logcumsumexp": _logcumsumexp,
    "aten::_logcumsumexp": _logcumsumexp,
}
lower_table(SCANS, _scan_rule)


def _extreme_scan_rule(better: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    def combine(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        # The later of equal values, and the later of two NaNs, as ATen's loop leaves them.
        take = better(right[0], left[0]) | (right[0] != right[0])
        take = take & ((left[0] == left[0]) | (right[0] != right[0]))
        return jnp.where(take, right[0], left[0]), jnp.where(take, right[1], left[1])

    def rule(ctx: RuleContext, self: Array, dim: int) -> tuple[Array, Array]:
        x = at_least_1d(self)
        dim = canonical_dim(dim, x.ndim)
        position = lax.broadcasted_iota(index_dtype(x.shape[dim]), x.shape, dim)
        if x.shape[dim] == 0:
            return self, position.reshape(self.shape)
        data = x.astype(np.int8) if x.dtype == np.bool_ else x
        values, indices = lax.associative_scan(combine, (data, position), axis=dim)
        return values.astype(self.dtype).reshape(self.shape), indices.reshape(self.shape)

    return rule


lower_table({"aten::cummax": jnp.greater_equal, "aten::cummin": jnp.less_equal}, _extreme_scan_rule)
