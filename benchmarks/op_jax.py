"""Operators written by hand in JAX, as one would who knows it: what `ops.py` measures against."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax


def convolution(x_BCHW: Array, w: Array, padding: int, groups: int = 1) -> Array:
    """A convolution of images in PyTorch's layout."""
    return lax.conv_general_dilated(
        x_BCHW, w, (1, 1), [(padding, padding)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups)


def batch_norm(x_BCHW: Array, w: Array, b: Array) -> Array:
    """Normalised over everything but channels."""
    mean, variance = x_BCHW.mean((0, 2, 3), keepdims=True), x_BCHW.var((0, 2, 3), keepdims=True)
    return (x_BCHW - mean) * lax.rsqrt(variance + 1e-5) * w[:, None, None] + b[:, None, None]


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    """Normalised over the last axis."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * w + b


def rms_norm(x: Array, w: Array) -> Array:
    """Divided by the root mean square."""
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


def cross_entropy(logits: Array, targets: Array) -> Array:
    """The mean of the negative log-likelihoods."""
    return (jax.nn.logsumexp(logits, 1) - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]).mean()


def attention(q_BHTD: Array, k_BHTD: Array, v_BHTD: Array) -> Array:
    """Causal attention."""
    T, D = q_BHTD.shape[2:]
    scores = jnp.einsum("bhqd,bhkd->bhqk", q_BHTD, k_BHTD) * D**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((T, T), bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v_BHTD)


def max_pool(x_BCHW: Array) -> Array:
    """Windows of 3x3, every second one."""
    return lax.reduce_window(x_BCHW, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])


def grid_sample(x_BCHW: Array, grid_BHW2: Array) -> Array:
    """Bilinear, zero outside, corners not aligned: four gathers of whole pixels."""
    _, _, H, W = x_BCHW.shape
    x = ((grid_BHW2[..., 0] + 1) * W - 1) / 2
    y = ((grid_BHW2[..., 1] + 1) * H - 1) / 2
    left, top = jnp.floor(x), jnp.floor(y)

    def corner(image_CHW: Array, column: Array, row: Array, weight: Array) -> Array:
        inside = (column >= 0) & (column < W) & (row >= 0) & (row < H)
        i, j = jnp.clip(row, 0, H - 1).astype(int), jnp.clip(column, 0, W - 1).astype(int)
        return image_CHW[:, i, j] * jnp.where(inside, weight, 0)

    total = 0
    for column, across in ((left, left + 1 - x), (left + 1, x - left)):
        for row, down in ((top, top + 1 - y), (top + 1, y - top)):
            total += jax.vmap(corner)(x_BCHW, column, row, across * down)
    return total


def dropout(x: Array) -> Array:
    """A tenth of the values becomes zero; the key is a constant, as if it had been split outside."""
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x / 0.9, 0)


def lstm(x_TBD: Array, h: Array, c: Array, w_in: Array, w_hidden: Array, b_in: Array, b_hidden: Array) -> Array:
    """One layer: the products with the inputs at once, then a scan."""
    given = x_TBD @ w_in.T + (b_in + b_hidden)

    def step(state: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, f, g, o = jnp.split(row + h @ w_hidden.T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h[0], c[0]), given)[1]


def ctc_loss(logits_TBC: Array, targets_BS: Array) -> Array:
    """The sum of the losses, whole sequences, blank 0: the forward variables by a scan over time."""
    B, S = targets_BS.shape
    labels = jnp.zeros((B, 2 * S + 1), targets_BS.dtype).at[:, 1::2].set(targets_BS)
    emitted = jnp.take_along_axis(jax.nn.log_softmax(logits_TBC, 2), labels[None], 2)
    skips = jnp.pad((labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != 0), ((0, 0), (2, 0)))
    low = -1e30

    def step(alpha: Array, row: Array) -> tuple[Array, None]:
        one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=low)
        two = jnp.where(skips, jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=low), low)
        return jax.nn.logsumexp(jnp.stack([alpha, one, two]), 0) + row, None

    first = jnp.where(jnp.arange(2 * S + 1) < 2, emitted[0], low)
    alpha, _ = lax.scan(step, first, emitted[1:])
    return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).sum()


def scatter_add(x: Array, index: Array, source: Array) -> Array:
    """Along the second axis."""
    return x.at[jnp.arange(x.shape[0])[:, None], index].add(source)


def rfft(x: Array) -> Array:
    """Real and imaginary parts side by side."""
    y = jnp.fft.rfft(x)
    return jnp.stack([y.real, y.imag], -1)


def svd(x: Array) -> Array:
    """All three factors, with square roots of the singular values."""
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    return (u * jnp.sqrt(s)) @ vh


def adamw(state: tuple, gradients: list[Array]) -> tuple:
    """One step, as torch.optim.AdamW with its defaults."""
    p, m, v, n = state
    n = n + 1
    m = [0.9 * a + 0.1 * g for a, g in zip(m, gradients, strict=True)]
    v = [0.999 * a + 0.001 * g * g for a, g in zip(v, gradients, strict=True)]
    one, two = 1 - 0.9**n, jnp.sqrt(1 - 0.999**n)
    p = [a * (1 - 1e-5) - 1e-3 / one * b / (jnp.sqrt(c) / two + 1e-8) for a, b, c in zip(p, m, v, strict=True)]
    return p, m, v, n
