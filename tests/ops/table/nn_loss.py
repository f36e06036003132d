"""Rows of losses over sequences and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.row import F32, Make, Row, Sample, call

LOOSE = {F32: (1e-4, 1e-5)}
aten = torch.ops.aten


def spoken(t: Make, packed: bool = False, tensors: bool = False) -> tuple[Any, ...]:
    """Log-probabilities, targets and lengths; two repeated labels, which no path may join, and one input that is too short."""
    logp, targets = t(12, 4, 5).log_softmax(2), torch.tensor([[1, 1, 2, 3], [4, 3, 2, 1], [1, 2, 0, 0], [3, 3, 3, 3]])
    lengths = [12, 9, 7, 5], [4, 3, 2, 4]
    if packed:
        targets = torch.cat([row[:n] for row, n in zip(targets, lengths[1], strict=True)])
    return logp, targets, *(torch.tensor(n) if tensors else n for n in lengths)


def ctc(tensors: bool) -> Any:
    def samples(t: Make) -> Iterator[Sample]:
        yield call(*spoken(t, tensors=tensors), 0)
        yield call(*spoken(t, packed=True, tensors=tensors), 0, True)
        yield call(t(6, 2, 5).log_softmax(2), torch.empty(2, 0, dtype=torch.int64), *([torch.tensor([6, 0]), torch.tensor([0, 0])]
                   if tensors else [[6, 0], [0, 0]]), 2)

    return samples


def ctc_backward(tensors: bool) -> Any:
    def samples(t: Make) -> Iterator[Sample]:
        for packed, zero_infinity in ((False, True), (True, False)):
            given = spoken(t, packed, tensors)
            if not zero_infinity:  # the CPU's gradient of an infinite loss is not a number
                given = (*given[:2], *(torch.tensor(n) if tensors else n for n in ([12, 9, 7, 8], [4, 3, 2, 4])))
            loss, alpha = aten._ctc_loss(*given, 0, zero_infinity)
            yield call(t(4), *given, loss, alpha, 0, zero_infinity)

    return samples


def multi_margin_backward(t: Make) -> Iterator[Sample]:
    target = t.index(4, 3)
    for reduction in (0, 1, 2):
        for p in (1, 2):
            yield call(t(3) if reduction == 0 else t(), t(3, 4), target, p, 0.7, t(4), reduction)
    yield call(t(), t(4), torch.tensor(2), 1, 1, None, 1)
    yield call(t(), t(), torch.tensor([0]), 1, 1, None, 0)


LABELS = torch.tensor([[1, 3, -1, 0], [2, -1, 2, 2], [0, 1, 2, 3]])


def multilabel(t: Make) -> Iterator[Sample]:
    for reduction in (0, 1, 2):
        yield call(t(3, 4), LABELS, reduction)
    yield call(t(4), LABELS[0], 0)
    yield call(t(), torch.tensor(0), 1)


def multilabel_backward(t: Make) -> Iterator[Sample]:
    for sample in multilabel(t):
        loss, is_target = aten.multilabel_margin_loss_forward(*sample.args)
        yield call(t(*loss.shape), *sample.args, is_target)


def unequal_labels(t: Make) -> Iterator[Sample]:
    """Targets of other shapes than the scores, and no scores."""
    for scores, targets in (((5, 4), (4,)), ((5, 4), ()), ((5, 0), (5, 4))):
        yield call(t(*scores), torch.zeros(targets, dtype=torch.int64), 1)


ROWS: list[Row] = [
    Row("aten::_ctc_loss", ctc(tensors=False), (F32,), grads=("log_probs",), tolerance=LOOSE, first_only=True),
    Row("aten::_ctc_loss.Tensor", ctc(tensors=True), (F32,), tolerance=LOOSE, first_only=True),
    Row("aten::_ctc_loss_backward", ctc_backward(tensors=False), (F32,), tolerance=LOOSE),
    Row("aten::_ctc_loss_backward.Tensor", ctc_backward(tensors=True), (F32,), tolerance=LOOSE),
    Row("aten::multi_margin_loss_backward", multi_margin_backward, (F32,)),
    Row("aten::multilabel_margin_loss_forward", multilabel, (F32,), grads=("self",), errors=unequal_labels),
    Row("aten::multilabel_margin_loss_backward", multilabel_backward, (F32,)),
]
