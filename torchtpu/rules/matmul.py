"""Matrix products, and products fused with a sum. 16-bit floats accumulate in float32."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.rules._numbers import Scalar, cast, is_bool, is_zero, scaled
from torchtpu.rules._wide import wide_on_cpu
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

_MATMUL = (((1,), (0,)), ((), ()))
_BATCHED = (((2,), (1,)), ((0,), (0,)))


def _dot(ctx: RuleContext, left: Array, right: Array, dimensions: Any) -> Array:
    """A product in its accumulation dtype."""
    def by_unit(left: Array, right: Array) -> Array:
        return lax.dot_general(
            left, right, dimensions, precision=ctx.matmul_precision, preferred_element_type=ctx.accum(left.dtype))

    if left.dtype == np.int64:
        return lax.platform_dependent(left, right, tpu=functools.partial(_summed, dimensions=dimensions), default=by_unit)
    return wide_on_cpu(by_unit, left, right)


def _summed(left: Array, right: Array, dimensions: Any) -> Array:
    """Products element by element, and their sums, which the compiler fuses: a TPU's matrix unit has no 64-bit integers."""
    (left_summed, right_summed), (left_batch, right_batch) = dimensions
    left_free = [d for d in range(left.ndim) if d not in (*left_summed, *left_batch)]
    right_free = [d for d in range(right.ndim) if d not in (*right_summed, *right_batch)]
    left = jnp.transpose(left, (*left_batch, *left_free, *left_summed))
    right = jnp.transpose(right, (*right_batch, *right_free, *right_summed))
    places = [len(left_batch) + len(left_free) + i for i in range(len(right_free))]
    left = jnp.expand_dims(left, places)
    right = jnp.expand_dims(right, [len(left_batch) + i for i in range(len(left_free))])
    return jnp.sum(left * right, axis=tuple(range(left.ndim - len(left_summed), left.ndim)))


def plus_scaled(ctx: RuleContext, self: Array, product: Array, beta: Scalar, alpha: Scalar) -> Array:
    """``beta * self + alpha * product``, in the dtype of ``product``; at beta 0 NaNs of ``self`` do not count."""
    out = scaled(product, alpha)
    return out if is_zero(beta) else scaled(cast(self, product.dtype), beta) + out


@lower("aten::mm")
def aten_mm(ctx: RuleContext, self: Array, mat2: Array) -> Array:
    """aten::mm(Tensor self, Tensor mat2) -> Tensor"""
    return _dot(ctx, self, mat2, _MATMUL)


@lower("aten::mm.dtype")
def aten_mm_dtype(ctx: RuleContext, self: Array, mat2: Array, out_dtype: Any) -> Array:
    """aten::mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor"""
    return _dot(ctx, self, mat2, _MATMUL)


@lower("aten::bmm")
def aten_bmm(ctx: RuleContext, self: Array, mat2: Array) -> Array:
    """aten::bmm(Tensor self, Tensor mat2) -> Tensor"""
    return _dot(ctx, self, mat2, _BATCHED)


@lower("aten::bmm.dtype")
def aten_bmm_dtype(ctx: RuleContext, self: Array, mat2: Array, out_dtype: Any) -> Array:
    """aten::bmm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor"""
    return _dot(ctx, self, mat2, _BATCHED)


@lower("aten::addmm")
def aten_addmm(
    ctx: RuleContext, self: Array, mat1: Array, mat2: Array, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Array:
    """aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    out = plus_scaled(ctx, self, _dot(ctx, mat1, mat2, _MATMUL), beta, alpha)
    return jnp.broadcast_to(out, (mat1.shape[0], mat2.shape[1]))


@lower("aten::addmm.dtype")
def aten_addmm_dtype(
    ctx: RuleContext, self: Array, mat1: Array, mat2: Array, out_dtype: Any, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Array:
    """aten::addmm.dtype(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return aten_addmm(ctx, self, mat1, mat2, beta=beta, alpha=alpha)


@lower("aten::_addmm_activation")
def aten__addmm_activation(
    ctx: RuleContext, self: Array, mat1: Array, mat2: Array, *, beta: Scalar = 1, alpha: Scalar = 1,
    use_gelu: bool = False,
) -> Array:
    """aten::_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, bool use_gelu=False) -> Tensor"""  # noqa: E501
    out = aten_addmm(ctx, self, mat1, mat2, beta=beta, alpha=alpha)
    return jax.nn.gelu(out, approximate=False) if use_gelu else jnp.maximum(out, 0)


@lower("aten::baddbmm")
def aten_baddbmm(
    ctx: RuleContext, self: Array, batch1: Array, batch2: Array, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Array:
    """aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return plus_scaled(ctx, self, _dot(ctx, batch1, batch2, _BATCHED), beta, alpha)


@lower("aten::baddbmm.dtype")
def aten_baddbmm_dtype(
    ctx: RuleContext, self: Array, batch1: Array, batch2: Array, out_dtype: Any, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Array:
    """aten::baddbmm.dtype(Tensor self, Tensor batch1, Tensor batch2, ScalarType out_dtype, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""  # noqa: E501
    return plus_scaled(ctx, self, _dot(ctx, batch1, batch2, _BATCHED), beta, alpha)


@lower("aten::addbmm")
def aten_addbmm(
    ctx: RuleContext, self: Array, batch1: Array, batch2: Array, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Array:
    """aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    product = _dot(ctx, batch1, batch2, (((0, 2), (0, 1)), ((), ())))
    return plus_scaled(ctx, self, product, beta, alpha)


@lower("aten::dot")
def aten_dot(ctx: RuleContext, self: Array, tensor: Array) -> Array:
    """aten::dot(Tensor self, Tensor tensor) -> Tensor"""
    return _dot(ctx, self, tensor, (((0,), (0,)), ((), ())))


@lower("aten::vdot")
def aten_vdot(ctx: RuleContext, self: Array, other: Array) -> Array:
    """aten::vdot(Tensor self, Tensor other) -> Tensor"""
    left = lax.conj(self) if jnp.iscomplexobj(self) else self
    return _dot(ctx, left, other, (((0,), (0,)), ((), ())))


@lower("aten::mv")
def aten_mv(ctx: RuleContext, self: Array, vec: Array) -> Array:
    """aten::mv(Tensor self, Tensor vec) -> Tensor"""
    return _dot(ctx, self, vec, _MATMUL)


@lower("aten::addmv")
def aten_addmv(ctx: RuleContext, self: Array, mat: Array, vec: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    out = plus_scaled(ctx, self, _dot(ctx, mat, vec, _MATMUL), beta, alpha)
    return jnp.broadcast_to(out, (mat.shape[0],))


@lower("aten::addr")
def aten_addr(ctx: RuleContext, self: Array, vec1: Array, vec2: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    dtype = ctx.accum(ctx.out_dtype)
    product = cast(vec1, dtype)[:, None] * cast(vec2, dtype)[None, :]
    if is_bool(dtype):  # products are `and`, the sum is `or`
        product = product & cast(alpha, dtype)
        return product if is_zero(beta) else (self & cast(beta, dtype)) | product
    return plus_scaled(ctx, self, product, beta, alpha)


@lower("aten::_int_mm")
def aten__int_mm(ctx: RuleContext, self: Array, mat2: Array) -> Array:
    """aten::_int_mm(Tensor self, Tensor mat2) -> Tensor"""
    return lax.dot_general(self, mat2, _MATMUL, preferred_element_type=np.dtype(np.int32))
