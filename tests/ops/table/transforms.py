"""Rows of Fourier transforms, factorisations, distances, and reading images at the places of a grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.compare import tensors
from tests.ops.row import BF16, C64, F32, I64, Make, Row, Sample, Samples, call, rows

LOOSE = {F32: (1e-4, 1e-5), C64: (1e-4, 1e-5)}


def positive(t: Make, *batch: int) -> torch.Tensor:
    """Positive definite matrices."""
    a = t(*batch, 4, 4)
    return a @ a.mT + 4 * torch.eye(4)


def regular(t: Make, *batch: int) -> torch.Tensor:
    """Matrices far from singular, whose rows are exchanged by a factorisation."""
    return t(*batch, 4, 4) + 3 * torch.eye(4).flip(0)


def complex_to_complex(t: Make) -> Iterator[Sample]:
    yield call(t(3, 8), [1], 0, True)
    yield call(t(3, 8), [0, 1], 2, False)
    yield call(t(3, 7), [1], 1, True)


def real_to_complex(t: Make) -> Iterator[Sample]:
    yield call(t(3, 8), [1], 0, True)
    yield call(t(3, 7), [0, 1], 1, True)
    yield call(t(3, 8), [1], 0, False)


def complex_to_real(t: Make) -> Iterator[Sample]:
    for size in (8, 9):
        half = torch.fft.rfft(torch.randn(3, size, generator=t.generator)).to(t.dtype)
        yield call(half, [1], 2, size)


def points(t: Make) -> Iterator[Sample]:
    for p in (2.0, 1.0, 0.0, 3.0, float("inf")):
        yield call(t(5, 3), t(4, 3), p, None)
    yield call(t(2, 5, 3), t(2, 4, 3), 2.0, 2)


def points_backward(t: Make) -> Iterator[Sample]:
    for p in (2.0, 1.0, 3.0, 1.5, float("inf")):
        x, y = t(5, 3), t(4, 3)
        yield call(t(5, 4), x, y, p, torch.cdist(x, y, p))
    x = t(5, 3)
    yield call(t(5, 5), x, x, 2.0, torch.cdist(x, x))


def packed(t: Make) -> Iterator[Sample]:
    for p in (2.0, 1.0, 0.0, 3.0, float("inf")):
        yield call(t(5, 3), p)


def packed_backward(t: Make) -> Iterator[Sample]:
    for sample in packed(t):
        x, p = sample.args
        yield call(t(10), x, p, torch.pdist(x, p))


def grid(dims: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        image, places = t(2, 3, *[5, 6, 4][:dims]), t(2, *[4, 3, 5][:dims], dims, low=-1.3, high=1.3)
        for mode in (0, 1, 2)[: 5 - dims]:
            for padding in (0, 1, 2):
                yield call(image, places, mode, padding, padding == 1)

    return samples


def grid_backward(dims: int) -> Samples:
    def samples(t: Make) -> Iterator[Sample]:
        for sample in list(grid(dims)(t))[:: 4 if dims == 3 else 2]:
            yield call(t(2, 3, *[4, 3, 5][:dims]), *sample.args, [True, True])

    return samples


def triangles(t: Make) -> Iterator[Sample]:
    for upper in (False, True):
        for left in (False, True):
            yield call(regular(t, 2), t(2, 4, 4), upper=upper, left=left)
    yield call(regular(t), t(2, 4, 3), upper=True, unitriangular=True)


def solve(t: Make) -> Iterator[Sample]:
    yield call(regular(t), t(4, 2))
    yield call(regular(t, 3), t(3, 4))
    yield call(regular(t).mT, t(2, 4), left=False)


def reflectors(t: Make) -> Iterator[Sample]:
    for shape in ((5, 3), (2, 4, 4)):
        yield call(*torch.geqrf(t(*shape)))


def rotated(t: Make) -> Iterator[Sample]:
    for left, transpose in ((True, False), (True, True), (False, False), (False, True)):
        yield call(*torch.geqrf(t(5, 3)), t(5, 2) if left else t(2, 5), left, transpose)


def rectangles(t: Make) -> Iterator[Sample]:
    for shape in ((4, 4), (5, 3), (3, 5), (2, 4, 3)):
        yield call(t(*shape))


def least_squares(t: Make) -> Iterator[Sample]:
    for driver in ("gelsy", "gels", "gelsd"):
        for a, b in (((3, 5), (3, 2)), ((4, 4), (4, 2)), ((2, 3, 5), (2, 3)), ((5, 3), (5,))):
            yield call(t(*a) + torch.eye(*a[-2:]), t(*b), driver=driver)


def exponents(t: Make) -> Iterator[Sample]:
    for factor in (0.01, 1, 8):
        yield call(t(2, 4, 4) * factor)


def combinations(t: Make) -> Iterator[Sample]:
    yield call(t(5, 3, 4), t(2, 5))
    yield call(t(5), t(2, 5))


def spectra(t: Make) -> Iterator[Sample]:
    yield call(MATRIX)


def recomposes(multiply: Any) -> Any:
    """Factors are not unique: their product is compared, by the row's samples, with the matrix itself."""

    def check(result: Any) -> None:
        torch.testing.assert_close(multiply(*(part.cpu() for part in tensors(result))), MATRIX, rtol=1e-4, atol=1e-4)

    return check


