"""Reading an image at places that a grid gives, and the gradients.

Shapes: input [N, C, *spatial], grid [N, *out, dims], whose last dimension counts from the innermost spatial one; its values run
from -1 to 1.
Source: aten/src/ATen/native/GridSampler.h. The gradients are JAX's, of the same formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from torchtpu.rules._numbers import constant
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_CUBIC_A = -0.75


def _unnormalised(place: Array, size: int, align_corners: bool) -> Array:
    """From [-1, 1] to pixels."""
    half = constant(0.5, place.dtype)
    if align_corners:
        return (place + constant(1, place.dtype)) * constant((size - 1) / 2, place.dtype)
    return ((place + constant(1, place.dtype)) * constant(size, place.dtype) - constant(1, place.dtype)) * half


def _reflected(place: Array, low: float, high: float) -> Array:
    """Back and forth between two walls."""
    span = high - low
    if span == 0:
        return jnp.zeros_like(place)
    away = jnp.abs(place - constant(low, place.dtype))
    flips = jnp.floor(away / constant(span, place.dtype))
    extra = away - flips * constant(span, place.dtype)
    even = flips % constant(2, place.dtype) == 0
    return jnp.where(even, extra + constant(low, place.dtype), constant(high, place.dtype) - extra)


def _padded(place: Array, size: int, padding: int, align_corners: bool) -> Array:
    if padding == _REFLECTION:
        low, high = (0, size - 1) if align_corners else (-0.5, size - 0.5)
        place = _reflected(place, low, high)
    if padding != _ZEROS:
        place = jnp.clip(place, constant(0, place.dtype), constant(size - 1, place.dtype))
    return place


def _read(image: Array, places: Sequence[Array]) -> Array:
    """Pixels [N, C, *out] at whole places, zero outside of the image."""
    sizes = image.shape[2:]
    inside, flat = None, None
    for place, size in zip(places, sizes, strict=True):
        good = (place >= constant(0, place.dtype)) & (place <= constant(size - 1, place.dtype))
        inside = good if inside is None else inside & good
        whole = jnp.clip(place, constant(0, place.dtype), constant(size - 1, place.dtype)).astype(np.int32)
        flat = whole if flat is None else flat * np.int32(size) + whole
    assert inside is not None and flat is not None
    batch, channels = image.shape[:2]
    pixels = image.reshape(batch, channels, -1)
    whole_pixels = jax.vmap(lambda image, at: jnp.take(image, at, axis=1, mode="clip"))  # every channel with one index
    values = whole_pixels(pixels, flat.reshape(batch, -1)).reshape(batch, channels, *flat.shape[1:])
    return jnp.where(inside[:, None], values, constant(0, values.dtype))


def _linear(image: Array, places: Sequence[Array]) -> Array:
    corners = [jax.lax.stop_gradient(jnp.floor(place)) for place in places]
    total = None
    for offsets in itertools.product((0, 1), repeat=len(places)):
        weight = None
        for place, corner, offset in zip(places, corners, offsets, strict=True):
            near = place - corner
            share = near if offset else constant(1, place.dtype) - near
            weight = share if weight is None else weight * share
        shifted = [corner + constant(offset, corner.dtype) for corner, offset in zip(corners, offsets, strict=True)]
        assert weight is not None
        part = _read(image, shifted) * weight[:, None]
        total = part if total is None else total + part
    assert total is not None
    return total


def _cubic_weight(x: Array, tap: int) -> Array:
    distance = jnp.abs(x - constant(tap, x.dtype))
    a = _CUBIC_A
    if tap in (0, 1):
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


def _cubic(image: Array, places: Sequence[Array], padding: int, align_corners: bool) -> Array:
    corners = [jax.lax.stop_gradient(jnp.floor(place)) for place in places]
    total = None
    for taps in itertools.product(range(-1, 3), repeat=2):
        weights = [_cubic_weight(p - c, tap) for p, c, tap in zip(places, corners, taps, strict=True)]
        shifted = [
            _padded(c + constant(tap, c.dtype), size, padding, align_corners)
            for c, tap, size in zip(corners, taps, image.shape[2:], strict=True)
        ]
        part = _read(image, shifted) * (weights[0] * weights[1])[:, None]
        total = part if total is None else total + part
    assert total is not None
    return total


def sample(image: Array, grid: Array, mode: int, padding: int, align_corners: bool) -> Array:
    """The image at the places of the grid."""
    sizes = image.shape[2:]
    raw = [_unnormalised(grid[..., len(sizes) - 1 - d], size, align_corners) for d, size in enumerate(sizes)]
    if mode == _BICUBIC:
        return _cubic(image, raw, padding, align_corners)
    places = [_padded(place, size, padding, align_corners) for place, size in zip(raw, sizes, strict=True)]
    return _linear(image, places) if mode == _BILINEAR else _read(image, [jnp.round(place) for place in places])


@lower("aten::grid_sampler_2d", "aten::grid_sampler_3d")
def aten_grid_sampler(
    ctx: RuleContext, input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """The image at the places of a grid, in two or three dimensions."""
    return sample(widen(input), widen(grid), interpolation_mode, padding_mode, align_corners)


@lower("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward")
def aten_grid_sampler_backward(
    ctx: RuleContext, grad_output: Array, input: Array, grid: Array, interpolation_mode: int, padding_mode: int,
    align_corners: bool, output_mask: Sequence[bool],
) -> tuple[Array | None, Array]:
    """The gradients of the image and of the grid; at the very border of the image that of the grid is a choice of JAX's."""
    image, places = widen(input), widen(grid)
    _, pull = jax.vjp(lambda x, g: sample(x, g, interpolation_mode, padding_mode, align_corners), image, places)
    grad_input, grad_grid = pull(widen(grad_output))
    return grad_input if output_mask[0] else None, grad_grid
