"""Rows of the operators on lists of tensors, and of the fused optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import F32, FLOATS, Make, Row, Sample, Samples, call, rows

SHAPES = ((3, 4), (2,), ())
POSITIVE = dict(low=0.2, high=2)


def several(t: Make, **range_: float) -> list[torch.Tensor]:
    return [t(*shape, **range_) for shape in SHAPES]


def unary(low: float, high: float) -> Samples:
    return lambda t: [call(several(t, low=low, high=high))]


def two_lists(t: Make) -> Iterator[Sample]:
    yield call(several(t, **POSITIVE), several(t, **POSITIVE))


def with_alpha(t: Make) -> Iterator[Sample]:
    yield from two_lists(t)
    yield call(several(t), several(t), alpha=2.5)


def number(t: Make) -> Iterator[Sample]:
    yield call(several(t, **POSITIVE), 2)
    yield call(several(t, **POSITIVE), 1.5)


def numbers(t: Make) -> Iterator[Sample]:
    yield call(several(t, **POSITIVE), [2, 1.5, 3])


def tensor(t: Make) -> Iterator[Sample]:
    yield call(several(t, **POSITIVE), t(**POSITIVE))


def three(*last: Any) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        yield call(several(t), several(t), several(t, **POSITIVE), *last)

    return samples


def lerp(*weights: Any) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        yield call(several(t), several(t), *(weights or [several(t, low=0, high=1)]))

    return samples


def norms(t: Make) -> Iterator[Sample]:
    for order in (2, 1, float("inf")):
        yield call(several(t), order)


def adam(amsgrad: bool, tensor_lr: bool = False, **extra: Any) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        wide = [t.dtype, t.dtype]
        lists = [[t(*s, dtype=d) for s, d in zip(SHAPES, wide, strict=False)] for _ in range(3)]
        squares = [[x.abs() for x in several(t)[:2]] for _ in range(2)]
        steps = [torch.tensor(3.0) for _ in range(2)]
        yield call(
            *lists, squares[0], squares[1] if amsgrad else [], steps, lr=torch.tensor(0.01) if tensor_lr else 0.01, beta1=0.9,
            beta2=0.999, weight_decay=0.1, eps=1e-8, amsgrad=amsgrad, maximize=False, **extra)

    return samples


def sgd(tensor_lr: bool = False) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for momentum, nesterov, first in ((0.9, True, False), (0.9, False, True), (0.0, False, False)):
            buffers = several(t) if momentum else []
            yield call(
                several(t), several(t), buffers, weight_decay=0.1, momentum=momentum,
                lr=torch.tensor(0.01) if tensor_lr else 0.01, dampening=0.0, nesterov=nesterov, maximize=False, is_first_step=first)

    return samples


def adagrad(t: Make) -> Iterator[Sample]:
    steps = [torch.tensor(3.0) for _ in SHAPES]
    yield call(several(t), several(t), several(t, **POSITIVE), steps, lr=0.01, lr_decay=0.1, weight_decay=0.1, eps=1e-8,
               maximize=False)


def unscale(t: Make) -> Iterator[Sample]:
    yield call(several(t), torch.zeros(1), torch.tensor(0.5))
    yield call([t(3), torch.tensor([1.0, float("inf")]).to(t.dtype)], torch.zeros(1), torch.tensor(0.5))


def update_scale(t: Make) -> Iterator[Sample]:
    for found in (0.0, 1.0):
        yield call(torch.tensor(8.0), torch.tensor(1, dtype=torch.int32), torch.tensor(found), 2.0, 0.5, 2)


ROWS: list[Row] = [
    *rows(["aten::_foreach_abs", "aten::_foreach_ceil", "aten::_foreach_cos", "aten::_foreach_cosh", "aten::_foreach_erf",
           "aten::_foreach_erfc", "aten::_foreach_exp", "aten::_foreach_expm1", "aten::_foreach_floor", "aten::_foreach_frac",
           "aten::_foreach_neg", "aten::_foreach_round", "aten::_foreach_sigmoid", "aten::_foreach_sign", "aten::_foreach_sin",
           "aten::_foreach_sinh", "aten::_foreach_tan", "aten::_foreach_tanh", "aten::_foreach_trunc", "aten::_foreach_atan"],
          unary(-1.4, 1.4), FLOATS),
    *rows(["aten::_foreach_log", "aten::_foreach_log10", "aten::_foreach_log1p", "aten::_foreach_log2", "aten::_foreach_reciprocal",
           "aten::_foreach_rsqrt", "aten::_foreach_sqrt", "aten::_foreach_lgamma"], unary(0.2, 3), FLOATS),
    *rows(["aten::_foreach_acos", "aten::_foreach_asin"], unary(-0.9, 0.9), FLOATS),
    *rows(["aten::_foreach_max"], lambda t: [call([t(3, 4), t(2)])], FLOATS),
    *rows(["aten::_foreach_add.List", "aten::_foreach_sub.List"], with_alpha, FLOATS, grads=True,
          errors=lambda t: [call([torch.ones(2)], [torch.ones(2), torch.ones(2)])]),
    *rows(["aten::_foreach_mul.List", "aten::_foreach_div.List", "aten::_foreach_maximum.List", "aten::_foreach_minimum.List",
           "aten::_foreach_clamp_min.List", "aten::_foreach_clamp_max.List", "aten::_foreach_pow.List"], two_lists, FLOATS),
    *rows(["aten::_foreach_add.Scalar", "aten::_foreach_sub.Scalar", "aten::_foreach_mul.Scalar", "aten::_foreach_div.Scalar",
           "aten::_foreach_maximum.Scalar", "aten::_foreach_minimum.Scalar", "aten::_foreach_clamp_min.Scalar",
           "aten::_foreach_clamp_max.Scalar", "aten::_foreach_pow.Scalar"], number, FLOATS),
    *rows(["aten::_foreach_add.ScalarList", "aten::_foreach_sub.ScalarList", "aten::_foreach_mul.ScalarList",
           "aten::_foreach_div.ScalarList", "aten::_foreach_maximum.ScalarList", "aten::_foreach_minimum.ScalarList",
           "aten::_foreach_clamp_min.ScalarList", "aten::_foreach_clamp_max.ScalarList", "aten::_foreach_pow.ScalarList"],
          numbers, FLOATS),
    *rows(["aten::_foreach_add.Tensor", "aten::_foreach_mul.Tensor", "aten::_foreach_div.Tensor"], tensor, FLOATS),
    *rows(["aten::_foreach_addcmul.Scalar", "aten::_foreach_addcdiv.Scalar"], three(0.5), FLOATS),
    *rows(["aten::_foreach_addcmul.ScalarList", "aten::_foreach_addcdiv.ScalarList"], three([0.5, 2, 3]), FLOATS),
    Row("aten::_foreach_lerp.List", lerp(), FLOATS),
    Row("aten::_foreach_lerp.Scalar", lerp(0.25), FLOATS),
    Row("aten::_foreach_lerp.ScalarList", lerp([0.25, 0.5, 0.75]), FLOATS),
    Row("aten::_foreach_pow.ScalarAndTensor", lambda t: [call(2.0, several(t))], FLOATS,
        no_strides="row-major on the CPU"),
    Row("aten::_foreach_norm.Scalar", norms, FLOATS),
    Row("aten::_foreach_copy", lambda t: [call(several(t), several(t, dtype=torch.float32))], FLOATS,
        no_strides="the CPU keeps gaps"),
    Row("aten::_foreach_zero", lambda t: [call(several(t))], FLOATS),
    # Float32 alone would lose 1e-5 of 1 - beta2.
    *rows(["aten::_fused_adam", "aten::_fused_adamw"], lambda t: [*adam(True)(t), *adam(False)(t)], FLOATS,
          tolerance={F32: (1e-6, 1e-7)}),
    *rows(["aten::_fused_adam.tensor_lr", "aten::_fused_adamw.tensor_lr"], adam(True, tensor_lr=True), (F32,)),
    Row("aten::_fused_sgd", sgd(), FLOATS),
    Row("aten::_fused_sgd.tensor_lr", sgd(tensor_lr=True), (F32,)),
    Row("aten::_fused_adagrad", adagrad, (F32,)),
    Row("aten::_amp_foreach_non_finite_check_and_unscale", unscale, (F32,)),
    Row("aten::_amp_update_scale", update_scale, (F32,)),
]
