"""The same training steps, written by hand in JAX: what eager code is measured against.

Each maker returns ``(step, state)``: ``state, loss = step(state, *batch)``, jitted, with the state donated. Activations
are 2-D between attention layers, because XLA:CPU contracts the weight gradients of 3-D ones slowly. Initial values are
JAX's own, so a loss here compares with nothing.

Axes: B batch, T position, H head, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

Tree = Any
Step = Callable[..., tuple[Tree, jax.Array]]


@dataclass(frozen=True)
class GPTShape:
    """Sizes of a GPT and of its batch."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    seq: int = 128
    batch: int = 8
    vocab: int = 4096


def gpt_parameters(shape: GPTShape) -> Tree:
    """GPT-2's parameters: normal with deviation 0.02, the output layer tied to the token embedding."""
    key, width = jax.random.key(0), shape.width

    def normal(size: tuple[int, ...], number: int) -> jax.Array:
        return 0.02 * jax.random.normal(jax.random.fold_in(key, number), size, jnp.float32)

    blocks = [_block_parameters(width, jax.random.fold_in(key, 2 + i)) for i in range(shape.layers)]
    return {"tokens": normal((shape.vocab, width), 0), "positions": normal((shape.seq, width), 1),
            "norm": _norm_parameters(width), "blocks": blocks}


def gpt_logits(p: Tree, ids_BT: jax.Array, heads: int) -> jax.Array:
    """Forward pass of GPT-2: pre-norm blocks, causal attention, tanh GELU, tied output layer."""
    B, T = ids_BT.shape
    width = p["tokens"].shape[1]
    causal_TT = jnp.tril(jnp.ones((T, T), bool))
    x = (p["tokens"][ids_BT] + p["positions"][None, :T]).reshape(B * T, width)
    for block in p["blocks"]:
        x = _block(x, block, (B, T, heads), causal_TT, gelu_tanh=True)
    return (_layer_norm(x, p["norm"]) @ p["tokens"].T).reshape(B, T, -1)


def gpt_training(shape: GPTShape, *, clip: float | None = None, separate_targets: bool = False) -> tuple[Step, Tree]:
    """A GPT step with AdamW: ``step(state, ids)``, or ``step(state, ids, targets, rate)`` with separate targets."""

    def own_targets(p: Tree, ids: jax.Array) -> jax.Array:
        return _cross_entropy(gpt_logits(p, ids, shape.heads)[:, :-1], ids[:, 1:])

    def given_targets(p: Tree, ids: jax.Array, targets: jax.Array) -> jax.Array:
        return _cross_entropy(gpt_logits(p, ids, shape.heads), targets)

    loss_of = given_targets if separate_targets else own_targets
    return adamw_training(loss_of, gpt_parameters(shape), clip=clip, scheduled=separate_targets)


def adamw_training(loss_of: Callable[..., jax.Array], p: Tree, *, clip: float | None = None, scheduled: bool = False,
                   ) -> tuple[Step, Tree]:
    """A step of AdamW down the gradient of ``loss_of(p, *batch)``; its last argument is the rate, if that is ``scheduled``."""

    def step(state: Tree, *given: Any) -> tuple[Tree, jax.Array]:
        *batch, rate = given if scheduled else (*given, 1e-3)
        p, m, v, n = state
        loss, g = jax.value_and_grad(loss_of)(p, *batch)
        return _adamw(p, m, v, n, _clipped(g, clip), rate), loss

    state = (p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.float32(0))
    return jax.jit(step, donate_argnums=0), state


