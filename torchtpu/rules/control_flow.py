"""Control flow inside compiled graphs: PyTorch's higher-order operators as XLA's own conditionals and loops.

Gradients need nothing here: PyTorch traces the backward pass of each into further operators of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules.context import RuleContext, Subgraph
from torchtpu.rules.registry import lower_higher_order


@lower_higher_order("cond")
def cond(ctx: RuleContext, pred: Any, true_fn: Subgraph, false_fn: Subgraph, operands: Sequence[Any]) -> tuple[Any, ...]:
    """One of two graphs, chosen on the device; both have the same results."""

    def branch(graph: Subgraph) -> Any:
        return lambda: _arrays(graph(*operands))

    return lax.cond(jnp.reshape(jnp.asarray(pred), ()), branch(true_fn), branch(false_fn))


@lower_higher_order("while_loop")
def while_loop(
    ctx: RuleContext, cond_fn: Subgraph, body_fn: Subgraph, carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[Any, ...]:
    """A loop whose number of iterations depends on values. Numbers among ``carried`` become 0-d arrays."""

    def condition(state: tuple[Array, tuple[Any, ...]]) -> Array:
        (result,) = cond_fn(*state[1], *additional)
        return jnp.reshape(jnp.asarray(result), ())

    def body(state: tuple[Array, tuple[Any, ...]]) -> tuple[Array, tuple[Any, ...]]:
        step, values = state
        return step + 1, _arrays(body_fn(*values, *additional, step=step))

    return lax.while_loop(condition, body, (jnp.zeros((), np.int32), _arrays(carried)))[1]


@lower_higher_order("scan")
def scan(
    ctx: RuleContext, combine_fn: Subgraph, init: Sequence[Any], xs: Sequence[Array], additional: Sequence[Any]
) -> tuple[Any, ...]:
    """``combine_fn(*carry, *slices, *additional)`` over the first dim of ``xs``: last carry, then the stacked results."""
    if not xs:
        return tuple(init)

    def body(carry: tuple[Any, ...], given: tuple[Array, tuple[Array, ...]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        step, slices = given
        results = _arrays(combine_fn(*carry, *slices, *additional, step=step))
        return results[:len(init)], results[len(init):]

    steps = lax.iota(np.int32, xs[0].shape[0])
    carry, stacked = lax.scan(body, _arrays(init), (steps, tuple(xs)))
    return *carry, *stacked


@lower_higher_order("associative_scan")
def associative_scan(
    ctx: RuleContext, combine_fn: Subgraph, xs: Sequence[Array], additional: Sequence[Any]
) -> tuple[Any, ...]:
    """Prefixes of an associative function over the first dim, in logarithmic depth."""
    one = jax.vmap(lambda left, right: combine_fn(*left, *right, *additional))
    return tuple(lax.associative_scan(one, tuple(xs)))


@lower_higher_order("map_impl")
def map_impl(ctx: RuleContext, function: Subgraph, xs: Sequence[Array], additional: Sequence[Any]) -> tuple[Any, ...]:
    """A function of every slice along the first dim, one after the other."""
    return scan(ctx, function, (), xs, additional)


@lower_higher_order("invoke_subgraph")
def invoke_subgraph(ctx: RuleContext, graph: Subgraph, identifier: str, *operands: Any) -> tuple[Any, ...]:
    """A graph that stands for several equal ones."""
    return graph(*operands)


def _arrays(values: Sequence[Any]) -> tuple[Any, ...]:
    """Numbers as 0-d arrays of PyTorch's dtypes for them; None, which stands for a result that is no tensor, stays."""
    return tuple(jnp.asarray(v, _NUMBERS.get(type(v))) if v is not None else None for v in values)


_NUMBERS = {bool: np.bool_, int: np.int64, float: np.float64}