MATRIX = positive(Make(F32))
NOT_UNIQUE = "factors are unique but for signs"

ROWS: list[Row] = [
    Row("aten::_fft_c2c", complex_to_complex, (C64,), grads=True, tolerance=LOOSE, dense=True),  # the CPU asserts that they are
    Row("aten::_fft_r2c", real_to_complex, (F32,), grads=True, tolerance=LOOSE),
    Row("aten::_fft_c2r", complex_to_real, (C64,), tolerance=LOOSE),
    Row("aten::_cdist_forward", points, (F32,), tolerance=LOOSE),
    Row("aten::_cdist_backward", points_backward, (F32,), tolerance=LOOSE),
    Row("aten::_pdist_forward", packed, (F32,), grads=("self",), tolerance=LOOSE, dense=True),
    Row("aten::_pdist_backward", packed_backward, (F32,), tolerance=LOOSE, dense=True),
    Row("aten::grid_sampler_2d", grid(2), (F32,), tolerance=LOOSE),
    Row("aten::grid_sampler_3d", grid(3), (F32,), tolerance=LOOSE),
    Row("aten::grid_sampler_2d_backward", grid_backward(2), (F32,), tolerance=LOOSE),
    Row("aten::grid_sampler_3d_backward", grid_backward(3), (F32,), tolerance=LOOSE),
    Row("aten::linalg_cholesky_ex", lambda t: [call(positive(t)), call(positive(t, 2), upper=True)], (F32,), grads=True,
        tolerance=LOOSE),
    Row("aten::_cholesky_solve_helper", lambda t: [call(t(4, 2), torch.linalg.cholesky(positive(t)), False)], (F32,),
        tolerance=LOOSE),
    Row("aten::cholesky_inverse", lambda t: [call(torch.linalg.cholesky(positive(t)))], (F32,), tolerance=LOOSE),
    Row("aten::linalg_solve_triangular", triangles, (F32,), grads=True, tolerance=LOOSE),
    Row("aten::triangular_solve", lambda t: [call(t(4, 2), regular(t)), call(t(4, 2), regular(t), False, True)], (F32,),
        tolerance=LOOSE),
    Row("aten::_linalg_solve_ex", solve, (F32,), grads=True, tolerance=LOOSE, first_only=True),
    Row("aten::linalg_inv_ex", lambda t: [call(regular(t)), call(regular(t, 2))], (F32,), grads=True, tolerance=LOOSE),
    Row("aten::linalg_lu_factor_ex", lambda t: [call(regular(t)), call(t(3, 5))], (F32,), tolerance=LOOSE),
    Row("aten::_linalg_det", lambda t: [call(regular(t)), call(regular(t, 2)), call(regular(t).mT)], (F32,), grads=True,
        tolerance=LOOSE, first_only=True),
    *rows(["aten::_linalg_slogdet"], lambda t: [call(regular(t)), call(regular(t, 2))], (F32,), grads=True, tolerance=LOOSE,
          first_only=True),
    Row("aten::linalg_matrix_exp", exponents, (F32, BF16), grads=True),
    Row("aten::_compute_linear_combination", combinations, (F32, BF16, I64)),
    Row("aten::cholesky", lambda t: [call(positive(t)), call(positive(t, 2), True)], (F32,), grads=True, tolerance=LOOSE),
    Row("aten::geqrf", rectangles, (F32,), tolerance=LOOSE),
    Row("aten::linalg_householder_product", reflectors, (F32,), grads=True, tolerance=LOOSE),
    Row("aten::ormqr", rotated, (F32,), grads=True, tolerance=LOOSE),
    Row("aten::linalg_lu", rectangles, (F32,), grads=True, tolerance=LOOSE),
    Row("aten::linalg_lstsq", least_squares, (F32,), grads=("self", "b"), tolerance=LOOSE),
    Row("aten::_linalg_svd", spectra, (F32,), no_values=NOT_UNIQUE, check=recomposes(lambda u, s, vh: u * s @ vh)),
    Row("aten::linalg_qr", lambda t: [call(MATRIX)], (F32,), no_values=NOT_UNIQUE, check=recomposes(lambda q, r: q @ r)),
    Row("aten::_linalg_eigh", lambda t: [call(MATRIX)], (F32,), no_values=NOT_UNIQUE,
        check=recomposes(lambda values, vectors: vectors * values @ vectors.mT)),
]
