"""Whole layers of LSTM, GRU and plain recurrent networks: a loop over time a direction, forward and backward.

All products with the inputs are one, before the loop. The backward pass computes the gates again, all at once, from the hidden
states that the layer returned, so that nothing of their size is kept between the two; only the cell states of an LSTM are.

Legend: T time, B batch, D inputs, H hidden, G gates (H of each), K directions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from torchtpu.rules._numbers import narrow_loops
from torchtpu.rules._wide import wide_einsum, widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

State = tuple[Array, ...]  # hidden, and of an LSTM the cells, each [B, H]
Gates = tuple[Array, ...]  # of inputs and of hidden states; their sum, where nothing else is made of them


def _plain(activation: Callable[[Array], Array]) -> Callable[[Gates, State], State]:
    return lambda gates, state: (activation(gates[0]),)


def _lstm(gates: Gates, state: State) -> State:
    i, f, g, o = jnp.split(gates[0], 4, axis=1)
    c = lax.logistic(f) * state[1] + lax.logistic(i) * jnp.tanh(g)
    return lax.logistic(o) * jnp.tanh(c), c


def _gru(gates: Gates, state: State) -> State:
    given_r, given_z, given_n = jnp.split(gates[0], 3, axis=1)
    hidden_r, hidden_z, hidden_n = jnp.split(gates[1], 3, axis=1)
    r, z = lax.logistic(given_r + hidden_r), lax.logistic(given_z + hidden_z)
    n = jnp.tanh(given_n + r * hidden_n)
    return (n + z * (state[0] - n),)


LSTM, GRU = 2, 3
_CELLS = (_plain(jax.nn.relu), _plain(jnp.tanh), _lstm, _gru)  # by number of mode


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer. ``weights``: of inputs [G, D] and of hidden states [G, H], and then two biases or none."""

    ctx: RuleContext
    mode: int
    reverse: bool
    weights: Sequence[Array]

    def given(self, x: Array) -> Array:
        return self._affine(x, 0)

    def gates(self, given: Array, h: Array) -> Gates:
        hidden = self._affine(h, 1)
        return (given, hidden) if self.mode == GRU else (given + hidden,)

    def _affine(self, x: Array, place: int) -> Array:
        product = wide_einsum(self.ctx, "...d,gd->...g", x, self.weights[place])
        return product + widen(self.weights[place + 2]) if len(self.weights) > 2 else product

    def forward(self, x_TBD: Array, h: Array, c: Array | None) -> State:
        """The states after every step, [T, B, H] each; the hidden ones rounded as the layer returns them."""

        def step(state: State, given_BG: Array) -> tuple[State, State]:
            wide = _CELLS[self.mode](self.gates(given_BG, state[0]), (widen(state[0]), *state[1:]))
            state = (wide[0].astype(x_TBD.dtype), *wide[1:])
            return state, state

        first = (h,) if c is None else (h, widen(c))
        return self._loop(step, first, self.given(x_TBD), self.reverse)[1]

    def backward(
        self, x_TBD: Array, first: State, states: State, grad_last: State, grad_TBH: Array
    ) -> tuple[Array, State, list[Array]]:
        """Gradients of inputs, of first states and of weights, given those of the last states and of the hidden ones."""
        before = tuple(self._before(start, after) for start, after in zip(first, states, strict=True))
        w_in, w_hidden = self.weights[:2]

        def step(grad: State, row: tuple[Array, Gates, State]) -> tuple[State, Gates]:
            grad_BH, gates, (h, *c) = row
            _, pull = jax.vjp(_CELLS[self.mode], gates, (widen(h), *c))
            grad_gates, (grad_h, *grad_c) = pull((grad[0] + grad_BH, *grad[1:]))
            through = wide_einsum(self.ctx, "bg,gh->bh", grad_gates[-1].astype(w_hidden.dtype), w_hidden)
            return (grad_h + through, *grad_c), grad_gates

        rows = (widen(grad_TBH), self.gates(self.given(x_TBD), before[0]), before)
        grad_first, grad_gates = self._loop(step, grad_last, rows, not self.reverse)
        narrow = [gate.astype(w_in.dtype) for gate in grad_gates]
        grad_weights = [
            wide_einsum(self.ctx, "tbg,tbd->gd", narrow[0], x_TBD),
            wide_einsum(self.ctx, "tbg,tbh->gh", narrow[-1], before[0]),
            *(jnp.sum(grad_gates[i], (0, 1)) for i in (0, -1) if len(self.weights) > 2)]
        return wide_einsum(self.ctx, "tbg,gd->tbd", narrow[0], w_in), grad_first, grad_weights

    def _before(self, start: Array, after_TBH: Array) -> Array:
        """The states before every step."""
        parts = (after_TBH[1:], start[None]) if self.reverse else (start[None], after_TBH[:-1])
        return jnp.concatenate([part.astype(after_TBH.dtype) for part in parts])

    def last(self, after_TBH: Array) -> Array:
        return after_TBH[0 if self.reverse else -1]

    def _loop(self, step: Callable, first: State, rows: object, reverse: bool) -> tuple[State, tuple]:
        with narrow_loops(first[0].dtype):
            return lax.scan(step, first, rows, reverse=reverse)


