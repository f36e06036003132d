"""Rows of indexing, scattering, searching and sorting."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import EXACT, F32, FLOATS, I32, I64, NUMBERS, Make, Row, Sample, Samples, call, rows


def index(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5, 6), [t.index(4, 3), None, t.index(6, 3)])
    yield call(t(4, 5), [t.index(4, 2, 3)])
    yield call(t(4, 5), [None, t.index(5, 3) - 5])
    yield call(t(4, 5), [t.index(4, 2, 1), t.index(5, 3)])
    yield call(t(4, 5), [t.index(4, 0)])


def masks(t: Make) -> Iterator[Sample]:
    yield from index(t)
    yield call(t(4, 5, 6), [t.mask(4, 5)])
    yield call(t(4, 5), [None, t.mask(5)])
    yield call(t(4, 5), [torch.zeros(4, dtype=torch.bool)])


def put(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), [t.order(4)[:2], t.order(5)[:2]], t(2))
    yield call(t(4, 5), [t.order(4)[:3]], t(5))
    yield call(t(4, 5), [None, t.index(5, 7)], t(4, 7), True)
    yield call(t(4, 5), [t.mask(4)], t())
    yield call(t(4, 5), [t.mask(4, 5)], t(1))
    yield call(t(4, 5), [torch.tensor([True, False, True, True])], t(3, 5))


def select(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.index(4, 7))
    yield call(t(4, 5, 6), -1, t.index(6, 2).to(torch.int32))
    yield call(t(4, 5), 1, t.index(5, 0))


def gather(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 1, t.index(5, 3, 2))
    yield call(t(4, 5, 6), 0, t.index(4, 2, 5, 3))
    yield call(t(), 0, torch.tensor(0))
    yield call(t(4, 5), 0, t.index(4, 0, 5))


def added(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.index(4, 7), t(7, 5))
    yield call(t(4, 5), 1, t.index(5, 2), t(4, 2), alpha=2)


def copied(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.order(4)[:2], t(2, 5))
    yield call(t(4, 5), -1, t.order(5), t(4, 5))


def filled(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.index(4, 2), 1)


def scatter(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.order(4)[:2, None].expand(2, 5), t(2, 5))
    yield call(t(4, 5), 1, t.order(5)[None, :3].expand(4, 3), t(4, 3))


def scatter_value(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.index(4, 2, 5), 1)


def scatter_add(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.index(4, 6, 5), t(6, 5))
    yield call(t(4, 5), 1, t.index(5, 4, 2), t(4, 2))


def reduced(t: Make) -> Iterator[Sample]:
    for how in ("sum", "prod", "mean", "amax", "amin"):
        yield call(t(4, 5, low=1, high=4), 0, t.index(4, 6, 5), t(6, 5, low=1, high=4), how)
        yield call(t(4, 5, low=1, high=4), 0, t.index(4, 6, 5), t(6, 5, low=1, high=4), how, include_self=False)


def index_reduced(t: Make) -> Iterator[Sample]:
    for how in ("prod", "mean", "amax", "amin"):
        yield call(t(4, 5, low=1, high=4), 0, t.index(4, 6), t(6, 5, low=1, high=4), how)


def scatter_reduce(t: Make) -> Iterator[Sample]:
    for how in ("add", "multiply"):
        yield call(t(4, 5), 0, t.index(4, 6, 5), t(6, 5), reduce=how)


def scatter_value_reduce(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), 0, t.index(4, 3, 5), 2, reduce="add")


def embedding(t: Make) -> Iterator[Sample]:
    yield call(t(7, 4), t.index(7, 2, 3))
    yield call(t(7, 4), t.index(7, 5), 2)


def embedding_backward(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3, 4), t.index(7, 2, 3), 7, -1, False)
    yield call(t(5, 4), t.index(7, 5), 7, 2, True)


def masked_scatter(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), t.mask(4, 5), t(4, 5))
    yield call(t(4, 5), t.mask(5), t(20))


def nonzero_static(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), size=30)
    yield call(t(4, 5), size=3, fill_value=7)


def ordered(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(4, 6))
    yield call(t.distinct(4, 6), 0)
    yield call(t.distinct(4, 6), -1, True)
    yield call(t())


def stable(t: Make) -> Iterator[Sample]:
    yield call(t(4, 9, low=0, high=2).round() if t.dtype != torch.bool else t(4, 9), stable=True)
    yield call(t(4, 9, low=0, high=2).round() if t.dtype != torch.bool else t(4, 9), stable=True, dim=0, descending=True)
    yield call(t.special(), stable=True)


def largest(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(4, 6), 3)
    yield call(t.distinct(4, 6), 2, 0, False)
    yield call(t.distinct(4, 6), 6, -1)
    yield call(t.special(), 3)


def kth(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(4, 6), 2)
    yield call(t.distinct(4, 6), 3, 0, True)


def medians(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(4, 6))
    yield call(t.special())


def median_along(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(4, 6), 1)
    yield call(t.distinct(4, 6), 0, True)


def most_frequent(t: Make) -> Iterator[Sample]:
    yield call(torch.tensor([[1, 2, 2, 3, 3, 3], [0, 0, 0, 1, 1, 5]]).to(t.dtype))


def search(t: Make) -> Iterator[Sample]:
    edges = torch.tensor([1, 3, 5, 7]).to(t.dtype)
    yield call(edges, t(3, 4, low=0, high=9))
    yield call(edges, t(3, 4, low=0, high=9), right=True, out_int32=True)
    yield call(torch.stack([edges, edges + 1]), t(2, 3, low=0, high=9))


def buckets(t: Make) -> Iterator[Sample]:
    for sample in list(search(t))[:2]:
        yield call(sample.args[1], sample.args[0], **sample.kwargs)


def member(t: Make) -> Iterator[Sample]:
    yield call(t.distinct(3, 4), t.distinct(3))
    yield call(t.distinct(3, 4), t.distinct(3), invert=True)


def taken(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), t.index(20, 2, 3))
    yield call(t(4, 5), t.index(20, 3) - 20)


def taken_put(t: Make) -> Iterator[Sample]:
    yield call(t(4, 5), t.order(20)[:3], t(3))
    yield call(t(4, 5), t.index(20, 9), t(9), True)


def with_value(samples: Samples) -> Samples:
    def changed(t: Make) -> Iterator[Sample]:
        for sample in samples(t):
            yield call(*sample.args[:3], t())

    return changed


def wrong_dtype(t: Make) -> Iterator[Sample]:
    yield call(torch.ones(4, 5), 0, torch.ones(3))


def counted(t: Make) -> Iterator[Sample]:
    yield call(torch.tensor([3, 1, 1, 0]).to(t.dtype))
    yield call(torch.tensor([3, 1, 1, 0]).to(t.dtype), torch.tensor([0.5, 1, 2, 4]), 7)


def repeated(t: Make) -> Iterator[Sample]:
    yield call(torch.tensor([3, 0, 1, 2]).to(t.dtype))


def twice(t: Make) -> torch.Tensor:
    return torch.tensor([[2, 1, 2, 2], [0, 0, 5, 0], [2, 1, 2, 2]]).to(t.dtype)


ROWS: list[Row] = [
    Row("aten::index.Tensor", masks, EXACT, grads=True,
        errors=lambda t: [call(torch.ones(3), [torch.ones(2, dtype=torch.int64)] * 2)]),
    Row("aten::_unsafe_index.Tensor", index, (F32, I64)),
    Row("aten::index_put", put, NUMBERS, grads=True),
    *rows(["aten::_unsafe_index_put", "aten::_index_put_impl"], put, (F32,)),
    Row("aten::index_select", select, EXACT, grads=True, errors=wrong_dtype),
    Row("aten::gather", gather, EXACT, grads=True, errors=wrong_dtype),
    Row("aten::take", taken, EXACT, grads=True),
    Row("aten::put", taken_put, NUMBERS, grads=True),
    Row("aten::index_add", added, NUMBERS, grads=True),
    Row("aten::index_copy", copied, EXACT, grads=True),
    Row("aten::index_fill.int_Scalar", filled, EXACT, grads=True),
    Row("aten::index_fill.int_Tensor", with_value(filled), EXACT),
    Row("aten::masked_scatter", masked_scatter, EXACT, grads=True),
    Row("aten::masked_scatter_backward", lambda t: [call(t(4, 5), t.mask(4, 5), [20])], FLOATS),
    Row("aten::embedding", embedding, FLOATS, grads=True),
    Row("aten::embedding_dense_backward", embedding_backward, FLOATS),
    Row("aten::nonzero_static", nonzero_static, (F32, I64)),
    Row("aten::scatter.src", scatter, EXACT, grads=True, errors=wrong_dtype),
    Row("aten::scatter.value", scatter_value, EXACT, grads=True),
    Row("aten::scatter_add", scatter_add, NUMBERS, grads=True),
    Row("aten::scatter.reduce", scatter_reduce, NUMBERS),
    Row("aten::scatter.value_reduce", scatter_value_reduce, NUMBERS),
    Row("aten::scatter_reduce.two", reduced, NUMBERS, grads=True),
    Row("aten::index_reduce", index_reduced, (F32, I64)),
    Row("aten::sort", ordered, NUMBERS, grads=True),
    Row("aten::sort.stable", stable, EXACT, grads=True),
    Row("aten::topk", largest, NUMBERS, grads=True, errors=lambda t: [call(torch.ones(3), 5)]),
    Row("aten::kthvalue", kth, NUMBERS, grads=True),
    *rows(["aten::median", "aten::nanmedian"], medians, (F32, I64)),
    *rows(["aten::median.dim", "aten::nanmedian.dim"], median_along, (F32, I64), grads=True),
    Row("aten::mode", most_frequent, NUMBERS),
    Row("aten::searchsorted.Tensor", search, (F32, I64)),
    Row("aten::searchsorted.Scalar", lambda t: [call(torch.tensor([1, 3, 5, 7]).to(t.dtype), 4)], (F32, I64)),
    Row("aten::bucketize.Tensor", buckets, (F32, I64)),
    Row("aten::bucketize.Scalar", lambda t: [call(4, torch.tensor([1, 3, 5, 7]).to(t.dtype))], (F32, I64)),
    Row("aten::isin.Tensor_Tensor", member, (F32, I64)),
    Row("aten::isin.Tensor_Scalar", lambda t: [call(t.distinct(3, 4), 1)], (F32, I64)),
    Row("aten::isin.Scalar_Tensor", lambda t: [call(1, t.distinct(3, 4))], (F32, I64)),
    Row("aten::histc", lambda t: [call(t(20), 4), call(t(20), 5, -1, 1)], (F32,)),
    Row("aten::nonzero", lambda t: [call(t(4, 5)), call(torch.zeros(3, dtype=t.dtype))], EXACT,
        no_strides="the CPU transposes the result"),
    Row("aten::masked_select", lambda t: [call(t(4, 5), t.mask(4, 5)), call(t(4, 5), t.mask(5))], EXACT, grads=True),
    Row("aten::bincount", counted, (I64, I32)),
    Row("aten::repeat_interleave.Tensor", repeated, (I64, I32)),
    Row("aten::_unique2", lambda t: [call(twice(t)), call(twice(t), True, True, True)], (F32, I64)),
    Row("aten::unique_consecutive", lambda t: [call(twice(t)), call(twice(t), True, True)], (F32, I64)),
    Row("aten::_unique", lambda t: [call(twice(t), True, True)], (F32, I64)),
    Row("aten::unique_dim", lambda t: [call(twice(t), 0, True, True, True)], (F32, I64)),
    Row("aten::unique_dim_consecutive", lambda t: [call(twice(t), 0, True, True)], (F32, I64)),
]
