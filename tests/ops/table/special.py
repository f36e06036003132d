"""Rows of Airy's and Bessel's functions and of orthogonal polynomials; how exact they are, ``test_special.py`` says."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.row import F32, I64, U8, Make, Row, Sample, call, rows
from torchtpu.rules.special_bessel import BESSEL
from torchtpu.rules.special_polynomials import POLYNOMIALS


def arguments(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=0.5, high=4.5))
    yield call(t(low=0.5, high=4.5))
    yield call(t(0, 3))
    yield call(t.special())


def degrees(t: Make) -> Iterator[Sample]:
    yield call(t(3, 4, low=-0.9, high=0.9), torch.tensor([0, 1, 2, 5]))
    yield call(t(2, 1, low=1, high=3), t(5, low=0, high=6))
    yield call(t(), torch.tensor(3, dtype=torch.uint8))
    yield call(t(0, 3), torch.tensor(3))


ROWS: list[Row] = [
    *rows(BESSEL, arguments, (F32, I64)),
    *rows(POLYNOMIALS, degrees, (F32, I64, U8)),
]
