"""The exponential of matrices: a Taylor polynomial of degree 18 in five products, of a scaled matrix that is then squared."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import cast, narrow_loops
from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext, opmath
from torchtpu.rules.registry import lower

# Coefficients of I, A, A^2, A^3 and A^6 in five polynomials B1 to B5: the sum of the first 19 terms of the exponential series
# is B2 + (B3 + C) C with C = B1 B5 + B4. Source: Bader, Blanes, Casas, Computing the Matrix Exponential with an Optimized
# Taylor Polynomial Approximation (2019); ATen's ``compute_T18``.
_DEGREE_18 = (
    (0.0, -1.00365581030144618291e-01, -8.02924648241156932449e-03, -8.92138498045729985177e-04, 0.0),
    (0.0, 3.97849749499645077844e-01, 1.36783778460411720168, 4.98289622525382669416e-01, -6.37898194594723280150e-04),
    (-1.09676396052962061844e+01, 1.68015813878906206114, 5.71779846478865511061e-02, -6.98210122488052056106e-03,
     3.34975017086070470649e-05),
    (-9.04316832390810593223e-02, -6.76404519071381882256e-02, 6.75961301770459654925e-02, 2.95552570429315521194e-02,
     -1.39180257516060693404e-05),
    (0.0, 0.0, -9.23364619367118555360e-02, -1.69364939002081722752e-02, -1.40086798182036094347e-05),
)
# Norms up to which that sum is as exact as the dtype, by its size.
_LARGEST_NORM = {4: 3.010066362817634, 8: 1.090863719290036}


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _taylor(a: Array) -> Array:
    square = _product(a, a)
    cube = _product(square, a)
    one = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    powers = jnp.stack([one, a, square, cube, _product(cube, cube)])
    b = [jnp.sum(np.reshape(row, (-1,) + (1,) * a.ndim).astype(a.dtype) * powers, 0) for row in _DEGREE_18]
    inner = _product(b[0], b[4]) + b[3]
    return b[1] + _product(b[2] + inner, inner)


@lower("aten::linalg_matrix_exp")
def aten_linalg_matrix_exp(ctx: RuleContext, self: Array) -> Array:
    """aten::linalg_matrix_exp(Tensor self) -> Tensor

    Source: ``linalg_matrix_exp`` (aten/src/ATen/native/LinearAlgebra.cpp), which uses lower degrees for smaller norms.
    """
    if 0 in self.shape:
        return jnp.zeros(ctx.out_shape, ctx.out_dtype)
    a = widen(self)
    norm = jnp.max(jnp.sum(jnp.abs(a), -2), -1)
    largest = _LARGEST_NORM[norm.dtype.itemsize]
    halvings = jnp.where(norm > largest, jnp.ceil(jnp.log2(norm / largest)), 0)
    halvings = jnp.where(jnp.isfinite(norm), halvings, 0).astype(np.int32)[..., None, None]
    power = _taylor(a * jnp.exp2(-halvings.astype(norm.dtype)))

    def squared(step: Array, power: Array) -> Array:
        return jnp.where(step < halvings, _product(power, power), power)

    with narrow_loops(a.dtype):
        return lax.fori_loop(np.int32(0), jnp.max(halvings), squared, power)


@lower("aten::_compute_linear_combination")
def aten__compute_linear_combination(ctx: RuleContext, input: Array, coefficients: Array) -> Array:
    """aten::_compute_linear_combination(Tensor input, Tensor coefficients) -> Tensor

    Not a matrix product: there are few terms, and they want all their digits.

    Shapes: input [terms, ...], coefficients [sums, terms] -> [sums, ...]
    """
    dtype = opmath(ctx.out_dtype)
    weights = cast(coefficients, dtype).reshape(coefficients.shape + (1,) * (input.ndim - 1))
    return jnp.sum(weights * cast(input, dtype), 1, dtype=dtype)
