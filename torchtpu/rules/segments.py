"""Reductions over consecutive segments of one dimension, and their gradients.

Shapes: data [*batch, N, *rest], reduced along its axis N; lengths [*batch, S] or offsets [*batch, S + 1] -> [*batch, S, *rest].
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import Scalar, constant
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower
from torchtpu.rules.search import search_sorted

_START = {"sum": 0.0, "mean": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}
_REDUCE: dict[str, Callable[..., Array]] = {
    "sum": jax.ops.segment_sum, "mean": jax.ops.segment_sum, "max": jax.ops.segment_max, "min": jax.ops.segment_min,
    "prod": jax.ops.segment_prod,
}
_JOIN = {"sum": jnp.add, "mean": jnp.add, "max": jnp.maximum, "min": jnp.minimum, "prod": jnp.multiply}


def _segments(lengths: Array | None, offsets: Array | None, num: int) -> tuple[Array, Array]:
    """The segment of every element, -1 for those before the first and S behind the last; and how long each segment is. [R, ...]"""
    if offsets is None:
        assert lengths is not None
        size_RS = lengths.reshape(-1, lengths.shape[-1]).astype(np.int32)
        begin_RS = jnp.cumsum(size_RS, 1) - size_RS
    else:
        edge = offsets.reshape(-1, offsets.shape[-1]).astype(np.int32)
        begin_RS, size_RS = edge[:, :-1], edge[:, 1:] - edge[:, :-1]
    edges = jnp.concatenate([begin_RS, begin_RS[:, -1:] + size_RS[:, -1:]], 1)
    place = jnp.broadcast_to(jnp.arange(num, dtype=np.int32), (edges.shape[0], num))
    return search_sorted(edges, place, right=True) - np.int32(1), size_RS


def _rows(x: Array, axis: int) -> Array:
    """[*batch, N, *rest] as [R, N, Q]."""
    batch, rest = (int(np.prod(part, dtype=np.int64)) for part in (x.shape[:axis], x.shape[axis + 1:]))
    return x.reshape(batch, x.shape[axis], rest)


def _reduce(name: str, x_RNQ: Array, of_RN: Array, num: int) -> Array:
    return jax.vmap(lambda x, of: _REDUCE[name](x, of, num, indices_are_sorted=True))(x_RNQ, of_RN)


@lower("aten::segment_reduce")
def aten_segment_reduce(
    ctx: RuleContext, data: Array, reduce: str, *, lengths: Array | None = None, indices: Array | None = None,
    offsets: Array | None = None, axis: int = 0, unsafe: bool = False, initial: Scalar | None = None,
) -> Array:
    """aten::segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor"""  # noqa: E501
    if 0 in ctx.out_shape:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    axis %= data.ndim
    x_RNQ = _rows(widen(data), axis)
    start = constant(_START[reduce] if initial is None else initial, x_RNQ.dtype)
    of_RN, size_RS = _segments(lengths, offsets, data.shape[axis])
    size_RS1 = size_RS[:, :, None]
    result = jnp.where(size_RS1 > 0, _JOIN[reduce](_reduce(reduce, x_RNQ, of_RN, size_RS.shape[1]), start), start)
    if reduce == "mean":
        result = jnp.where(size_RS1 > 0, result / size_RS1.astype(result.dtype), np.nan if initial is None else result)
    return result.reshape(ctx.out_shape)


@lower("aten::_segment_reduce_backward")
def aten__segment_reduce_backward(
    ctx: RuleContext, grad: Array, output: Array, data: Array, reduce: str, *, lengths: Array | None = None,
    offsets: Array | None = None, axis: int = 0, initial: Scalar | None = None,
) -> Array:
    """aten::_segment_reduce_backward(Tensor grad, Tensor output, Tensor data, str reduce, *, Tensor? lengths=None, Tensor? offsets=None, int axis=0, Scalar? initial=None) -> Tensor

    Differs: ATen shares only positive gradients between several extremes.
    """  # noqa: E501
    if grad.size == 0 or data.size == 0:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    axis %= data.ndim
    x_RNQ, grad_RSQ, output_RSQ = (_rows(widen(x), axis) for x in (data, grad, output))
    of_RN, size_RS = _segments(lengths, offsets, data.shape[axis])
    num = size_RS.shape[1]

    def spread(x_RSQ: Array) -> Array:
        return jnp.take_along_axis(x_RSQ, of_RN[:, :, None], 1, mode="clip")

    slope = spread(grad_RSQ)
    if reduce == "mean":
        slope = slope / spread(size_RS[:, :, None]).astype(slope.dtype)
    elif reduce in ("max", "min"):  # shared equally by all that are extreme
        chosen = (x_RNQ == spread(output_RSQ)) | jnp.isnan(x_RNQ)
        slope = jnp.where(chosen, slope / spread(_reduce("sum", chosen.astype(slope.dtype), of_RN, num)), 0)
    elif reduce == "prod":
        start = constant(1 if initial is None else initial, x_RNQ.dtype)
        zero = x_RNQ == 0
        others = start * spread(_reduce("prod", jnp.where(zero, 1, x_RNQ), of_RN, num))
        lone = spread(_reduce("sum", zero.astype(np.int32), of_RN, num)) == 1
        slope = slope * jnp.where(zero, jnp.where(lone, others, 0), spread(output_RSQ) / jnp.where(zero, 1, x_RNQ))
    inside = ((of_RN >= 0) & (of_RN < num))[:, :, None]
    return jnp.where(inside, slope, 0).reshape(data.shape)
