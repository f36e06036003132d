"""Rows of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import BF16, F32, FLOATS, I64, Make, Row, Sample, Samples, call, rows

# Sums of products in another order, and one bfloat16 rounding more or less.
LOOSE = {F32: (1e-4, 1e-5), BF16: (3e-2, 3e-2)}


def mm(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(4, 5))
    yield call(t(4, 3).t(), t(5, 4).t())
    yield call(t(3, 0), t(0, 5))
    yield call(t(0, 4), t(4, 5))


def bmm(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3, 4), t(2, 4, 5))
    yield call(t(2, 4, 3).mT, t(2, 5, 4).mT)
    yield call(t(1, 3, 4), t(1, 4, 5))
    yield call(t(0, 3, 4), t(0, 4, 5))


def added(*shapes: tuple[int, ...]) -> Any:
    def samples(t: Make) -> Iterator[Sample]:
        base, *others = shapes
        yield call(t(*base), *(t(*s) for s in others))
        yield call(t(*base), *(t(*s) for s in others), beta=2, alpha=3)
        yield call(t(base[-1]), *(t(*s) for s in others), alpha=-1)
        nan = torch.full(base, float("nan")).to(t.dtype) if t.dtype.is_floating_point else t(*base)
        yield call(nan, *(t(*s) for s in others), beta=0)

    return samples


def to_dtype(*shapes: tuple[int, ...]) -> Any:
    def samples(t: Make) -> Iterator[Sample]:
        yield call(*(t(*s) for s in shapes), torch.float32)

    return samples


def in_float32(*args: Any, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    """What the CPU has no kernel for: 16-bit arguments, a float32 result."""
    *tensors, dtype = args
    *base, left, right = (x.to(dtype) for x in tensors)
    product = alpha * (left @ right)
    return beta * base[0] + product if base else product


def activation(t: Make) -> Iterator[Sample]:
    yield call(t(5), t(3, 4), t(4, 5))
    yield call(t(5), t(3, 4), t(4, 5), use_gelu=True)


def conv(t: Make, x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, stride: int = 1, padding: int = 0, dilation: int = 1,
         transposed: bool = False, output_padding: int = 0, groups: int = 1) -> Sample:
    n = len(x) - 2
    out = w[1] * groups if transposed else w[0]
    return call(t(*x), t(*w), t(out) if bias else None, [stride] * n, [padding] * n, [dilation] * n, transposed,
                [output_padding] * n, groups)


def convolution(t: Make) -> Iterator[Sample]:
    yield conv(t, (2, 3, 8, 8), (4, 3, 3, 3), padding=1)
    yield conv(t, (2, 4, 8, 8), (4, 2, 3, 3), groups=2, stride=2, bias=False)
    yield conv(t, (2, 3, 9), (4, 3, 3), dilation=2, padding=2)
    yield conv(t, (1, 2, 5, 5, 5), (3, 2, 2, 2, 2))
    yield conv(t, (2, 4, 5, 5), (4, 3, 3, 3), transposed=True, stride=2, padding=1, output_padding=1)
    yield conv(t, (2, 4, 5), (4, 2, 3), transposed=True, groups=2, dilation=2)
    yield conv(t, (2, 4, 8, 8), (8, 1, 3, 3), groups=4, padding=1)


def convolution_backward(t: Make) -> Iterator[Sample]:
    for sample in list(convolution(t))[:5]:
        x, w, bias, *rest = sample.args
        out = torch.convolution(x, w, bias, *rest)
        yield call(t(*out.shape), x, w, None if bias is None else list(bias.shape), *rest, [True, True, bias is not None])
    yield call(t(*out.shape), x, w, None, *rest, [True, False, False])


def wrong_inner(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3, 4), torch.ones(5, 6))
    yield call(torch.ones(3, 4), torch.ones(4, 6, dtype=torch.float64))


def slow(num_dims: int) -> Samples:
    """By the names of the CPU's own kernels: no groups, no dilation."""

    def samples(t: Make) -> Iterator[Sample]:
        kernel = [3] * num_dims
        x, w = t(2, 3, *[6] * num_dims), t(4, 3, *kernel)
        yield call(x, w, kernel, None, [1] * num_dims, [0] * num_dims)
        yield call(x, w, kernel, t(4), [2] * num_dims, [1] * num_dims)
        if num_dims == 2:
            yield call(x, w.reshape(4, -1), kernel, t(4), [1, 1], [1, 1])

    return samples


