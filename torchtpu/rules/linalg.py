"""Factorisations of matrices, and solving with them. Batches are leading dimensions.

``info`` is what LAPACK reports; here only whether the factorisation failed, seen by the NaNs or zeros that it left.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import narrow_loops
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower


def _adjoint(matrix: Array) -> Array:
    return jnp.conj(jnp.swapaxes(matrix, -1, -2))


def _failed(bad: Array) -> Array:
    return bad.astype(np.int32)


def _empty(ctx: RuleContext) -> tuple[Array, ...]:
    return tuple(jnp.zeros(o.shape, o.dtype) for o in ctx.outputs)


def _is_empty(ctx: RuleContext, *arrays: Array) -> bool:
    return any(0 in a.shape for a in arrays)


@lower("aten::linalg_cholesky_ex")
def aten_linalg_cholesky_ex(
    ctx: RuleContext, self: Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[Array, ...]:
    """aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)"""
    if _is_empty(ctx, self):
        return _empty(ctx)
    source = _adjoint(self) if upper else self
    low = jnp.tril(lax.linalg.cholesky(source, symmetrize_input=False))
    return _adjoint(low) if upper else low, _failed(jnp.any(jnp.isnan(low), (-2, -1)))


@lower("aten::cholesky")
def aten_cholesky(ctx: RuleContext, self: Array, upper: bool = False) -> Array:
    """aten::cholesky(Tensor self, bool upper=False) -> Tensor

    Differs: a matrix that is not positive definite gives NaN, where PyTorch raises.
    """
    return aten_linalg_cholesky_ex(ctx, self, upper=upper)[0]


@lower("aten::_cholesky_solve_helper")
def aten__cholesky_solve_helper(ctx: RuleContext, self: Array, A: Array, upper: bool) -> Array:
    """aten::_cholesky_solve_helper(Tensor self, Tensor A, bool upper) -> Tensor"""
    if _is_empty(ctx, self, A):
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    half = _triangular(A, self, upper=upper, left=True, adjoint=upper)
    return _triangular(A, half, upper=upper, left=True, adjoint=not upper)


@lower("aten::cholesky_inverse")
def aten_cholesky_inverse(ctx: RuleContext, self: Array, upper: bool = False) -> Array:
    """aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor"""
    if _is_empty(ctx, self):
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    eye = jnp.broadcast_to(jnp.eye(self.shape[-1], dtype=self.dtype), self.shape)
    return aten__cholesky_solve_helper(ctx, eye, self, upper)


def _triangular(a: Array, b: Array, upper: bool, left: bool, adjoint: bool = False, unit: bool = False) -> Array:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, batch + a.shape[-2:])
    b = jnp.broadcast_to(b, batch + b.shape[-2:])
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, transpose_a=adjoint, conjugate_a=adjoint, unit_diagonal=unit)


@lower("aten::linalg_solve_triangular")
def aten_linalg_solve_triangular(
    ctx: RuleContext, self: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor"""
    if _is_empty(ctx, self, B):
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    return _triangular(self, B, upper, left, unit=unitriangular)


