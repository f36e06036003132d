"""Rows of the operators that take two tensors, or a tensor and a number, and work element by element."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import BOOL, C64, F32, FLOATS, I32, I64, NUMBERS, U8, Make, Row, Sample, Samples, call, rows

MIXED = (torch.int64, torch.int32, torch.bfloat16, torch.float64)


def two(
    low: float = -2, high: float = 2, mixed: bool = True, least: float | None = None, numbers: bool = False, special: bool = True,
) -> Samples:
    """Two tensors: alike, broadcast, 0-dim, empty; ``mixed``: of other dtypes; ``numbers``: Python's in place of the second.

    ``least``: the second is at least this, of integers at least one.
    """

    def samples(t: Make) -> Iterator[Sample]:
        other_low = low if least is None else least

        def other(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
            real = (dtype or t.dtype).is_floating_point
            return t(*shape, low=other_low if real or least is None else max(1, least), high=high, dtype=dtype)

        yield call(t(3, 4, low=low, high=high), other(3, 4))
        yield call(t(3, 1, low=low, high=high), other(4))
        yield call(t(3, 4, low=low, high=high).t(), other(4, 3))
        yield call(t(3, 4, low=low, high=high), other())
        yield call(t(low=low, high=high), other())
        yield call(t(0, 3, low=low, high=high), other(3))
        if mixed:
            for dtype in MIXED:
                yield call(t(3, 4, low=low, high=high), other(3, 4, dtype=dtype))
            yield call(t(3, 4, low=low, high=high), other(dtype=torch.float64))  # 0-dim: does not promote its own kind
        if numbers:
            yield call(t(3, 4, low=low, high=high), 1)
            yield call(t(3, 4, low=low, high=high), 1.5)
        if t.dtype.is_floating_point and special:
            yield call(t.special()[:, None], t.special() if least is None else t.special().abs())

    return samples


def number(*numbers: float, low: float = -2, high: float = 2) -> Samples:
    """A tensor and Python numbers of several kinds."""

    def samples(t: Make) -> Iterator[Sample]:
        for value in numbers:
            yield call(t(3, 4, low=low, high=high), value)
        yield call(t(low=low, high=high), numbers[0])
        yield call(t(0, 3, low=low, high=high), numbers[0])

    return samples


def number_first(*numbers: float, low: float = -2, high: float = 2) -> Samples:
    """Python numbers and a tensor."""

    def samples(t: Make) -> Iterator[Sample]:
        for value in numbers:
            yield call(value, t(3, 4, low=low, high=high))

    return samples


def with_alpha(t: Make) -> Iterator[Sample]:
    yield from two(numbers=True)(t)
    yield call(t(3, 4), t(3, 4), alpha=2)
    yield call(t(3, 4), t(4, dtype=torch.float32), alpha=1.5)
    yield call(t(3, 4, dtype=torch.int32), 3, alpha=-1)


def multiplied(t: Make) -> Iterator[Sample]:
    yield from two(numbers=True)(t)
    yield call(t.special(), torch.zeros(8, dtype=torch.bool))  # NaN times False is NaN: a mask is a number here


def scalar_with_alpha(t: Make) -> Iterator[Sample]:
    yield from number(2, 1.5, -3)(t)
    yield call(t(3, 4), 2, 3)
    yield call(t(3, 4, dtype=torch.float32), 1.5, 0.5)


def rounding_modes(t: Make) -> Iterator[Sample]:
    for mode in (None, "trunc", "floor"):
        yield call(t(3, 4, low=-9, high=9), t(3, 4, low=1, high=4), rounding_mode=mode)
        yield call(t(3, 4, low=-9, high=9), t(3, 4, low=-4, high=-1).abs().neg().to(torch.float32), rounding_mode=mode)
    yield call(t(3, 4, low=-9, high=9), 2, rounding_mode="floor")


def rounding_modes_scalar(t: Make) -> Iterator[Sample]:
    for mode in (None, "trunc", "floor"):
        yield call(t(3, 4, low=-9, high=9), 2, rounding_mode=mode)
        yield call(t(3, 4, low=-9, high=9), -1.5, rounding_mode=mode)


def shifts(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=-9, high=9), t(3, 4, low=0, high=5))
    yield call(t(3, 1, low=-9, high=9), t(4, low=0, high=5))


def powers(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=0.5, high=3), t(3, 4, low=0, high=3))
    yield call(t(3, 4, low=1, high=3), t(4, low=0, high=3))
    yield call(t(3, 4, low=1, high=3), t(4, low=0, high=2, dtype=torch.float32))
    if t.dtype.is_floating_point:
        yield call(t.special()[:, None], t.special())


def power_scalar(t: Make) -> Iterator[Sample]:
    for exponent in (2, 3, 1, 0, 0.5, 2.5):
        yield call(t(3, 4, low=0.5, high=3), exponent)
    if t.dtype.is_floating_point:
        for exponent in (-1, -0.5, -2):
            yield call(t(3, 4, low=0.5, high=3), exponent)
        yield call(t.special(), 3)


def power_of_scalar(t: Make) -> Iterator[Sample]:
    for base in (2, 1, 0, 2.5):
        yield call(base, t(3, 4, low=0, high=3))


def ldexp(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4, low=-3, high=3, dtype=torch.int32))


def add_relu(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(4), alpha=2)
    yield call(t(3, 4), t())
    yield call(torch.tensor([100, -100, 3]).to(t.dtype), torch.tensor([20, 3, -4]).to(t.dtype))
    if t.dtype.is_floating_point:
        yield call(torch.tensor([float("inf"), float("-inf"), -0.0]), torch.zeros(3))


def unequal_shapes(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3), torch.ones(4))


def floats_given(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3), torch.ones(3))
    yield call(torch.ones(3, dtype=torch.int64), torch.ones(4, dtype=torch.int64))


ARITHMETIC = (F32, I64, I32)
COMPARED = (F32, I64, BOOL)

ROWS: list[Row] = [
    *rows(["aten::add.Tensor"], with_alpha, ARITHMETIC, grads=True, errors=unequal_shapes),
    *rows(["aten::sub.Tensor"], with_alpha, ARITHMETIC, grads=True, errors=unequal_shapes),
    *rows(["aten::rsub.Tensor"], two(), ARITHMETIC, grads=True, errors=unequal_shapes),
    *rows(["aten::add.Scalar", "aten::sub.Scalar", "aten::rsub.Scalar"], scalar_with_alpha, ARITHMETIC, grads=True),
    Row("aten::_add_relu.Tensor", add_relu, (F32, I64), errors=unequal_shapes),
    Row("aten::_add_relu.Scalar", lambda t: [call(t(3, 4), 1, 2), call(t(3, 4), -1)], (F32, I64)),
    *rows(["aten::mul.Tensor"], multiplied, (F32, I64, BOOL), grads=True, errors=unequal_shapes),
    *rows(["aten::mul.Scalar"], number(2, 1.5), ARITHMETIC, grads=True),
    *rows(["aten::div.Tensor"], two(0.5, 3, least=0.5, numbers=True), (F32, I64), grads=True, errors=unequal_shapes),
    *rows(["aten::div.Scalar"], number(2, 1.5), ARITHMETIC, grads=True),
    *rows(["aten::div.Tensor_mode"], rounding_modes, ARITHMETIC),
    *rows(["aten::div.Scalar_mode"], rounding_modes_scalar, ARITHMETIC),
    *rows(["aten::floor_divide", "aten::remainder.Tensor", "aten::fmod.Tensor"], two(-9, 9, least=1), ARITHMETIC),
    *rows(["aten::floor_divide.Scalar", "aten::remainder.Scalar", "aten::fmod.Scalar"], number(2, -3, 1.5, low=-9, high=9),
          ARITHMETIC),
    *rows(["aten::remainder.Scalar_Tensor"], number_first(7, -7, 2.5, low=1, high=4), ARITHMETIC),
    *rows(["aten::eq.Tensor", "aten::ne.Tensor", "aten::lt.Tensor", "aten::le.Tensor", "aten::gt.Tensor", "aten::ge.Tensor"],
          two(), COMPARED, errors=unequal_shapes),
    *rows(["aten::eq.Scalar", "aten::ne.Scalar", "aten::lt.Scalar", "aten::le.Scalar", "aten::gt.Scalar", "aten::ge.Scalar"],
          number(1, 0.5, True), COMPARED),
    *rows(["aten::bitwise_and.Tensor", "aten::bitwise_or.Tensor", "aten::bitwise_xor.Tensor"], two(-9, 9, mixed=False),
          (I64, U8, BOOL), errors=floats_given),
    *rows(["aten::bitwise_and.Scalar", "aten::bitwise_or.Scalar", "aten::bitwise_xor.Scalar"], number(6, 1, low=-9, high=9),
          (I64, I32)),
    *rows(["aten::bitwise_and.Scalar_Tensor", "aten::bitwise_or.Scalar_Tensor", "aten::bitwise_xor.Scalar_Tensor"],
          number_first(6, 1, low=-9, high=9), (I64, I32)),
    *rows(["aten::bitwise_left_shift.Tensor", "aten::bitwise_right_shift.Tensor", "aten::__lshift__.Tensor",
           "aten::__rshift__.Tensor"], shifts, (I64, I32)),
    *rows(["aten::bitwise_left_shift.Tensor_Scalar", "aten::bitwise_right_shift.Tensor_Scalar", "aten::__lshift__.Scalar",
           "aten::__rshift__.Scalar"], number(3, 0, low=-9, high=9), (I64, I32)),
    *rows(["aten::bitwise_left_shift.Scalar_Tensor", "aten::bitwise_right_shift.Scalar_Tensor"], number_first(5, low=0, high=4),
          (I64, I32)),
    *rows(["aten::logical_and", "aten::logical_or", "aten::logical_xor"], two(), COMPARED),
    *rows(["aten::maximum", "aten::minimum"], two(), COMPARED, grads=True),
    *rows(["aten::max.other", "aten::min.other"], two(mixed=False), (F32, I64)),
    *rows(["aten::fmax", "aten::fmin"], two(), (F32, I64), grads=True),
    *rows(["aten::heaviside"], two(mixed=False), (F32, I64)),
    *rows(["aten::gcd", "aten::lcm"], two(-9, 9, mixed=False), (I64, I32), errors=floats_given),
    *rows(["aten::nextafter"], two(mixed=False), (F32,)),
    *rows(["aten::atan2"], two(), (F32, I64), grads=True),
    *rows(["aten::copysign.Tensor"], two(), (F32, I64)),
    *rows(["aten::copysign.Scalar"], number(1, -2.5), (F32, I64)),
    *rows(["aten::hypot", "aten::logaddexp2"], two(mixed=False), FLOATS, grads=True),
    Row("aten::logaddexp", two(-9, 9, mixed=False), (*FLOATS, C64), grads=True),  # angles beyond pi stay there
    *rows(["aten::xlogy.Tensor", "aten::special_xlog1py"], two(0, 3), (F32, I64), grads=True),
    *rows(["aten::xlogy.Scalar_Self", "aten::special_xlog1py.self_scalar"], number_first(2, 0, 1.5, low=0, high=3), (F32, I64)),
    *rows(["aten::xlogy.Scalar_Other", "aten::special_xlog1py.other_scalar"], number(2, 1.5, low=0, high=3), (F32, I64)),
    *rows(["aten::special_zeta"], two(1.5, 4, mixed=False, least=0.5), (F32,)),
    *rows(["aten::special_zeta.self_scalar"], number_first(2, 1.5, low=0.5, high=4), (F32,)),
    *rows(["aten::special_zeta.other_scalar"], number(2, 1.5, low=1.5, high=4), (F32,)),
    *rows(["aten::igamma", "aten::igammac"], two(0.5, 4, mixed=False, special=False), (F32,), tolerance={F32: (1e-4, 1e-5)}),
    *rows(["aten::pow.Tensor_Tensor"], powers, NUMBERS, grads=True, errors=unequal_shapes),
    *rows(["aten::pow.Tensor_Scalar"], power_scalar, NUMBERS, grads=True),
    *rows(["aten::pow.Scalar"], power_of_scalar, NUMBERS, grads=True),
    *rows(["aten::ldexp.Tensor"], ldexp, FLOATS),
]