def slow_backward(t: Make) -> Iterator[Sample]:
    for mask in ([True, True, True], [False, True, False], [True, False, True]):
        yield call(t(2, 4, 4, 4), t(2, 3, 6, 6), t(4, 3, 3, 3), [3, 3], [1, 1], [0, 0], mask)
    yield call(t(2, 4, 4, 4), t(2, 3, 6, 6), t(4, 27), [3, 3], [1, 1], [0, 0], [True, True, True])


def dilated(num_dims: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        kernel = [3] * num_dims
        x, w = t(2, 3, *[6] * num_dims), t(4, 3, *kernel)
        yield call(x, w, kernel, t(4), [1] * num_dims, [1] * num_dims, [2] * num_dims)
        yield call(x[0], w, kernel, None, [2] * num_dims, [0] * num_dims, [1] * num_dims)

    return samples


def transposed_convolution(num_dims: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        kernel = [3] * num_dims
        x, w = t(2, 3, *[4] * num_dims), t(3, 4, *kernel)
        yield call(x, w, kernel)
        yield call(x, w, kernel, t(4), [2] * num_dims, [1] * num_dims, [1] * num_dims)

    return samples


ROWS: list[Row] = [
    Row("aten::mm", mm, (F32, BF16, I64), grads=True, tolerance=LOOSE, errors=wrong_inner),
    Row("aten::bmm", bmm, (F32, BF16, I64), grads=True, tolerance=LOOSE,
        errors=lambda t: [call(torch.ones(2, 3, 4), torch.ones(3, 4, 5))]),
    Row("aten::addmm", added((3, 5), (3, 4), (4, 5)), (F32, BF16, I64), grads=True, tolerance=LOOSE,
        errors=lambda t: [call(torch.ones(3, 4), torch.ones(3, 4), torch.ones(4, 5))]),
    Row("aten::baddbmm", added((2, 3, 5), (2, 3, 4), (2, 4, 5)), FLOATS, grads=True, tolerance=LOOSE),
    Row("aten::addbmm", added((3, 5), (2, 3, 4), (2, 4, 5)), FLOATS, grads=True, tolerance=LOOSE),
    Row("aten::addmv", added((3,), (3, 4), (4,)), (F32, BF16), grads=True, tolerance=LOOSE),
    Row("aten::addr", added((3, 4), (3,), (4,)), (F32, BF16, I64), grads=True, tolerance=LOOSE),
    *rows(["aten::dot", "aten::vdot"], lambda t: [call(t(5), t(5)), call(t(0), t(0))], (F32, BF16, I64), grads=True,
          tolerance=LOOSE, errors=lambda t: [call(torch.ones(3), torch.ones(4))]),
    Row("aten::mv", lambda t: [call(t(3, 4), t(4))], (F32, BF16, I64), grads=True, tolerance=LOOSE),
    Row("aten::mm.dtype", to_dtype((3, 4), (4, 5)), (BF16,), reference=in_float32, tolerance=LOOSE),
    Row("aten::bmm.dtype", to_dtype((2, 3, 4), (2, 4, 5)), (BF16,), reference=in_float32, tolerance=LOOSE),
    Row("aten::addmm.dtype", to_dtype((3, 5), (3, 4), (4, 5)), (BF16,), reference=in_float32, tolerance=LOOSE),
    Row("aten::_addmm_activation", activation, (F32,), tolerance=LOOSE),
    Row("aten::_int_mm", lambda t: [call(t(32, 16, low=-9, high=9), t(16, 8, low=-9, high=9))], (torch.int8,)),
    Row("aten::convolution", convolution, FLOATS, grads=True, tolerance=LOOSE, errors=lambda t: [
        conv(t, (2, 3, 8, 8), (4, 2, 3, 3)), conv(t, (2, 3, 2, 2), (4, 3, 5, 5))]),
    Row("aten::convolution_backward", convolution_backward, (F32,), tolerance={F32: (1e-3, 1e-4)}),
    Row("aten::_slow_conv2d_forward", slow(2), (F32,), tolerance=LOOSE),
    Row("aten::slow_conv3d_forward", slow(3), (F32,), tolerance=LOOSE),
    Row("aten::_slow_conv2d_backward.output_mask", slow_backward, (F32,), tolerance=LOOSE),
    Row("aten::slow_conv_dilated2d", dilated(2), (F32,), tolerance=LOOSE),
    Row("aten::slow_conv_dilated3d", dilated(3), (F32,), tolerance=LOOSE),
    Row("aten::slow_conv_transpose2d", transposed_convolution(2), (F32,), tolerance=LOOSE),
    Row("aten::slow_conv_transpose3d", transposed_convolution(3), (F32,), tolerance=LOOSE),
]
