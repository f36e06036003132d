"""Rows of selection, clamping, and the operators of three tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import BF16, BOOL, EXACT, F32, FLOATS, I64, NUMBERS, Make, Row, Sample, call


def where(t: Make) -> Iterator[Sample]:
    yield call(t.mask(3, 4), t(3, 4), t(3, 4))
    yield call(t.mask(3, 1), t(4), t())
    yield call(t.mask(3, 4).t(), t(4, 3), t(4, 3, dtype=torch.float64))
    yield call(t.mask(3, 4), t(3, 4), torch.tensor(1.5))
    yield call(t.mask(0, 3), t(0, 3), t(3))


def masked_fill(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t.mask(3, 4), 2)
    yield call(t(3, 4), t.mask(4), 1)
    yield call(t(3, 4).t(), t.mask(4, 1), -1)
    if t.dtype.is_floating_point:
        yield call(t(3, 4), t.mask(3, 4), float("-inf"))


def masked_fill_tensor(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t.mask(3, 4), t())
    yield call(t(3, 4), t.mask(4), torch.tensor(1))


def clamp(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), -1, 1)
    yield call(t(3, 4), 0)
    yield call(t(3, 4), None, 0.5)
    yield call(t(3, 4), 1, -1)
    yield call(t.special(), 0, 2)
    yield call(t(0, 3), 0, 1)


def clamp_tensor(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(4, low=-2, high=0), t(3, 1, low=0, high=2))
    yield call(t(3, 4), None, t(3, 4))
    yield call(t(3, 4), t(), None)


def bound(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 1)
    yield call(t(3, 4), 0.5)
    yield call(t(), 0)


def bound_tensor(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(4))
    yield call(t(3, 4), t(3, 4, dtype=torch.float32))


def products(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4), t(3, 4, low=1, high=3), value=2)
    yield call(t(3, 4), t(3, 1), t(4, low=1, high=3))
    yield call(t(3, 4), t(), t(low=1, high=3), value=-1)


def lerp_scalar(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4), 0.25)
    yield call(t(3, 4), t(4), 0.75)


def lerp_tensor(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4), t(3, 4, low=0, high=1))
    yield call(t(3, 4), t(4), t())


def both_missing(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3))


def mask_of_numbers(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3), torch.ones(3), 1)


ROWS: list[Row] = [
    Row("aten::where.self", where, EXACT, grads=True,
        errors=lambda t: [call(t.mask(3), torch.ones(4), torch.ones(4))]),
    Row("aten::masked_fill.Scalar", masked_fill, (F32, BF16, I64, BOOL), grads=True, errors=mask_of_numbers),
    Row("aten::masked_fill.Tensor", masked_fill_tensor, (F32, I64), grads=True),
    Row("aten::clamp", clamp, NUMBERS, grads=True, errors=both_missing),
    Row("aten::clamp.Tensor", clamp_tensor, NUMBERS, grads=True),
    Row("aten::clamp_min", bound, NUMBERS, grads=True),
    Row("aten::clamp_max", bound, NUMBERS, grads=True),
    Row("aten::clamp_min.Tensor", bound_tensor, NUMBERS, grads=True),
    Row("aten::clamp_max.Tensor", bound_tensor, NUMBERS, grads=True),
    Row("aten::addcmul", products, NUMBERS, grads=True),
    Row("aten::addcdiv", products, FLOATS, grads=True, errors=lambda t: [call(*[torch.ones(2, dtype=torch.int64)] * 3)]),
    Row("aten::lerp.Scalar", lerp_scalar, FLOATS, grads=True),
    Row("aten::lerp.Tensor", lerp_tensor, FLOATS, grads=True,
        errors=lambda t: [call(torch.ones(3), torch.ones(3, dtype=torch.float64), torch.ones(3))]),
]