def _directions(ctx: RuleContext, mode: int, weight: Sequence[Array], stride: int) -> list[_Direction]:
    return [_Direction(ctx, mode, k > 0, weight[k * stride:(k + 1) * stride]) for k in range(len(weight) // stride)]


@lower("aten::_cudnn_rnn")
def aten__cudnn_rnn(
    ctx: RuleContext, input: Array, weight: Sequence[Array], weight_stride0: int, weight_buf: None, hx: Array, cx: Array | None,
    mode: int, hidden_size: int, proj_size: int, num_layers: int, batch_first: bool, dropout: float, train: bool,
    bidirectional: bool, batch_sizes: Sequence[int], dropout_state: None,
) -> tuple[Array | None, ...]:
    """aten::_cudnn_rnn(Tensor input, Tensor[] weight, int weight_stride0, Tensor? weight_buf, Tensor hx, Tensor? cx, int mode, SymInt hidden_size, SymInt proj_size, int num_layers, bool batch_first, float dropout, bool train, bool bidirectional, SymInt[] batch_sizes, Tensor? dropout_state) -> (Tensor, Tensor, Tensor, Tensor, Tensor)

    One layer, time first, without projection or dropout: csrc/record/Recurrent.cpp asks for nothing else. What is reserved for the
    gradient are the cell states [K, T, B, H] of an LSTM.
    """  # noqa: E501
    directions = _directions(ctx, mode, weight, weight_stride0)
    states = [d.forward(input, hx[k], None if cx is None else cx[k]) for k, d in enumerate(directions)]
    h_KBH, *c_KBH = (
        jnp.stack([d.last(after) for d, after in zip(directions, kind, strict=True)]) for kind in zip(*states, strict=True))
    output = jnp.concatenate([state[0] for state in states], axis=2)
    reserve = jnp.stack([state[1] for state in states]) if mode == LSTM else None
    return output, h_KBH, c_KBH[0] if c_KBH else None, reserve, None


@lower("aten::_cudnn_rnn_backward")
def aten__cudnn_rnn_backward(
    ctx: RuleContext, input: Array, weight: Sequence[Array], weight_stride0: int, weight_buf: Array, hx: Array, cx: Array | None,
    output: Array, grad_output: Array | None, grad_hy: Array | None, grad_cy: Array | None, mode: int, hidden_size: int,
    proj_size: int, num_layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool,
    batch_sizes: Sequence[int], dropout_state: None, reserve: Array, output_mask: Sequence[bool],
) -> tuple[Array | list[Array] | None, ...]:
    """aten::_cudnn_rnn_backward(Tensor input, Tensor[] weight, int weight_stride0, Tensor weight_buf, Tensor hx, Tensor? cx, Tensor output, Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, int mode, SymInt hidden_size, SymInt proj_size, int num_layers, bool batch_first, float dropout, bool train, bool bidirectional, SymInt[] batch_sizes, Tensor? dropout_state, Tensor reserve, bool[4] output_mask) -> (Tensor, Tensor, Tensor, Tensor[])"""  # noqa: E501
    first = (hx,) if cx is None else (hx, widen(cx))
    grad_output = jnp.zeros_like(output) if grad_output is None else grad_output
    grad_last = [jnp.zeros_like(s) if g is None else g for s, g in zip(first, (grad_hy, grad_cy), strict=False)]
    found = []
    for k, direction in enumerate(_directions(ctx, mode, weight, weight_stride0)):
        own = slice(k * hidden_size, (k + 1) * hidden_size)
        states = (output[..., own],) if cx is None else (output[..., own], reserve[k])
        found.append(direction.backward(
            input, tuple(s[k] for s in first), states, tuple(widen(g[k]) for g in grad_last), grad_output[..., own]))
    grad_x, grad_first, grad_weights = zip(*found, strict=True)
    grad_h_KBH, *grad_c_KBH = (jnp.stack(kind) for kind in zip(*grad_first, strict=True))
    grad_c = grad_c_KBH[0] if grad_c_KBH else None
    return functools.reduce(jnp.add, grad_x), grad_h_KBH, grad_c, [g for grads in grad_weights for g in grads]