def vit_training(
    clip: float, *, batch: int = 64, width: int = 64, heads: int = 4, layers: int = 2, patch: int = 2, dropout: float = 0.1,
) -> tuple[Step, Tree]:
    """The model of ``examples/digits_vit.py``: ``step(state, images, labels, rate)``, images [B, 8, 8], AdamW."""
    key = jax.random.key(0)
    tokens = 1 + (8 // patch) ** 2
    p = {
        "patches": _linear_parameters(patch * patch, width, jax.random.fold_in(key, 0)), "cls": jnp.zeros((1, 1, width)),
        "positions": 0.02 * jax.random.normal(jax.random.fold_in(key, 1), (1, tokens, width)),
        "blocks": [_block_parameters(width, jax.random.fold_in(key, 2 + i)) for i in range(layers)],
        "norm": _norm_parameters(width), "head": _linear_parameters(width, 10, jax.random.fold_in(key, 9)),
    }

    def dropped(x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 1 - dropout, x.shape), x / (1 - dropout), 0)

    def loss_of(p: Tree, images: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
        side = 8 // patch
        pieces = images.reshape(batch, side, patch, side, patch).transpose(0, 1, 3, 2, 4).reshape(batch, side * side, -1)
        x = jnp.concatenate([jnp.broadcast_to(p["cls"], (batch, 1, width)), _linear(pieces, p["patches"])], 1)
        x = (x + p["positions"]).reshape(batch * tokens, width)
        for number, block in enumerate(p["blocks"]):
            keys = jax.random.split(jax.random.fold_in(key, number))
            x = _block(x, block, (batch, tokens, heads), None, gelu_tanh=False, drop=lambda x, i, k=keys: dropped(x, k[i]))
        x = x.reshape(batch, tokens, width)[:, 0]
        return _cross_entropy(_linear(_layer_norm(x, p["norm"]), p["head"]), labels, smoothing=0.1)

    def step(state: Tree, images: jax.Array, labels: jax.Array, rate: jax.Array) -> tuple[Tree, jax.Array]:
        p, m, v, n, key = state
        key, draw = jax.random.split(key)
        loss, g = jax.value_and_grad(loss_of)(p, images, labels, draw)
        return (*_adamw(p, m, v, n, _clipped(g, clip), rate), key), loss

    state = (p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.float32(0), jax.random.key(1))
    return jax.jit(step, donate_argnums=0), state


def cnn_training(clip: float) -> tuple[Step, Tree]:
    """The net of ``examples/digits_cnn.py``: ``step(state, images, labels, rate)``, SGD with Nesterov momentum."""
    key = jax.random.key(0)
    p = {"conv": [], "head": (0.05 * jax.random.normal(jax.random.fold_in(key, 9), (256, 10)), jnp.zeros(10))}
    running = []
    for number, (inputs, outputs) in enumerate([(1, 32), (32, 64), (64, 64)]):
        weight = jax.random.normal(jax.random.fold_in(key, number), (3, 3, inputs, outputs)) * (9 * inputs) ** -0.5
        p["conv"].append((weight, jnp.ones(outputs), jnp.zeros(outputs)))
        running.append((jnp.zeros(outputs), jnp.ones(outputs)))

    def loss_of(p: Tree, running: Tree, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Tree]:
        x, statistics = images, []
        for number, (weight, scale, shift) in enumerate(p["conv"]):
            x = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x, new = _batch_norm(x, scale, shift, running[number])
            statistics.append(new)
            x = jax.nn.relu(x)
            if number > 0:
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        logits = _linear(x.reshape(len(x), -1), p["head"])
        return _cross_entropy(logits, labels, smoothing=0.1), statistics

    def step(state: Tree, images: jax.Array, labels: jax.Array, rate: jax.Array) -> tuple[Tree, jax.Array]:
        p, momentum, running = state
        (loss, running), g = jax.value_and_grad(loss_of, has_aux=True)(p, running, images, labels)
        g = jax.tree.map(lambda g, p: g + 5e-4 * p, _clipped(g, clip), p)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, g)
        p = jax.tree.map(lambda p, m, g: p - rate * (g + 0.9 * m), p, momentum, g)
        return (p, momentum, running), loss

    return jax.jit(step, donate_argnums=0), (p, jax.tree.map(jnp.zeros_like, p), running)


def _norm_parameters(width: int) -> tuple[jax.Array, jax.Array]:
    return jnp.ones(width), jnp.zeros(width)


def _linear_parameters(inputs: int, outputs: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return 0.02 * jax.random.normal(key, (inputs, outputs), jnp.float32), jnp.zeros(outputs)


def _block_parameters(width: int, key: jax.Array) -> Tree:
    sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    keys = jax.random.split(key, len(sizes))
    linears = {name: _linear_parameters(*size, key) for (name, size), key in zip(sizes.items(), keys, strict=True)}
    return {"norm1": _norm_parameters(width), "norm2": _norm_parameters(width), **linears}


def _block(
    x: jax.Array, p: Tree, sizes: tuple[int, int, int], mask_TT: jax.Array | None, *, gelu_tanh: bool,
    drop: Callable[[jax.Array, int], jax.Array] = lambda x, place: x,
) -> jax.Array:
    """A pre-norm transformer block over x [B * T, D]; ``sizes`` is (B, T, H); ``drop`` is dropout, by its place in the block."""
    B, T, heads = sizes
    width = x.shape[-1]
    h = _linear(_layer_norm(x, p["norm1"]), p["qkv"])
    q, k, v = (t.reshape(B, T, heads, -1).transpose(0, 2, 1, 3) for t in jnp.split(h, 3, -1))
    scores = (q @ k.swapaxes(-1, -2)) / (width // heads) ** 0.5
    weights = jax.nn.softmax(scores if mask_TT is None else jnp.where(mask_TT, scores, -1e30), -1)
    x = x + drop(_linear((weights @ v).transpose(0, 2, 1, 3).reshape(B * T, width), p["out"]), 0)
    h = jax.nn.gelu(_linear(_layer_norm(x, p["norm2"]), p["up"]), approximate=gelu_tanh)
    return x + drop(_linear(h, p["down"]), 1)


def _linear(x: jax.Array, wb: tuple[jax.Array, jax.Array]) -> jax.Array:
    return x @ wb[0] + wb[1]


def _layer_norm(x: jax.Array, wb: tuple[jax.Array, jax.Array]) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * wb[0] + wb[1]


def _batch_norm(x: jax.Array, scale: jax.Array, shift: jax.Array, running: Tree) -> tuple[jax.Array, Tree]:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[-1]
    new = (0.9 * running[0] + 0.1 * mean, 0.9 * running[1] + 0.1 * variance * (count / (count - 1)))
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + shift, jax.lax.stop_gradient(new)


def _cross_entropy(logits: jax.Array, targets: jax.Array, smoothing: float = 0.0) -> jax.Array:
    log_p = jax.nn.log_softmax(logits, -1)
    loss = -jnp.take_along_axis(log_p, targets[..., None], -1).mean()
    return loss if smoothing == 0 else (1 - smoothing) * loss - smoothing * log_p.mean()


def _clipped(g: Tree, limit: float | None) -> Tree:
    if limit is None:
        return g
    norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(g)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(limit / (norm + 1e-6), 1.0), g)


def _adamw(p: Tree, m: Tree, v: Tree, n: jax.Array, g: Tree, rate: Any) -> Tree:
    """One AdamW update with PyTorch's default coefficients and weight decay 0.01 (its value changes no time)."""
    n = n + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    first, second = 1 - 0.9**n, 1 - 0.999**n
    p = jax.tree.map(
        lambda p, m, v: p * (1 - rate * 0.01) - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), p, m, v)
    return p, m, v, n
