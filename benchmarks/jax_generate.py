"""Greedy generation with GPT-2, written by hand in JAX: a cache of fixed capacity, a jitted prompt pass and a jitted step.

Axes: B batch, T position of the prompt, C capacity of the cache, H head, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.jax_models import GPTShape, Tree, _layer_norm, _linear, gpt_parameters


class Generator:
    """Generates ``num_new`` tokens after prompts of one length."""

    def __init__(self, shape: GPTShape, capacity: int) -> None:
        self.shape, self.capacity = shape, capacity
        self.parameters = gpt_parameters(shape)
        self._step = jax.jit(self._forward, donate_argnums=1)

    def __call__(self, ids_BT: Any, num_new: int) -> list[list[int]]:
        """The new tokens of each sequence; each one is read on the host before the next, as for a stopping rule."""
        shape = self.shape
        size = (shape.layers, 2, ids_BT.shape[0], shape.heads, self.capacity, shape.width // shape.heads)
        cache, tokens, position, made = jnp.zeros(size), jnp.asarray(ids_BT), 0, []
        for _ in range(num_new):
            new, cache = self._step(self.parameters, cache, tokens, position)
            position += tokens.shape[1]
            made.append(new.tolist())
            tokens = new[:, None]
        return [list(sequence) for sequence in zip(*made, strict=True)]

    def _forward(self, p: Tree, cache: jax.Array, ids: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        B, T = ids.shape
        heads = self.shape.heads
        places = position + jnp.arange(T)
        mask_TC = jnp.arange(self.capacity)[None] <= places[:, None]
        x = p["tokens"][ids] + p["positions"][places]
        for layer, block in enumerate(p["blocks"]):
            h = _linear(_layer_norm(x, block["norm1"]), block["qkv"])
            q, k, v = (t.reshape(B, T, heads, -1).transpose(0, 2, 1, 3) for t in jnp.split(h, 3, -1))
            new = jnp.stack([k, v])[None]
            cache = jax.lax.dynamic_update_slice(cache, new, (layer, 0, 0, 0, position, 0))
            keys, values = cache[layer]
            scores = (q @ keys.swapaxes(-1, -2)) / q.shape[-1] ** 0.5
            weights = jax.nn.softmax(jnp.where(mask_TC, scores, -1e30), -1)
            x = x + _linear((weights @ values).transpose(0, 2, 1, 3).reshape(B, T, -1), block["out"])
            x = x + _linear(jax.nn.gelu(_linear(_layer_norm(x, block["norm2"]), block["up"]), approximate=True), block["down"])
        return jnp.argmax(_layer_norm(x[:, -1], p["norm"]) @ p["tokens"].T, -1), cache
