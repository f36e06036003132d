"""Between sequences that lie one after the other (``layout=torch.jagged``) and the same ones padded to one length.

Legend: B sequences of at most L places each, T places together, D features; ``offsets`` holds the B + 1 bounds of the sequences.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from torchtpu.rules._numbers import cast, index_dtype
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _one(op: str, offsets: list[Array]) -> Array:
    if len(offsets) != 1:
        raise NotImplementedError(f"{op}: expected one ragged dimension, got {len(offsets)}")
    return offsets[0].astype(jnp.int32)


@lower("aten::_jagged_to_padded_dense_forward")
def aten__jagged_to_padded_dense_forward(
    ctx: RuleContext, values: Array, offsets: list[Array], max_lengths: list[int], padding_value: float = 0.0
) -> Array:
    """aten::_jagged_to_padded_dense_forward(Tensor values, Tensor[] offsets, SymInt[] max_lengths, float padding_value=0.) -> Tensor

    Shapes: values (T, D) -> (B, L, D). What is longer than L is cut.
    """  # noqa: E501
    bounds = _one(ctx.op, offsets)
    places = jnp.arange(max_lengths[0], dtype=index_dtype(max_lengths[0]))
    sources = bounds[:-1, None] + places
    is_there = sources < bounds[1:, None]
    if values.shape[0] == 0:
        return jnp.full(ctx.out_shape, cast(padding_value, values.dtype))
    padded = jnp.take(values, sources, axis=0, mode="clip")
    return jnp.where(is_there[..., None], padded, cast(padding_value, values.dtype))


@lower("aten::_padded_dense_to_jagged_forward")
def aten__padded_dense_to_jagged_forward(
    ctx: RuleContext, dense: Array, offsets: list[Array], total_L: int | None = None
) -> Array:
    """aten::_padded_dense_to_jagged_forward(Tensor dense, Tensor[] offsets, SymInt? total_L=None) -> Tensor

    Shapes: dense (B, L, D) -> (T, D). What a sequence is longer than L becomes zero.
    """
    bounds = _one(ctx.op, offsets)
    places = jnp.arange(ctx.out_shape[0], dtype=jnp.int32)
    rows = jnp.clip(jnp.searchsorted(bounds, places, side="right") - 1, 0, max(dense.shape[0] - 1, 0))
    columns = places - bounds[rows]
    if dense.size == 0:
        return jnp.zeros(ctx.out_shape, dense.dtype)
    picked = dense[rows, jnp.clip(columns, 0, dense.shape[1] - 1)]
    return jnp.where((columns < dense.shape[1])[:, None], picked, 0)
