"""Rows of pooling and resizing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import F32, FLOATS, U8, Make, Row, Sample, Samples, call, rows

aten = torch.ops.aten


def image(t: Make, n: int, size: int = 6) -> torch.Tensor:
    return t(2, 3, *[size] * n)


def pool(n: int, *tails: tuple[Any, ...]) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for tail in tails:
            yield call(t.distinct(2, 3, *[6] * n) if t.dtype == torch.float32 else image(t, n), *tail)

    return samples


def max_backward(n: int) -> Samples:
    forward = aten.max_pool2d_with_indices if n == 2 else aten.max_pool3d_with_indices

    def samples(t: Make) -> Iterator[Sample]:
        for tail in (([2] * n, [2] * n, [0] * n, [1] * n, False), ([3] * n, [2] * n, [1] * n, [1] * n, True)):
            x = image(t, n)
            out, indices = forward(x, *tail)
            yield call(t(*out.shape), x, *tail, indices)

    return samples


def avg_backward(n: int) -> Samples:
    forward = aten.avg_pool2d if n == 2 else aten.avg_pool3d

    def samples(t: Make) -> Iterator[Sample]:
        for tail in (([2] * n, [2] * n, [0] * n, False, True, None), ([3] * n, [2] * n, [1] * n, True, False, None)):
            x = image(t, n)
            yield call(t(*forward(x, *tail).shape), x, *tail)

    return samples


def adaptive(n: int) -> Samples:
    return pool(n, ([3] * n,), ([4] + [1] * (n - 1),), ([6] * n,))


def adaptive_backward(n: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        yield call(t(2, 3, *[4] * n), image(t, n))
        yield call(t(2, 3, *[1] * n), image(t, n))

    return samples


def adaptive_max_backward(n: int) -> Samples:
    forward = aten.adaptive_max_pool2d if n == 2 else aten.adaptive_max_pool3d

    def samples(t: Make) -> Iterator[Sample]:
        x = image(t, n)
        out, indices = forward(x, [4] * n)
        yield call(t(*out.shape), x, indices)

    return samples


def resized(n: int, *options: Any) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        if t.dtype == U8:  # in fixed point, rounded after each axis: the same to the last bit
            for size in ([4, 9], [13, 5], [6, 7]):
                yield call(t(2, 3, 8, 7, low=0, high=255), size, *options)
                yield call(t(1, 5, 8, 7, low=0, high=255), size, *options, 0.6, 1.3)
            return
        for size in ([8] * n, [3] * n):
            yield call(image(t, n, 5), size, *options)
        yield call(image(t, n, 4), [8] * n, *options, *[2.0] * n)

    return samples


def resized_backward(n: int, *options: Any) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for size in ([8] * n, [3] * n):
            yield call(t(2, 3, *size), size, [2, 3, *[5] * n], *options)

    return samples


def fractional(n: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for kernel, out in ((2, 3), (3, 2), (2, 1)):
            yield call(image(t, n), [kernel] * n, [out] * n, t(2, 3, n, low=0, high=1))
        for images in (1, 2):  # more than there are
            yield call(image(t, n)[0], [2] * n, [3] * n, t(images, 3, n, low=0, high=1))

    return samples


def fractional_backward(n: int) -> Samples:
    forward = aten.fractional_max_pool2d if n == 2 else aten.fractional_max_pool3d

    def samples(t: Make) -> Iterator[Sample]:
        for sample in fractional(n)(t):
            out, indices = forward(*sample.args)
            yield call(t(*out.shape), *sample.args[:3], indices)

    return samples


PADDINGS = ([2, 1, 1, 0, 0, 2], [1, -2, -1, 2, 0, 0], [0, 0, 0, 0, 0, 0])


def pad(n: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for padding in PADDINGS:
            yield call(image(t, n, 4), padding[:2 * n])
        yield call(image(t, n, 4)[0], [1, 2] * n)

    return samples


def pad_backward(n: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for sample in pad(n)(t):
            x, padding = sample.args
            yield call(t(*aten.constant_pad_nd(x, padding).shape), x, padding)

    return samples


def too_large(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(1, 1, 3, 3), [5, 5])


MAX = (([2, 2],), ([3, 3], [2, 2], [1, 1], [1, 1], True), ([2, 2], [1, 1], [0, 0], [2, 2], False))
AVG = (([2, 2],), ([3, 3], [2, 2], [1, 1], True, False), ([2, 2], [2, 2], [1, 1], False, True, 3))
KERNELS = ("bilinear", "bicubic", "lanczos")
PADS = ("reflection", "replication")

ROWS: list[Row] = [
    Row("aten::max_pool2d_with_indices", pool(2, *MAX), FLOATS, grads=True, errors=too_large),
    Row("aten::max_pool3d_with_indices", pool(3, ([2] * 3,), ([3] * 3, [2] * 3, [1] * 3)), (F32,), grads=True),
    Row("aten::max_pool2d_with_indices_backward", max_backward(2), FLOATS),
    Row("aten::max_pool3d_with_indices_backward", max_backward(3), (F32,)),
    Row("aten::avg_pool2d", pool(2, *AVG), FLOATS, grads=True, errors=too_large),
    Row("aten::avg_pool3d", pool(3, ([2] * 3,), ([3] * 3, [2] * 3, [1] * 3, False, False)), (F32,), grads=True),
    Row("aten::avg_pool2d_backward", avg_backward(2), FLOATS),
    Row("aten::avg_pool3d_backward", avg_backward(3), (F32,)),
    Row("aten::_adaptive_avg_pool2d", adaptive(2), FLOATS, grads=True),
    Row("aten::_adaptive_avg_pool3d", adaptive(3), (F32,), grads=True),
    Row("aten::_adaptive_avg_pool2d_backward", adaptive_backward(2), FLOATS),
    Row("aten::_adaptive_avg_pool3d_backward", adaptive_backward(3), (F32,)),
    Row("aten::adaptive_max_pool2d", adaptive(2), (F32,), grads=True),
    Row("aten::adaptive_max_pool3d", adaptive(3), (F32,), grads=True),
    Row("aten::adaptive_max_pool2d_backward", adaptive_max_backward(2), (F32,)),
    Row("aten::adaptive_max_pool3d_backward", adaptive_max_backward(3), (F32,), dense=True),  # PyTorch's reads others wrongly
    *rows(["aten::upsample_nearest1d", "aten::_upsample_nearest_exact1d"], resized(1), FLOATS, grads=True),
    *rows(["aten::upsample_nearest2d", "aten::_upsample_nearest_exact2d"], resized(2), FLOATS, grads=True),
    *rows(["aten::upsample_nearest3d", "aten::_upsample_nearest_exact3d"], resized(3), (F32,), grads=True),
    Row("aten::upsample_linear1d", resized(1, False), FLOATS, grads=True),
    Row("aten::upsample_bilinear2d", resized(2, True), (*FLOATS, U8), grads=True),
    Row("aten::upsample_trilinear3d", resized(3, False), (F32,), grads=True),
    Row("aten::upsample_bicubic2d", resized(2, False), (*FLOATS, U8), grads=True),
    *rows(["aten::upsample_nearest1d_backward", "aten::_upsample_nearest_exact1d_backward"], resized_backward(1), FLOATS),
    *rows(["aten::upsample_nearest2d_backward", "aten::_upsample_nearest_exact2d_backward"], resized_backward(2), FLOATS),
    *rows(["aten::upsample_nearest3d_backward", "aten::_upsample_nearest_exact3d_backward"], resized_backward(3), (F32,)),
    Row("aten::upsample_linear1d_backward", resized_backward(1, False), (F32,)),
    Row("aten::upsample_bilinear2d_backward", resized_backward(2, True), (F32,)),
    Row("aten::upsample_trilinear3d_backward", resized_backward(3, False), (F32,)),
    Row("aten::upsample_bicubic2d_backward", resized_backward(2, False), (F32,)),
    *rows([f"aten::_upsample_{kernel}2d_aa" for kernel in KERNELS], resized(2, False), (F32,), grads=True),
    *rows([f"aten::_upsample_{kernel}2d_aa_backward" for kernel in KERNELS], resized_backward(2, True), (F32,)),
    Row("aten::fractional_max_pool2d", fractional(2), FLOATS, grads=("self",)),
    Row("aten::fractional_max_pool3d", fractional(3), (F32,), grads=("self",)),
    Row("aten::fractional_max_pool2d_backward", fractional_backward(2), FLOATS, dense=True),
    Row("aten::fractional_max_pool3d_backward", fractional_backward(3), (F32,), dense=True),
    *(Row(f"aten::{kind}_pad{n}d", pad(n), FLOATS, grads=True) for kind in PADS for n in (1, 2, 3)),
    *(Row(f"aten::{kind}_pad{n}d_backward", pad_backward(n), FLOATS) for kind in PADS for n in (1, 2, 3)),
]
