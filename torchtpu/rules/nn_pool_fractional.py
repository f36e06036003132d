"""Fractional maximum pooling: windows of one size that begin at places drawn for every image and channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import rounded
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.nn_pool import first_maximum, scatter_plane
from torchtpu.rules.registry import lower_table


def _begins(sample_P1: Array, size: int, out: int, kernel: int) -> Array:
    """Where the windows along one dimension begin: an irregular walk whose last step ends at the edge.

    Rounded after each operation as ATen does in the dtype of the samples, or windows would differ.
    """
    if out == 1:
        return jnp.full(sample_P1.shape, size - kernel, np.int32)
    wide, narrow = widen(sample_P1), sample_P1.dtype
    step = rounded(jnp.asarray((size - kernel) / (out - 1), wide.dtype), narrow)
    place = rounded(jnp.arange(out, dtype=wide.dtype) + wide, narrow)
    begins = rounded(place * step, narrow).astype(np.int32) - rounded(wide * step, narrow).astype(np.int32)
    return begins.at[:, -1].set(size - kernel)


def _make_fractional(num_dims: int) -> Callable[..., tuple[Array, Array]]:
    def rule(
        ctx: RuleContext, self: Array, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Array
    ) -> tuple[Array, Array]:
        if 0 in ctx.out_shape:
            return jnp.zeros(ctx.out_shape, self.dtype), jnp.zeros(ctx.out_shape, np.int32)
        spatial = self.shape[self.ndim - num_dims:]
        planes = self.reshape(-1, *spatial)
        sample_PD = random_samples.reshape(-1, num_dims)[:planes.shape[0]]  # there may be more than images
        if num_dims == 2:  # of two dimensions, the numbers of the last come first
            sample_PD = sample_PD[:, ::-1]
        begins = [
            _begins(sample_PD[:, dim, None], spatial[dim], output_size[dim], kernel_size[dim]) for dim in range(num_dims)
        ]

        def slices(array: Array, dim: int, fill: Any) -> Iterator[Array]:
            begin = jnp.expand_dims(begins[dim], [1 + other for other in range(num_dims) if other != dim])
            for offset in range(kernel_size[dim]):
                yield jnp.take_along_axis(array, begin + np.int32(offset), 1 + dim, mode="clip")

        values, indices = first_maximum(planes, num_dims, slices)
        return values.reshape(ctx.out_shape), indices.reshape(ctx.out_shape)

    return rule


def _make_fractional_backward(num_dims: int) -> Callable[..., Array]:
    def rule(
        ctx: RuleContext, grad_output: Array, self: Array, kernel_size: Sequence[int], output_size: Sequence[int], indices: Array
    ) -> Array:
        grad = widen(grad_output)
        return scatter_plane(grad, indices, self.shape, num_dims) if math.prod(grad.shape) else jnp.zeros(self.shape, grad.dtype)

    return rule


lower_table({"aten::fractional_max_pool2d": 2, "aten::fractional_max_pool3d": 3}, _make_fractional)
lower_table({"aten::fractional_max_pool2d_backward": 2, "aten::fractional_max_pool3d_backward": 3}, _make_fractional_backward)
