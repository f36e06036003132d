"""The operators of `ops.py`: the inputs of each, its PyTorch call, and the same computation written by hand in JAX.

Sizes are large enough for a call to take milliseconds on two cores, so that launching a program does not count. Axes: B batch,
C channels, H height, W width, N rows, D columns, T time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from jax import lax

from benchmarks import op_jax

Make = Callable[[torch.Generator], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """One operator. ``gradients``: the inputs that are differentiated, none if the operator has no gradient.

    ``dynamic``: the shape of the result depends on values, so JAX cannot jit it and runs it eagerly. ``random``: results of the
    sides are not comparable.
    """

    name: str
    sizes: str
    make: Make
    in_torch: Callable[..., Any]
    in_jax: Callable[..., Any]
    gradients: tuple[int, ...] = (0,)
    dynamic: bool = False
    random: bool = False


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Make:
    """Inputs from the normal distribution."""
    return lambda g: tuple(torch.randn(shape, generator=g).to(dtype) for shape in shapes)


def indexed(shape: tuple[int, ...], index: tuple[int, ...], below: int, *more: tuple[int, ...]) -> Make:
    """Normal values, indices, and more normal values."""
    return lambda g: (torch.randn(shape, generator=g), torch.randint(below, index, generator=g),
                      *(torch.randn(m, generator=g) for m in more))


def _permuted_rows(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(65536, 64, generator=g), torch.randperm(65536, generator=g)[:32768], torch.randn(32768, 64, generator=g)


def _permutations(rows: int, columns: int) -> Make:
    """Without equal values in a row, whose order, and so their gradient, is anybody's."""
    return lambda g: (torch.randn(rows, columns, generator=g).argsort(1).argsort(1) / columns,)


