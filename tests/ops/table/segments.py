"""Rows of bags, segments, histograms and hashes: what many elements of one place come to."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import BF16, BOOL, F32, F64, FLOATS, I32, I64, U8, Make, Row, Sample, call, rows

aten = torch.ops.aten
MODES = (0, 1, 2)  # sum, mean, max


def bags(t: Make) -> Iterator[Sample]:
    indices, offsets = t.index(6, 9), torch.tensor([0, 3, 3, 7])
    for mode in MODES:
        yield call(t(6, 4), indices, offsets, False, mode)
        yield call(t(6, 4), indices, offsets, False, mode, False, None, False, int(indices[1]))
        yield call(t(6, 4), indices, torch.tensor([0, 3, 3, 9]), False, mode, False, None, True)
    yield call(t(6, 4), indices, offsets, False, 0, False, t(9))
    yield call(t(6, 4), indices[:0], offsets * 0, False, 0)


def bags_backward(t: Make) -> Iterator[Sample]:
    for sample in list(bags(t))[:-1]:
        _, indices, offsets, _, mode, *rest = (*sample.args, *[False, None, False, -1][len(sample.args) - 5:])
        out, bag, size, maxima = aten._embedding_bag(*sample.args)
        yield call(t(*out.shape), indices, offsets, bag, size, maxima, 6, False, mode, False, rest[1], rest[3])


def bags_dense_backward(t: Make) -> Iterator[Sample]:
    for sample in bags_backward(t):
        grad, indices, _, bag, size, maxima, num, scale, mode, _, weights, padding = sample.args
        if bag.numel():
            yield call(grad, indices, bag, size, maxima, num, scale, mode, weights, padding)


def sample_weights_backward(t: Make) -> Iterator[Sample]:
    indices, offsets = t.index(6, 9), torch.tensor([0, 3, 3, 7])
    bag = torch.tensor([0, 0, 0, 2, 2, 2, 2, 3, 3])
    yield call(t(4, 5), t(6, 5), indices, offsets, bag, 0)
    yield call(t(4, 5), t(6, 5), indices, offsets, bag, 0, int(indices[1]))


REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def segments(t: Make) -> Iterator[Sample]:
    for reduce in REDUCTIONS:
        yield call(t(7, 2), reduce, lengths=torch.tensor([3, 0, 4]), initial=1)
        yield call(t(7), reduce, offsets=torch.tensor([0, 2, 2, 7]), unsafe=True)
        yield call(t(2, 5, 3), reduce, lengths=torch.tensor([[2, 3], [4, 1]]), axis=1)


def segments_backward(t: Make) -> Iterator[Sample]:
    for sample in segments(t):
        named = {name: value for name, value in sample.kwargs.items() if name != "unsafe"}
        for data in (sample.args[0], sample.args[0].round()):  # several extremes in a segment, and zeros
            out = aten.segment_reduce(data, sample.args[1], **sample.kwargs)
            # Positive, because the CPU shares no other gradients between several extremes.
            yield call(t(*out.shape, low=0.1), out, data, sample.args[1], **named)


def bin_counts(t: Make) -> Iterator[Sample]:
    yield call(t(20), 5)
    yield call(t(20), 5, range=[-1.5, 1.0], density=True)
    yield call(t(4, 5), 3, weight=t(4, 5, low=0))
    yield call(torch.ones(3), 4)
    yield call(torch.arange(8).float(), 7)


def bin_edges(t: Make) -> Iterator[Sample]:
    edges = torch.tensor([-1.5, -1.0, 0.5, 1.5])
    yield call(t(20), edges)
    yield call(torch.cat([edges, t(9)]), edges, weight=t(13, low=0), density=True)


def several_counts(t: Make) -> Iterator[Sample]:
    yield call(t(20, 2), [3, 4])
    yield call(t(4, 5, 2), [3, 4], range=[-1.0, 1.0, -2.0, 1.5], weight=t(4, 5, low=0), density=True)


def several_edges(t: Make) -> Iterator[Sample]:
    yield call(t(20, 2), [torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([-2.0, -0.5, 0.5, 2.0])], weight=t(20, low=0))


def hashes(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4))
    yield call(t(3, 4), [1], keepdim=True)
    if t.dtype.is_floating_point:
        yield call(torch.tensor([0.0, -0.0, 1e-40, -1.4e-45, 3e38, float("inf"), float("nan")])[:, None].to(t.dtype), [1])


ROWS: list[Row] = [
    Row("aten::_embedding_bag", bags, FLOATS, grads=("weight",), first_only=True, dense=True),
    Row("aten::_embedding_bag_forward_only", bags, FLOATS, first_only=True, dense=True),  # the CPU reads other offsets wrongly
    Row("aten::_embedding_bag_backward", bags_backward, (F32,), dense=True),
    Row("aten::_embedding_bag_dense_backward", bags_dense_backward, (F32,)),
    Row("aten::_embedding_bag_per_sample_weights_backward", sample_weights_backward, (F32, BF16)),
    Row("aten::segment_reduce", segments, FLOATS, grads=("data",)),
    Row("aten::_segment_reduce_backward", segments_backward, (F32,)),
    Row("aten::histogram.bin_ct", bin_counts, (F32,)),
    Row("aten::histogram.bins_tensor", bin_edges, (F32,)),
    *rows(["aten::_histogramdd_bin_edges", "aten::_histogramdd_from_bin_cts"], several_counts, (F32,)),
    Row("aten::_histogramdd_from_bin_tensors", several_edges, (F32,)),
    Row("aten::hash_tensor", hashes, (F32, BF16, F64, I64, I32, U8, BOOL)),
]
