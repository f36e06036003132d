"""Rows of the operators that take one tensor and work element by element."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import BF16, BOOL, C64, EXACT, F32, FLOATS, I32, I64, NUMBERS, U8, Make, Row, Sample, Samples, call, rows


def within(low: float, high: float, special: bool = True) -> Samples:
    """Samples of one argument in a range: two dims, none, no elements, and the values that are easily got wrong."""

    def samples(t: Make) -> Iterator[Sample]:
        yield call(t(3, 4, low=low, high=high))
        yield call(t(low=low, high=high))
        yield call(t(0, 3, low=low, high=high))
        if special:
            yield call(t.special())

    return samples


def transposed(t: Make) -> Iterator[Sample]:
    """Exact operators: a view, and all dtypes alike."""
    yield call(t(3, 4))
    yield call(t(2, 3, 4).permute(2, 0, 1)[:, :, 1:])
    yield call(t())
    yield call(t(0, 3))


def rounding(t: Make) -> Iterator[Sample]:
    """Halves, and what is near to them."""
    yield call(torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 1e9]).to(t.dtype))
    yield from within(-3, 3)(t)


def decimals(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=-300, high=300), decimals=1)
    yield call(t(3, 4, low=-300, high=300), decimals=-1)


def nan_to_num(t: Make) -> Iterator[Sample]:
    yield call(t.special())
    yield call(t.special(), 2.0, 3.0, -3.0)


def logit(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=0.05, high=0.95))
    yield call(t(3, 4, low=0, high=1), 0.1)


def polygamma(t: Make) -> Iterator[Sample]:
    yield call(1, t(3, 4, low=0.5, high=4))
    yield call(2, t(3, low=0.5, high=4))


def to_copy(t: Make) -> Iterator[Sample]:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.float64):
        yield call(t(3, 4).t(), dtype=dtype)
    yield call(t(2, 3, 4, 5), dtype=torch.float32, memory_format=torch.channels_last)
    yield call(t(2, 3, 4, 5).permute(0, 2, 3, 1))


def clone(t: Make) -> Iterator[Sample]:
    yield from transposed(t)
    yield call(t(2, 3, 4, 5), memory_format=torch.channels_last)
    yield call(t(2, 3, 4, 5).permute(0, 2, 3, 1), memory_format=torch.contiguous_format)


def fill_scalar(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 2)
    yield call(t(3, 4), 1.5)
    yield call(t(), True)


def fill_tensor(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t())
    yield call(t(3, 4), torch.tensor(1.5))


def copy(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(4))
    yield call(t(3, 4), t(3, 4, dtype=torch.float64))
    yield call(t(3, 4), t(3, 4, dtype=torch.int64).to(torch.int32))


SMOOTH = rows(
    ["aten::exp", "aten::exp2", "aten::expm1", "aten::sin", "aten::cos", "aten::tan", "aten::atan", "aten::sinh", "aten::cosh",
     "aten::tanh", "aten::asinh", "aten::sigmoid", "aten::erf", "aten::erfc", "aten::sinc", "aten::deg2rad", "aten::rad2deg",
     "aten::i0"], within(-1.4, 1.4), NUMBERS, grads=True)
SPECIAL = rows(
    ["aten::special_i0e", "aten::special_i1", "aten::special_i1e", "aten::special_log_ndtr", "aten::special_entr",
     "aten::special_erfcx"], within(-2, 2), (F32, I64), grads=True)
BESSEL = rows(["aten::special_modified_bessel_i0", "aten::special_modified_bessel_i1"], within(-2, 2), (F32, I64))
POSITIVE = rows(
    ["aten::log", "aten::log2", "aten::log10", "aten::log1p", "aten::sqrt", "aten::rsqrt", "aten::reciprocal", "aten::lgamma"],
    within(0.1, 3), NUMBERS, grads=True)
UNIT = rows(["aten::asin", "aten::acos", "aten::atanh", "aten::erfinv"], within(-0.9, 0.9), NUMBERS, grads=True)
STEPS = rows(
    ["aten::floor", "aten::ceil", "aten::trunc", "aten::frac"], rounding, FLOATS, grads=True)
EXACT_MATHS = rows(["aten::abs", "aten::sign", "aten::sgn"], within(-2, 2), (F32, BF16, I64, U8), grads=True)
TESTS = rows(
    ["aten::logical_not", "aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf", "aten::signbit"],
    within(-2, 2), (F32, BF16, I64, BOOL))
COPIES = rows(
    ["aten::lift", "aten::lift_fresh_copy", "aten::alias_copy", "aten::detach_copy", "aten::zero", "aten::conj_physical",
     "aten::_neg_view_copy"],
    transposed, (F32, BF16, I64, C64))

ROWS: list[Row] = [
    *SMOOTH, *SPECIAL, *BESSEL, *POSITIVE, *UNIT, *STEPS, *EXACT_MATHS, *TESTS, *COPIES,
    Row("aten::acosh", within(1.1, 3), NUMBERS, grads=True),
    Row("aten::digamma", within(0.5, 4, special=False), (F32, I64), grads=True),
    Row("aten::special_ndtri", within(0.05, 0.95), (F32,), grads=True),
    Row("aten::round", rounding, FLOATS, grads=True),
    Row("aten::round.decimals", decimals, FLOATS),
    Row("aten::neg", within(-2, 2), (F32, BF16, I64, C64), grads=True),
    Row("aten::angle", within(-2, 2), (F32, I64, C64)),
    *rows(["aten::_conj_physical", "aten::_conj_copy"], transposed, (C64,)),
    Row("aten::bitwise_not", transposed, (I64, U8, BOOL), errors=lambda t: [call(torch.ones(3))]),
    Row("aten::nan_to_num", nan_to_num, (F32, BF16, I64), grads=True),
    Row("aten::logit", logit, FLOATS, grads=True),
    Row("aten::polygamma", polygamma, (F32,), grads=True),
    Row("aten::frexp.Tensor", within(-20, 20), (F32,), errors=lambda t: [call(torch.ones(3, dtype=torch.int64))]),
    Row("aten::clone", clone, (F32, BF16, I64, BOOL, C64), grads=True),
    Row("aten::_to_copy", to_copy, (F32, BF16, I64, I32, U8, BOOL)),
    Row("aten::copy", copy, EXACT),
    Row("aten::fill.Scalar", fill_scalar, (F32, BF16, I64, I32, BOOL)),
    Row("aten::fill.Tensor", fill_tensor, (F32, I64), errors=lambda t: [call(torch.ones(3), torch.ones(2))]),
]
