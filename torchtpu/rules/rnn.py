"""The fused cells that LSTM and GRU layers run on devices other than the CPU.

The workspace holds the activated gates, from which the backward pass needs nothing recomputed.
Source: aten/src/ATen/native/RNN.cpp for the cells, and their derivatives written out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

Array = jax.Array


def _biased(gates: Array, bias: Array | None) -> Array:
    return widen(gates) if bias is None else widen(gates) + widen(bias)


@lower("aten::_thnn_fused_lstm_cell")
def aten__thnn_fused_lstm_cell(
    ctx: RuleContext, input_gates: Array, hidden_gates: Array, cx: Array, input_bias: Array | None = None,
    hidden_bias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """aten::_thnn_fused_lstm_cell(Tensor input_gates, Tensor hidden_gates, Tensor cx, Tensor? input_bias=None, Tensor? hidden_bias=None) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    i, f, g, o = jnp.split(gates, 4, axis=1)
    i, f, g, o = lax.logistic(i), lax.logistic(f), jnp.tanh(g), lax.logistic(o)
    cy = f * widen(cx) + i * g
    return o * jnp.tanh(cy), cy, jnp.concatenate((i, f, g, o), axis=1)


@lower("aten::_thnn_fused_lstm_cell_backward_impl")
def aten__thnn_fused_lstm_cell_backward_impl(
    ctx: RuleContext, grad_hy: Array | None, grad_cy: Array | None, cx: Array, cy: Array, workspace: Array,
    has_bias: bool,
) -> tuple[Array | None, Array | None, Array | None]:
    """aten::_thnn_fused_lstm_cell_backward_impl(Tensor? grad_hy, Tensor? grad_cy, Tensor cx, Tensor cy, Tensor workspace, bool has_bias) -> (Tensor, Tensor, Tensor)"""  # noqa: E501
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = jnp.split(widen(workspace), 4, axis=1)
    t = jnp.tanh(widen(cy))
    grad_h = jnp.zeros_like(t) if grad_hy is None else widen(grad_hy)
    grad_c = grad_h * o * (1 - t * t)
    if grad_cy is not None:
        grad_c = grad_c + widen(grad_cy)
    grad_gates = jnp.concatenate((
        grad_c * g * i * (1 - i),
        grad_c * widen(cx) * f * (1 - f),
        grad_c * i * (1 - g * g),
        grad_h * t * o * (1 - o),
    ), axis=1)
    return grad_gates, grad_c * f, jnp.sum(grad_gates, 0) if has_bias else None


@lower("aten::_thnn_fused_gru_cell")
def aten__thnn_fused_gru_cell(
    ctx: RuleContext, input_gates: Array, hidden_gates: Array, hx: Array, input_bias: Array | None = None,
    hidden_bias: Array | None = None,
) -> tuple[Array, Array]:
    """aten::_thnn_fused_gru_cell(Tensor input_gates, Tensor hidden_gates, Tensor hx, Tensor? input_bias=None, Tensor? hidden_bias=None) -> (Tensor, Tensor)"""  # noqa: E501
    h = widen(hx)
    input_r, input_z, input_n = jnp.split(_biased(input_gates, input_bias), 3, axis=1)
    hidden_r, hidden_z, hidden_n = jnp.split(_biased(hidden_gates, hidden_bias), 3, axis=1)
    r, z = lax.logistic(input_r + hidden_r), lax.logistic(input_z + hidden_z)
    n = jnp.tanh(input_n + r * hidden_n)
    return n + z * (h - n), jnp.concatenate((r, z, n, h, hidden_n), axis=1)


@lower("aten::_thnn_fused_gru_cell_backward")
def aten__thnn_fused_gru_cell_backward(
    ctx: RuleContext, grad_hy: Array, workspace: Array, has_bias: bool
) -> tuple[Array | None, ...]:
    """aten::_thnn_fused_gru_cell_backward(Tensor grad_hy, Tensor workspace, bool has_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"""  # noqa: E501
    grad = widen(grad_hy)
    r, z, n, h, hidden_n = jnp.split(widen(workspace), 5, axis=1)
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_z = grad * (h - n) * z * (1 - z)
    grad_r = grad_n * hidden_n * r * (1 - r)
    grad_input_gates = jnp.concatenate((grad_r, grad_z, grad_n), axis=1)
    grad_hidden_gates = jnp.concatenate((grad_r, grad_z, grad_n * r), axis=1)
    biases = (jnp.sum(grad_input_gates, 0), jnp.sum(grad_hidden_gates, 0)) if has_bias else (None, None)
    return grad_input_gates, grad_hidden_gates, grad * z, *biases