@lower("aten::triangular_solve")
def aten_triangular_solve(
    ctx: RuleContext, self: Array, A: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    """aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)"""  # noqa: E501
    kept = jnp.broadcast_to(A, ctx.outputs[1].shape)
    if _is_empty(ctx, self, A):
        return jnp.zeros(ctx.out_shape, ctx.out_dtype), kept
    a, upper = (jnp.swapaxes(A, -1, -2), not upper) if transpose else (A, upper)
    return _triangular(a, self, upper, True, unit=unitriangular), kept


@lower("aten::linalg_qr")
def aten_linalg_qr(ctx: RuleContext, A: Array, mode: str = "reduced") -> tuple[Array, Array]:
    """aten::linalg_qr(Tensor A, str mode="reduced") -> (Tensor Q, Tensor R)"""
    if _is_empty(ctx, A):
        q, r = ctx.outputs
        return jnp.broadcast_to(jnp.eye(*q.shape[-2:], dtype=q.dtype), q.shape) if len(q.shape) > 1 else _empty(ctx)[0], \
            jnp.zeros(r.shape, r.dtype)
    if mode == "r":
        return jnp.zeros(ctx.out_shape, ctx.out_dtype), jnp.linalg.qr(A, mode="r")
    q, r = jnp.linalg.qr(A, mode=mode)
    return q, r


@lower("aten::geqrf")
def aten_geqrf(ctx: RuleContext, self: Array) -> tuple[Array, ...]:
    """aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)"""
    if _is_empty(ctx, self):
        return _empty(ctx)
    transposed, tau = jnp.linalg.qr(self, mode="raw")
    return jnp.swapaxes(transposed, -1, -2), tau


@lower("aten::linalg_householder_product")
def aten_linalg_householder_product(ctx: RuleContext, input: Array, tau: Array) -> Array:
    """aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor"""
    if _is_empty(ctx, input):
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    if tau.shape[-1] == 0:
        return jnp.broadcast_to(jnp.eye(*input.shape[-2:], dtype=input.dtype), input.shape)
    with narrow_loops(input.dtype):
        return lax.linalg.householder_product(input, tau)


@lower("aten::ormqr")
def aten_ormqr(
    ctx: RuleContext, self: Array, input2: Array, input3: Array, left: bool = True, transpose: bool = False
) -> Array:
    """aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor"""
    if _is_empty(ctx, input3) or input2.shape[-1] == 0:
        return input3
    rows, columns = self.shape[-2:]
    square = jnp.pad(self, [(0, 0)] * (self.ndim - 1) + [(0, rows - columns)]) if rows > columns else self[..., :rows]
    with narrow_loops(self.dtype):
        q = lax.linalg.householder_product(square, input2)
    q = _adjoint(q) if transpose else q
    return jnp.matmul(*(q, input3) if left else (input3, q), precision=lax.Precision.HIGHEST)


@lower("aten::_linalg_eigh")
def aten__linalg_eigh(ctx: RuleContext, A: Array, UPLO: str = "L", compute_v: bool = True) -> tuple[Array, ...]:
    """aten::_linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)"""
    if _is_empty(ctx, A):
        return _empty(ctx)
    triangle = jnp.tril(A) if UPLO.upper() == "L" else _adjoint(jnp.triu(A))
    strict = jnp.tril(triangle, -1)
    diagonal = jnp.real(jnp.diagonal(A, axis1=-2, axis2=-1)).astype(A.dtype)
    symmetric = strict + _adjoint(strict) + diagonal[..., None] * jnp.eye(A.shape[-1], dtype=A.dtype)
    with narrow_loops(A.dtype):
        vectors, values = lax.linalg.eigh(symmetric, symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros(ctx.outputs[1].shape, ctx.outputs[1].dtype)


def _lu(a: Array) -> tuple[Array, Array, Array]:
    """Factors, pivots counted from one as LAPACK's, and the permutation."""
    with narrow_loops(a.dtype):
        factors, pivots, permutation = lax.linalg.lu(a)
    return factors, pivots + np.int32(1), permutation


def _singular(factors: Array) -> Array:
    return _failed(jnp.any(jnp.diagonal(factors, axis1=-2, axis2=-1) == 0, -1))


@lower("aten::linalg_lu_factor_ex")
def aten_linalg_lu_factor_ex(
    ctx: RuleContext, A: Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Array, ...]:
    """aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)"""  # noqa: E501
    if _is_empty(ctx, A):
        return _empty(ctx)
    if not pivot:
        raise NotImplementedError("a factorisation without pivots")
    factors, pivots, _ = _lu(A)
    return factors, pivots, _singular(factors)


@lower("aten::linalg_lu")
def aten_linalg_lu(ctx: RuleContext, A: Array, *, pivot: bool = True) -> tuple[Array, ...]:
    """aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    if not pivot:
        raise NotImplementedError("a factorisation without pivots")
    rows, columns = A.shape[-2:]
    if 0 in A.shape:
        eye = jnp.broadcast_to(jnp.eye(rows, dtype=A.dtype), ctx.out_shape)
        return eye, *_empty(ctx)[1:]
    factors, _, permutation = _lu(A)
    p = (permutation[..., None, :] == lax.iota(np.int32, rows)[:, None]).astype(A.dtype)
    small = min(rows, columns)
    return p, jnp.tril(factors[..., :small], -1) + jnp.eye(rows, small, dtype=A.dtype), jnp.triu(factors[..., :small, :])


def _solve_factored(factors: Array, permutation: Array, b: Array, left: bool, adjoint: bool) -> Array:
    if not left:  # x a = b is a^H x^H = b^H
        return _adjoint(_solve_factored(factors, permutation, _adjoint(b), True, not adjoint))
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    factors = jnp.broadcast_to(factors, batch + factors.shape[-2:])
    b = jnp.broadcast_to(b, batch + b.shape[-2:])
    permutation = jnp.broadcast_to(permutation, batch + permutation.shape[-1:])
    if not adjoint:
        b = jnp.take_along_axis(b, permutation[..., None], -2)
        half = _triangular(factors, b, upper=False, left=True, unit=True)
        return _triangular(factors, half, upper=True, left=True)
    half = _triangular(factors, b, upper=True, left=True, adjoint=True)
    half = _triangular(factors, half, upper=False, left=True, adjoint=True, unit=True)
    return jnp.take_along_axis(half, jnp.argsort(permutation, -1)[..., None], -2)


@lower("aten::_linalg_solve_ex")
def aten__linalg_solve_ex(
    ctx: RuleContext, A: Array, B: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, ...]:
    """aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)"""  # noqa: E501
    if _is_empty(ctx, A, B):
        return _empty(ctx)
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    factors, pivots, permutation = _lu(A)
    result = _solve_factored(factors, permutation, B[..., None] if vector else B, left or vector, adjoint=False)
    return result[..., 0] if vector else result, factors, pivots, _singular(factors)


@lower("aten::linalg_inv_ex")
def aten_linalg_inv_ex(ctx: RuleContext, A: Array, *, check_errors: bool = False) -> tuple[Array, ...]:
    """aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"""
    if _is_empty(ctx, A):
        return _empty(ctx)
    eye = jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), A.shape)
    factors, _, permutation = _lu(A)
    return _solve_factored(factors, permutation, eye, True, adjoint=False), _singular(factors)


def _permutation_of(pivots: Array, length: int) -> Array:
    """The rows in their new order."""
    return lax.linalg.lu_pivots_to_permutation(pivots.astype(np.int32) - np.int32(1), length)


@lower("aten::linalg_lu_solve")
def aten_linalg_lu_solve(
    ctx: RuleContext, LU: Array, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    """aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor"""
    if _is_empty(ctx, LU, B):
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    return _solve_factored(LU, _permutation_of(pivots, LU.shape[-2]), B, left, adjoint)


@lower("aten::lu_unpack")
def aten_lu_unpack(
    ctx: RuleContext, LU_data: Array, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, ...]:
    """aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)"""  # noqa: E501
    p, low, _ = ctx.outputs
    rows, columns = LU_data.shape[-2:]
    small = min(rows, columns)
    parts: list[Any] = [jnp.zeros(o.shape, o.dtype) for o in ctx.outputs]
    if unpack_pivots and 0 not in p.shape:
        order = _permutation_of(LU_pivots, rows)
        parts[0] = (order[..., None, :] == lax.iota(np.int32, rows)[:, None]).astype(p.dtype)
    if unpack_data:
        parts[1] = jnp.tril(LU_data[..., :, :small], -1) + jnp.eye(rows, small, dtype=low.dtype)
        parts[2] = jnp.triu(LU_data[..., :small, :])
    return tuple(parts)


def _sign_of(pivots: Array) -> Array:
    """1 or -1: the parity of the exchanges."""
    exchanged = pivots != lax.iota(np.int32, pivots.shape[-1]) + np.int32(1)
    return np.int32(1) - np.int32(2) * (jnp.sum(exchanged, -1, dtype=np.int32) % np.int32(2))


def _factors_transpose(ctx: RuleContext, a: Array) -> bool:
    """Whether the factors returned beside a determinant are those of the transpose: the formula of its gradient takes them so."""
    return not jnp.iscomplexobj(a) and (ctx.row_major[0] if ctx.row_major else True)


@lower("aten::_linalg_det")
def aten__linalg_det(ctx: RuleContext, A: Array) -> tuple[Array, ...]:
    """aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)"""
    if _is_empty(ctx, A):
        return jnp.ones(ctx.out_shape, ctx.out_dtype), *_empty(ctx)[1:]
    factors, pivots, _ = _lu(jnp.swapaxes(A, -1, -2) if _factors_transpose(ctx, A) else A)
    diagonal = jnp.diagonal(factors, axis1=-2, axis2=-1)
    return jnp.prod(diagonal, -1) * _sign_of(pivots).astype(A.dtype), factors, pivots


@lower("aten::_linalg_slogdet")
def aten__linalg_slogdet(ctx: RuleContext, A: Array) -> tuple[Array, ...]:
    """aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"""
    if _is_empty(ctx, A):
        return jnp.ones(ctx.out_shape, ctx.out_dtype), *_empty(ctx)[1:]
    factors, pivots, _ = _lu(jnp.swapaxes(A, -1, -2) if _factors_transpose(ctx, A) else A)
    diagonal = jnp.diagonal(factors, axis1=-2, axis2=-1)
    size = jnp.abs(diagonal)
    unit = jnp.where(size == 0, jnp.zeros_like(diagonal), diagonal / jnp.where(size == 0, jnp.ones_like(size), size))
    return jnp.prod(unit, -1) * _sign_of(pivots).astype(A.dtype), jnp.sum(jnp.log(size), -1), factors, pivots
