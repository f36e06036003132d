"""Rows of the operators that make tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import BOOL, F32, I64, NUMBERS, Make, Row, Sample, Samples, call, rows

HERE = torch.device("cpu")


def made(*calls: tuple[Any, ...]) -> Samples:
    """These positional arguments, in the dtype of the row."""

    def samples(t: Make) -> Iterator[Sample]:
        for args in calls:
            yield call(*args, dtype=t.dtype, device=HERE)

    return samples


def like(*args: Any) -> Samples:
    """Made like a tensor, with its strides."""

    def samples(t: Make) -> Iterator[Sample]:
        yield call(t(3, 4), *args)
        yield call(t(2, 3, 4, 5).to(memory_format=torch.channels_last), *args)
        yield call(t(3, 4).t(), *args, dtype=torch.float32)
        yield call(t(2, 3, 4, 5), *args, memory_format=torch.channels_last)

    return samples


def new(*args: Any) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        yield call(t(3), [2, 3], *args)
        yield call(t(3), [0], *args, dtype=torch.float32)

    return samples


def spaced(t: Make) -> Iterator[Sample]:
    yield call(0, 1, 5, dtype=t.dtype, device=HERE)
    yield call(3, -2, 7, dtype=t.dtype, device=HERE)
    yield call(1, 2, 1, dtype=t.dtype, device=HERE)
    yield call(1, 2, 0, dtype=t.dtype, device=HERE)


def spaced_tensors(first: bool, last: bool) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        start, end = torch.tensor(1.0), torch.tensor(3.0)
        yield call(start if first else 1.0, end if last else 3.0, 5, dtype=t.dtype)

    return samples


def corners(t: Make) -> Iterator[Sample]:
    yield call(3, 4, dtype=t.dtype, device=HERE)
    yield call(4, 3, -1, dtype=t.dtype, device=HERE)


ROWS: list[Row] = [
    Row("aten::full", made(([2, 3], 2), ([], 1), ([0], 1)), (F32, I64, BOOL)),
    Row("aten::full_like", like(2), NUMBERS),
    Row("aten::new_full", new(2), NUMBERS),
    *rows(["aten::zeros", "aten::ones"], made(([2, 3],), ([],)), (F32, I64, BOOL)),
    *rows(["aten::zeros_like", "aten::ones_like"], like(), NUMBERS),
    *rows(["aten::new_zeros", "aten::new_ones"], new(), NUMBERS),
    Row("aten::_efficientzerotensor", made(([2, 3],)), (F32,), reference=torch.zeros),
    Row("aten::scalar_tensor", made((2,), (1.5,)), (F32, I64)),
    Row("aten::arange", made((5,), (0,)), (F32, I64)),
    Row("aten::arange.start", made((1, 5), (-2, 2)), (F32, I64)),
    Row("aten::arange.start_step", made((0, 7, 2), (5, 1, -1)), (F32, I64),
        errors=lambda t: [call(0, 1, -1, device=HERE)]),
    Row("aten::range", made((1, 5)), (F32, I64)),
    Row("aten::range.step", made((1, 5, 2)), (F32, I64)),
    Row("aten::eye", made((3,), (0,)), (F32, I64)),
    Row("aten::eye.m", made((3, 4), (4, 2)), (F32, I64)),
    Row("aten::linspace", spaced, (F32, I64)),
    Row("aten::linspace.Tensor_Tensor", spaced_tensors(True, True), (F32,)),
    Row("aten::linspace.Tensor_Scalar", spaced_tensors(True, False), (F32,)),
    Row("aten::linspace.Scalar_Tensor", spaced_tensors(False, True), (F32,)),
    Row("aten::logspace", spaced, (F32,)),
    Row("aten::logspace.Tensor_Tensor", spaced_tensors(True, True), (F32,)),
    Row("aten::logspace.Tensor_Scalar", spaced_tensors(True, False), (F32,)),
    Row("aten::logspace.Scalar_Tensor", spaced_tensors(False, True), (F32,)),
    *rows(["aten::tril_indices", "aten::triu_indices"], corners, (I64,)),
    Row("aten::complex", lambda t: [call(t(3, 4), t(3, 4)), call(t(3, 1), t(4))], (F32,), grads=True,
        errors=lambda t: [call(torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64))]),
    Row("aten::polar", lambda t: [call(t(3, 4), t(3, 4))], (F32,), grads=True),
]
