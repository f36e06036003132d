"""Rows of reductions, scans and softmax."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import BF16, BOOL, F32, FLOATS, I64, NUMBERS, Make, Row, Sample, call, rows

SUMMED = (F32, BF16, I64, BOOL)


def whole(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, 5))
    yield call(t())
    yield call(t(3, 4).t()[1:])


def whole_or_empty(t: Make) -> Iterator[Sample]:
    yield from whole(t)
    yield call(t(0, 3))


def with_dtype(t: Make) -> Iterator[Sample]:
    yield from whole_or_empty(t)
    yield call(t(3, 4), dtype=torch.float32)


def mean(t: Make) -> Iterator[Sample]:
    yield from whole(t)
    yield call(t(3, 4), dtype=torch.float32)


def along(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, 5), [1])
    yield call(t(3, 4, 5), [0, -1], True)
    yield call(t(3, 4, 5).permute(2, 0, 1), [1])
    yield call(t(), [0])


def along_with_dtype(t: Make) -> Iterator[Sample]:
    yield from along(t)
    yield call(t(3, 4), [0], dtype=torch.float32)
    yield call(t(3, 4), None)


def along_one(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, 5), 1)
    yield call(t(3, 4, 5), -1, True)
    yield call(t(), 0)


def along_one_empty(t: Make) -> Iterator[Sample]:
    yield from along_one(t)
    yield call(t(3, 0), 1)


def tied(t: Make) -> Iterator[Sample]:
    """Values that occur several times, and NaN."""
    yield call(t.distinct(3, 4, 5), 1)
    yield call(t.distinct(3, 4), -1, True)
    yield call(t(4, 6, low=0, high=1).round() if t.dtype != torch.bool else t(4, 6), 0)
    yield call(t.special(), 0)
    yield call(t(), 0)


def places(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(3, 4, 5))
    yield from tied(t)


def both(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(3, 4, 5))
    yield call(t.distinct(3, 4), dim=1)
    yield call(t.distinct(3, 4), dim=0, keepdim=True)


def extreme(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(3, 4, 5), [1])
    yield call(t.distinct(3, 4, 5), [0, 2], True)
    yield call(t.distinct(3, 4), [])
    yield call(t.special(), [0])


def counted(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4))
    yield call(t(3, 4), 1)


def variance(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, 5), [1])
    yield call(t(3, 4, 5), [0, 2], correction=0, keepdim=True)
    yield call(t(3, 4))
    yield call(t(3, 4), [1], correction=2.5)


def logsumexp(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), [1])
    yield call(t(3, 4), [0, 1], True)
    yield call(torch.tensor([[float("-inf")] * 2, [float("inf"), 1]]).to(t.dtype), [1])


def norms(t: Make) -> Iterator[Sample]:
    for order in (2, 1, 0, 3, float("inf"), float("-inf"), 2.5):
        yield call(t(3, 4), order, [1])
    yield call(t(3, 4))
    yield call(t(3, 4), 2, None, True, dtype=torch.float32)


def old_norms(t: Make) -> Iterator[Sample]:
    for order in (2, 1, 0, float("inf")):
        yield call(t(3, 4), order, [1])
    yield call(t(3, 4), None, [0], True)


def scanned(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 1)
    yield call(t(3, 4, 5).permute(2, 1, 0), 0)
    yield call(t(), 0)
    yield call(t(0, 3), 0)


def scanned_with_dtype(t: Make) -> Iterator[Sample]:
    yield from scanned(t)
    yield call(t(3, 4), -1, dtype=torch.float32)


def softmax(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 1, False)
    yield call(t(3, 4, 5), 0, False)
    yield call(t(3, 4).t(), -1, False)
    yield call(t(), 0, False)
    yield call(torch.tensor([[0.0, float("-inf")], [float("-inf"), float("-inf")]]).to(t.dtype), 1, False)


def softmax_backward(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4).softmax(1), 1, t.dtype)
    yield call(t(3, 4, 5), t(3, 4, 5).softmax(0), 0, t.dtype)


def log_softmax_backward(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), t(3, 4).log_softmax(1), 1, t.dtype)


def safe_softmax(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4), 1)
    yield call(torch.tensor([[0.0, float("-inf")], [float("-inf"), float("-inf")]]).to(t.dtype), 1)


def power_sums(t: Make) -> Iterator[Sample]:
    for ord in (0, 1, 2, 3, -1, 2.5, float("inf")):
        yield call(t(3, 4), ord)
    yield call(t.special(), 2)
    yield call(t(3, 4), 3, [1], True)
    yield call(t(0), float("inf"))
    yield call(t(3, 4), 3, dtype=torch.float32)


def no_such_dim(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(3), 2)


def no_elements(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(0))


ROWS: list[Row] = [
    Row("aten::sum", with_dtype, SUMMED, grads=True),
    Row("aten::sum.dim_IntList", along_with_dtype, SUMMED, grads=True, errors=lambda t: [call(torch.ones(3), [2])]),
    Row("aten::nansum", lambda t: [call(t.special()), call(t(3, 4), [1], True)], (F32, I64), grads=True),
    Row("aten::mean", mean, FLOATS, grads=True, errors=lambda t: [call(torch.ones(3, dtype=torch.int64))]),
    Row("aten::mean.dim", along, FLOATS, grads=True),
    Row("aten::prod", with_dtype, SUMMED, grads=True),
    Row("aten::prod.dim_int", along_one_empty, SUMMED, grads=True),
    Row("aten::count_nonzero", counted, SUMMED),
    Row("aten::count_nonzero.dim_IntList", lambda t: [call(t(3, 4), [0]), call(t(3, 4), [0, 1])], SUMMED),
    *rows(["aten::any", "aten::all"], whole_or_empty, SUMMED),
    *rows(["aten::any.dim", "aten::all.dim"], along_one_empty, SUMMED, errors=no_such_dim),
    *rows(["aten::any.dims", "aten::all.dims"], along, SUMMED),
    *rows(["aten::amax", "aten::amin"], extreme, NUMBERS, grads=True),
    *rows(["aten::max", "aten::min"], lambda t: [call(t.distinct(3, 4)), call(t.special())], NUMBERS, grads=True,
          errors=no_elements),
    *rows(["aten::max.dim", "aten::min.dim"], tied, NUMBERS, grads=True, errors=no_such_dim),
    *rows(["aten::argmax", "aten::argmin"], places, NUMBERS, errors=no_elements),
    Row("aten::aminmax", both, NUMBERS, grads=True),
    Row("aten::_aminmax", lambda t: [call(t(3, 4)), call(t.special())], (F32, I64), errors=no_elements),
    Row("aten::_aminmax.dim", lambda t: [call(t(3, 4), 1), call(t(2, 3, 4), -2, True), call(t(), 0)], (F32, I64),
        errors=no_such_dim),
    Row("aten::linalg__powsum", power_sums, FLOATS, errors=lambda t: [call(torch.ones(3, dtype=torch.int64))]),
    *rows(["aten::var.correction", "aten::std.correction", "aten::var_mean.correction", "aten::std_mean.correction"], variance,
          FLOATS, grads=True),
    Row("aten::logsumexp", logsumexp, FLOATS, grads=True),
    Row("aten::linalg_vector_norm", norms, FLOATS, grads=True),
    Row("aten::norm.Scalar", lambda t: [call(t(3, 4)), call(t(3, 4), 1), call(t(3, 4), 3)], FLOATS, grads=True),
    Row("aten::norm.ScalarOpt_dim", old_norms, FLOATS, grads=True),
    Row("aten::norm.ScalarOpt_dim_dtype", lambda t: [call(t(3, 4), 2, [1], False, dtype=torch.float32)], FLOATS),
    Row("aten::norm.ScalarOpt_dtype", lambda t: [call(t(3, 4), 2, dtype=torch.float32)], FLOATS),
    Row("aten::trace", lambda t: [call(t(3, 4)), call(t(4, 3))], (F32, I64), grads=True),
    *rows(["aten::cumsum", "aten::cumprod"], scanned_with_dtype, SUMMED, grads=True, errors=no_such_dim),
    *rows(["aten::logcumsumexp", "aten::_logcumsumexp"], scanned, FLOATS),
    *rows(["aten::cummax", "aten::cummin"], scanned, (F32, I64), grads=True),
    Row("aten::_softmax", softmax, FLOATS, grads=True, errors=lambda t: [call(torch.ones(3), 2, False)]),
    Row("aten::_log_softmax", softmax, FLOATS, grads=True),
    Row("aten::_softmax_backward_data", softmax_backward, FLOATS),
    Row("aten::_log_softmax_backward_data", log_softmax_backward, FLOATS),
    Row("aten::_safe_softmax", safe_softmax, FLOATS),
]
