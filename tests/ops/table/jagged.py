"""Rows of conversions between jagged and padded sequences."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import F32, FLOATS, I64, Make, Row, Sample, call

BOUNDS = torch.tensor([0, 3, 3, 7, 9])


def to_padded(t: Make) -> Iterator[Sample]:
    yield call(t(9, 2), [BOUNDS], [4])
    yield call(t(9, 2), [BOUNDS], [4], -1.0)
    yield call(t(9, 2), [BOUNDS], [2])  # the longest one is cut


def to_jagged(t: Make) -> Iterator[Sample]:
    yield call(t(4, 4, 2), [BOUNDS], 9)
    yield call(t(4, 5, 2), [BOUNDS], 9)


ROWS: list[Row] = [
    Row("aten::_jagged_to_padded_dense_forward", to_padded, (F32, I64)),
    Row("aten::_padded_dense_to_jagged_forward", to_jagged, FLOATS),
]
