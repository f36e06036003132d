"""Rows of operators that move values: joining, padding, repeating, and the gradients of views."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import EXACT, F32, FLOATS, I64, Make, Row, Sample, call, rows


def cat(t: Make) -> Iterator[Sample]:
    yield call([t(2, 3), t(4, 3)])
    yield call([t(2, 3), t(2, 1), t(2, 0)], -1)
    yield call([t(2, 3, 4, 5).to(memory_format=torch.channels_last)] * 2, 1)
    yield call([t(2, 3), t(2, 3, dtype=torch.float32)], 1)
    yield call([t(0), t(2, 3)])


def stack(t: Make) -> Iterator[Sample]:
    yield call([t(2, 3), t(2, 3)])
    yield call([t(2, 3), t(2, 3)], -1)
    yield call([t(), t()])


def pad(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3), [1, 2])
    yield call(t(2, 3), [1, 0, 2, 1], 1)
    yield call(t(2, 5), [-1, -2])


def flip(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3), [0])
    yield call(t(2, 3).t(), [0, -1])
    yield call(t(2, 3), [])


def roll(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3), [1])
    yield call(t(2, 3), [1, -2], [0, 1])


def triangle(t: Make) -> Iterator[Sample]:
    for diagonal in (0, 1, -1):
        yield call(t(3, 4), diagonal)
    yield call(t(2, 4, 3))


def slice_scatter(t: Make) -> Iterator[Sample]:
    yield call(t(5, 3), t(2, 3), 0, 1, 5, 2)
    yield call(t(5, 3), t(5, 1), 1, -1)


def strided_slice_gradients(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3), [5, 3], 0, 1, 5, 2)


def repeat(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3), [2, 1])
    yield call(t(3), [2, 1, 2])
    yield call(t(), [3])


def diagonals(t: Make) -> Iterator[Sample]:
    yield call(t(2, 3))
    yield call(t(3), 1)
    yield call(t(2, 3), -1, 0, 1)


def halves(t: Make) -> Iterator[Sample]:
    yield call(t(4, 6), 2, 1)


def pieces(t: Make) -> Iterator[Sample]:
    yield call(t(4, 6), [1, 2, 3], 1)


def numbers(t: Make) -> Iterator[Sample]:
    yield call([t(2, 3), t(2, 2)])


def unequal(t: Make) -> Iterator[Sample]:
    yield call([torch.ones(2, 3), torch.ones(2, 4)])
    yield call([torch.ones(2), torch.ones(2)], 3)


ROWS: list[Row] = [
    Row("aten::cat", cat, EXACT, grads=True, errors=unequal),
    *rows(["aten::stack", "aten::_stack"], stack, EXACT, errors=unequal),
    Row("aten::constant_pad_nd", pad, EXACT, grads=True),
    Row("aten::repeat", repeat, EXACT, grads=True, errors=lambda t: [call(torch.ones(2, 3), [2])]),
    Row("aten::flip", flip, EXACT, grads=True),
    Row("aten::roll", roll, EXACT, grads=True),
    Row("aten::rot90", lambda t: [call(t(2, 3)), call(t(2, 3), 2), call(t(2, 3, 4), -1, [1, 2])], EXACT, grads=True),
    *rows(["aten::tril", "aten::triu"], triangle, EXACT, grads=True, errors=lambda t: [call(torch.ones(3))]),
    *rows(["aten::_unsafe_view", "aten::_reshape_copy", "aten::view_copy"], lambda t: [call(t(2, 6), [3, 4])], EXACT),
    Row("aten::_reshape_alias_copy", lambda t: [call(t(2, 6), [3, 4], [4, 1])], (F32, I64)),
    Row("aten::slice_backward", strided_slice_gradients, FLOATS),
    Row("aten::select_backward", lambda t: [call(t(3), [5, 3], 0, -2)], FLOATS),
    Row("aten::slice_scatter", slice_scatter, EXACT, grads=True),
    Row("aten::select_scatter", lambda t: [call(t(5, 3), t(3), 0, 2)], EXACT, grads=True),
    Row("aten::diag_embed", diagonals, EXACT, grads=True),
    Row("aten::diagonal_backward", lambda t: [call(t(3), [3, 4], 0, 0, 1)], FLOATS),
    Row("aten::diagonal_scatter", lambda t: [call(t(3, 4), t(3)), call(t(3, 4), t(2), -1)], EXACT, grads=True),
    Row("aten::unfold_backward", lambda t: [call(t(2, 3, 4), [2, 8], 1, 4, 2)], FLOATS),
    *rows(["aten::split_with_sizes_copy", "aten::unsafe_split_with_sizes"], pieces, EXACT),
    *rows(["aten::split_copy.Tensor", "aten::unsafe_split.Tensor"], halves, EXACT),
    Row("aten::narrow_copy", lambda t: [call(t(4, 6), 1, 2, 3)], EXACT),
    Row("aten::block_diag", numbers, EXACT),
]
