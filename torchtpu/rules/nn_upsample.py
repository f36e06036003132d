"""Resizing of the trailing one to three dimensions, and gradients.

Each mode is a constant matrix [out, in] an axis: resizing multiplies with it, the gradient with its transpose. Nearest
neighbours are copied instead, so that infinities and integers pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.nn_pool_adaptive import apply_along
from torchtpu.rules.registry import lower_table

Array = jax.Array
Ints = Sequence[int]

# Coefficient of the cubic convolution kernel (Keys, 1981) that PyTorch uses.
_CUBIC_A = -0.75


def _ratio(size: int, out: int, align_corners: bool, scale: float | None) -> float:
    """Input steps an output step."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else size / out


def _nearest_index(size: int, out: int, exact: bool, scale: float | None) -> np.ndarray:
    """The input place that each output place copies; float32 as in ATen, or places on a boundary would differ."""
    ratio = np.float32(_ratio(size, out, False, scale))
    places = np.arange(out, dtype=np.float32)
    source = np.floor((places + np.float32(0.5)) * ratio) if exact else np.floor(places * ratio)
    return np.minimum(source.astype(np.int32), size - 1)


def _is_repeat(index: np.ndarray, size: int, out: int) -> bool:
    """Whether every input place is copied the same number of times."""
    return out % size == 0 and np.array_equal(index, np.arange(out) // (out // size))


def _source(size: int, out: int, align_corners: bool, scale: float | None, dtype: np.dtype) -> np.ndarray:
    ratio = np.asarray(_ratio(size, out, align_corners, scale), dtype)
    places = np.arange(out, dtype=dtype)
    return places * ratio if align_corners else (places + dtype.type(0.5)) * ratio - dtype.type(0.5)


def _linear_matrix(size: int, out: int, align_corners: bool, scale: float | None, dtype: np.dtype) -> np.ndarray:
    source = np.maximum(_source(size, out, align_corners, scale, dtype), 0)
    low = np.minimum(np.floor(source).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    weight = np.minimum(source - low, 1)
    matrix = np.zeros((out, size), dtype)
    rows = np.arange(out)
    np.add.at(matrix, (rows, low), 1 - weight)
    np.add.at(matrix, (rows, high), weight)
    return matrix


def _cubic_matrix(size: int, out: int, align_corners: bool, scale: float | None, dtype: np.dtype) -> np.ndarray:
    source = _source(size, out, align_corners, scale, dtype)
    base = np.floor(source)
    matrix = np.zeros((out, size), dtype)
    for tap in range(-1, 3):
        x = np.abs(source - base - tap)
        near = ((_CUBIC_A + 2) * x - (_CUBIC_A + 3)) * x * x + 1
        far = ((_CUBIC_A * x - 5 * _CUBIC_A) * x + 8 * _CUBIC_A) * x - 4 * _CUBIC_A
        column = np.clip(base.astype(np.int64) + tap, 0, size - 1)
        np.add.at(matrix, (np.arange(out), column), np.where(x <= 1, near, far))
    return matrix


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    """The cubic convolution kernel with the coefficient -0.5 of the Python Imaging Library."""
    x = np.abs(x)
    return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialiased(kernel: Callable[[np.ndarray], np.ndarray], reach: int) -> Matrix:
    """The matrix of a kernel, of this many input steps to each side, that is stretched over what an output place covers.

    Source: ``_compute_indices_min_size_weights_aa`` (aten/src/ATen/native/cpu/UpSampleKernel.cpp).
    """

    def matrix(size: int, out: int, align_corners: bool, scale: float | None, dtype: np.dtype) -> np.ndarray:
        ratio = np.asarray(_ratio(size, out, align_corners, scale), dtype)
        stretch = np.maximum(ratio, dtype.type(1))
        center = (ratio * (np.arange(out, dtype=dtype) + dtype.type(0.5)))[:, None]
        first = np.maximum((center - reach * stretch + dtype.type(0.5)).astype(np.int64), 0)
        end = np.minimum((center + reach * stretch + dtype.type(0.5)).astype(np.int64), size)
        place = np.arange(size)
        weight = kernel((place - center + dtype.type(0.5)) / stretch) * ((place >= first) & (place < end))
        total = weight.sum(1, keepdims=True)
        return (weight / np.where(total == 0, 1, total)).astype(dtype)

    return matrix


Matrix = Callable[[int, int, bool, float | None, np.dtype], np.ndarray]
SMOOTH: dict[str, tuple[int, Matrix]] = {
    "upsample_linear1d": (1, _linear_matrix),
    "upsample_bilinear2d": (2, _linear_matrix),
    "upsample_trilinear3d": (3, _linear_matrix),
    "upsample_bicubic2d": (2, _cubic_matrix),
    "_upsample_bilinear2d_aa": (2, _antialiased(_triangle, 1)),
    "_upsample_bicubic2d_aa": (2, _antialiased(_cubic, 2)),
    "_upsample_lanczos2d_aa": (2, _antialiased(_lanczos, 3)),
}
NEAREST: dict[str, tuple[int, bool]] = {
    "upsample_nearest1d": (1, False),
    "upsample_nearest2d": (2, False),
    "upsample_nearest3d": (3, False),
    "_upsample_nearest_exact1d": (1, True),
    "_upsample_nearest_exact2d": (2, True),
    "_upsample_nearest_exact3d": (3, True),
}


def _fixed_point(matrix: np.ndarray) -> np.ndarray:
    """Weights rounded to as many binary places as fit 16 bits, as ATen does to resize bytes.

    Their products with bytes, and sums of these, are exact in float32.
    Source: ``_compute_index_ranges_int16_weights`` (aten/src/ATen/native/cpu/UpSampleKernel.cpp).
    """
    largest = matrix.max(initial=0)
    places = next(n for n in range(23) if n == 22 or int(0.5 + largest * 2 ** (n + 1)) >= 2**15)
    return (np.trunc(matrix * 2**places + np.copysign(0.5, matrix)) / 2**places).astype(np.float32)


def _make_smooth(spec: tuple[int, Matrix]) -> Callable[..., Array]:
    num_dims, matrix = spec

    def rule(ctx: RuleContext, self: Array, output_size: Ints, align_corners: bool, *scales: float | None,
             **named: float | None) -> Array:
        x = widen(self)
        # From the last axis to the first, as ATen goes: it rounds bytes, halves upwards, after each one.
        for axis, out, scale in reversed(_axes(num_dims, output_size, scales, named)):
            bytes_given = self.dtype == np.uint8
            if x.shape[axis] == out and (scale is None or bytes_given):
                continue
            if bytes_given:
                weights = _fixed_point(matrix(x.shape[axis], out, align_corners, scale, np.dtype(np.float64)))
                x = jnp.clip(jnp.floor(apply_along(x.astype(np.float32), weights, axis) + 0.5), 0, 255)
            else:
                x = apply_along(x, matrix(x.shape[axis], out, align_corners, scale, x.dtype), axis)
        return x

    return rule


def _make_smooth_backward(spec: tuple[int, Matrix]) -> Callable[..., Array]:
    num_dims, matrix = spec

    def rule(ctx: RuleContext, grad_output: Array, output_size: Ints, input_size: Ints, align_corners: bool,
             *scales: float | None, **named: float | None) -> Array:
        g = widen(grad_output)
        for axis, out, scale in _axes(num_dims, output_size, scales, named):
            g = apply_along(g, matrix(input_size[axis], out, align_corners, scale, g.dtype).T, axis)
        return g

    return rule


def _make_nearest(spec: tuple[int, bool]) -> Callable[..., Array]:
    num_dims, exact = spec

    def rule(ctx: RuleContext, self: Array, output_size: Ints, *scales: float | None, **named: float | None) -> Array:
        x = self
        for axis, out, scale in _axes(num_dims, output_size, scales, named):
            index = _nearest_index(x.shape[axis], out, exact, scale)
            if _is_repeat(index, x.shape[axis], out):
                x = jnp.repeat(x, out // x.shape[axis], axis=axis)
            else:
                x = jnp.take(x, index, axis=axis, mode="clip")
        return x

    return rule


def _make_nearest_backward(spec: tuple[int, bool]) -> Callable[..., Array]:
    num_dims, exact = spec

    def rule(ctx: RuleContext, grad_output: Array, output_size: Ints, input_size: Ints, *scales: float | None,
             **named: float | None) -> Array:
        g = widen(grad_output)
        for axis, out, scale in _axes(num_dims, output_size, scales, named):
            size = input_size[axis]
            index = _nearest_index(size, out, exact, scale)
            if _is_repeat(index, size, out):
                g = g.reshape(*g.shape[:axis], size, out // size, *g.shape[axis + 1:]).sum(axis + 1)
            else:
                g = apply_along(g, (index == np.arange(size)[:, None]).astype(g.dtype), axis)
        return g

    return rule


def _axes(num_dims: int, output_size: Ints, scales: Sequence[float | None],
          named: dict[str, float | None]) -> list[tuple[int, int, float | None]]:
    """Axis, output size and given scale of each resized dimension. Schemas list the scales in the order of the axes."""
    given = (*scales, *named.values())
    given = (*given, *(None,) * (num_dims - len(given)))
    return [(axis, output_size[axis - 2], given[axis - 2]) for axis in range(2, 2 + num_dims)]


lower_table({f"aten::{name}": spec for name, spec in SMOOTH.items()}, _make_smooth)
lower_table({f"aten::{name}_backward": spec for name, spec in SMOOTH.items()}, _make_smooth_backward)
lower_table({f"aten::{name}": spec for name, spec in NEAREST.items()}, _make_nearest)
lower_table({f"aten::{name}_backward": spec for name, spec in NEAREST.items()}, _make_nearest_backward)