def _positive_definite(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    a = torch.randn(512, 512, generator=g)
    return (a @ a.T / 512 + torch.eye(512),)


def _masked(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(2048, 2048, generator=g), torch.randn(2048, 1, generator=g), torch.rand(2048, 2048, generator=g) > 0.5


def _grid(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(8, 32, 64, 64, generator=g), 2.2 * torch.rand(8, 64, 64, 2, generator=g) - 1.1


def _lstm(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    shapes = ((16, 32, 256), (1, 32, 256), (1, 32, 256), (1024, 256), (1024, 256), (1024,), (1024,))
    return tuple(0.05 * torch.randn(shape, generator=g) for shape in shapes)


def _speech(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(150, 32, 64, generator=g), torch.randint(1, 64, (32, 30), generator=g)


def _integers(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return (torch.randint(50_000, (200_000,), generator=g, dtype=torch.int32),)


def _lstm_in_torch(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    return torch.lstm(x, (h, c), weights, True, 1, 0.0, True, False, False)[0]


def _ctc_in_torch(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of logits, because PyTorch's gradient holds only behind a log_softmax."""
    T, B, _ = logits.shape
    lengths = torch.full((B,), T), torch.full((B,), targets.shape[1])
    return F.ctc_loss(logits.log_softmax(2), targets, *lengths, reduction="sum")


def _svd_in_torch(x: torch.Tensor) -> torch.Tensor:
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    return (u * s.sqrt()) @ vh


NN = (
    Case("conv2d", "8x32x56x56, 64 of 3x3", normal((8, 32, 56, 56), (64, 32, 3, 3)),
         lambda x, w: F.conv2d(x, w, padding=1), lambda x, w: op_jax.convolution(x, w, 1), (0, 1)),
    Case("conv2d, depthwise", "8x64x56x56, 3x3", normal((8, 64, 56, 56), (64, 1, 3, 3)),
         lambda x, w: F.conv2d(x, w, padding=1, groups=64), lambda x, w: op_jax.convolution(x, w, 1, 64), (0, 1)),
    Case("batch_norm, training", "16x64x56x56", normal((16, 64, 56, 56), (64,), (64,)),
         lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), op_jax.batch_norm, (0, 1, 2)),
    Case("layer_norm", "4096x768", normal((4096, 768), (768,), (768,)),
         lambda x, w, b: F.layer_norm(x, (768,), w, b), op_jax.layer_norm, (0, 1, 2)),
    Case("rms_norm", "4096x768", normal((4096, 768), (768,)),
         lambda x, w: F.rms_norm(x, (768,), w, 1e-6), op_jax.rms_norm, (0, 1)),
    Case("softmax", "4096x1024", normal((4096, 1024)), lambda x: F.softmax(x, 1), lambda x: jax.nn.softmax(x, 1)),
    Case("cross_entropy", "1024x8192", indexed((1024, 8192), (1024,), 8192), F.cross_entropy, op_jax.cross_entropy),
    Case("attention, causal", "4x8x256x64", normal(*[(4, 8, 256, 64)] * 3),
         lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), op_jax.attention, (0, 1, 2)),
    Case("embedding", "32000x256, 8x512", indexed((32000, 256), (8, 512), 32000),
         lambda w, i: F.embedding(i, w), lambda w, i: w[i]),
    Case("max_pool2d", "16x32x112x112, 3x3", normal((16, 32, 112, 112)),
         lambda x: F.max_pool2d(x, 3, 2, 1), op_jax.max_pool),
    Case("interpolate, bilinear", "8x32x64x64, twice", normal((8, 32, 64, 64)),
         lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
         lambda x: jax.image.resize(x, (8, 32, 128, 128), "bilinear", antialias=False)),
    Case("grid_sample", "8x32x64x64", _grid, lambda x, g: F.grid_sample(x, g, align_corners=False), op_jax.grid_sample, (0, 1)),
    Case("gelu", "4096x1024", normal((4096, 1024)), F.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
    Case("dropout", "4096x1024", normal((4096, 1024)), lambda x: F.dropout(x, 0.1), op_jax.dropout, random=True),
    Case("lstm", "16 steps, 32x256", _lstm, _lstm_in_torch, op_jax.lstm, (0, 1, 2, 3, 4, 5, 6)),
    Case("log_softmax and ctc_loss", "150x32x64, 30", _speech, _ctc_in_torch, op_jax.ctc_loss),
)

TENSORS = (
    Case("matmul", "768x768", normal((768, 768), (768, 768)), torch.matmul, jnp.matmul, (0, 1)),
    Case("matmul, bfloat16", "384x384", normal((384, 384), (384, 384), dtype=torch.bfloat16), torch.matmul, jnp.matmul, (0, 1)),
    Case("einsum", "bqhd,bkhd->bhqk, 4x256x8x64", normal(*[(4, 256, 8, 64)] * 2),
         lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k), (0, 1)),
    Case("sum of rows", "4096x1024", normal((4096, 1024)), lambda x: x.sum(0), lambda x: x.sum(0)),
    Case("gather", "2048x1024, 512 each", indexed((2048, 1024), (2048, 512), 1024),
         lambda x, i: x.gather(1, i), lambda x, i: jnp.take_along_axis(x, i, 1)),
    Case("scatter_add", "2048x1024, 512 each", indexed((2048, 1024), (2048, 512), 1024, (2048, 512)),
         lambda x, i, s: x.scatter_add(1, i, s), op_jax.scatter_add, (0, 2)),
    Case("index_put", "65536x64, 32768 rows", _permuted_rows,
         lambda x, i, v: x.index_put((i,), v), lambda x, i, v: x.at[i].set(v), (0, 2)),
    Case("cumsum", "2048x1024", normal((2048, 1024)), lambda x: x.cumsum(1), lambda x: jnp.cumsum(x, 1)),
    Case("sort", "256x2048", _permutations(256, 2048), lambda x: x.sort(1)[0], lambda x: jnp.sort(x, 1)),
    Case("topk", "256x8192, 50", _permutations(256, 8192), lambda x: x.topk(50, 1)[0], lambda x: lax.top_k(x, 50)[0]),
    Case("where", "2048x2048, broadcast", _masked, lambda x, y, m: torch.where(m, x, y),
         lambda x, y, m: jnp.where(m, x, y), (0, 1)),
    Case("cat", "4 of 1024x1024", normal(*[(1024, 1024)] * 4),
         lambda *xs: torch.cat(xs, 1), lambda *xs: jnp.concatenate(xs, 1), (0, 1, 2, 3)),
    Case("rfft", "512x4096", normal((512, 4096)), lambda x: torch.view_as_real(torch.fft.rfft(x)), op_jax.rfft),
    Case("svd", "192x192", normal((192, 192)), _svd_in_torch, op_jax.svd),
    Case("cholesky", "512x512", _positive_definite, torch.linalg.cholesky, jnp.linalg.cholesky),
    Case("unique", "200,000 integers", _integers, torch.unique, jnp.unique, (), dynamic=True),
    Case("nonzero", "2048x1024", lambda g: (torch.rand(2048, 1024, generator=g) > 0.9,),
         lambda x: x.nonzero(), jnp.argwhere, (), dynamic=True),
)

CASES = (*NN, *TENSORS)
