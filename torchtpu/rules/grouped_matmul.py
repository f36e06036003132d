"""Products of groups of rows with a matrix each, as layers of experts make them: one ragged product, which a TPU does in one pass.

Legend: G groups, M rows, K summed, N columns. ``offs`` [G] holds the end of each group along the dimension that is divided, M
(2-d by 3-d), N (3-d by 2-d) or K (2-d by 2-d); what is beyond the last end is zero.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from torchtpu.rules._wide import widen
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

_BATCHED = (((2,), (1,)), ((0,), (0,)))
_SUMMED_IN_GROUPS = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), lhs_ragged_dimensions=[1], rhs_group_dimensions=[])


@lower("aten::_grouped_mm")
def aten__grouped_mm(
    ctx: RuleContext, self: Array, mat2: Array, offs: Array | None = None, bias: Array | None = None, out_dtype: Any = None
) -> Array:
    """aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor

    Differs: takes float32 and float16, where CUDA takes bfloat16 alone.
    """
    def product(left: Array, right: Array) -> Array:
        # Products of 16-bit floats are exact in float32; asking for more than that is refused by the TPU's kernel.
        precision = ctx.matmul_precision if left.dtype.itemsize > 2 else lax.Precision.DEFAULT
        options = {"precision": precision, "preferred_element_type": ctx.accum(self.dtype)}
        if offs is None:
            return lax.dot_general(left, right, _BATCHED, **options)
        group_sizes = jnp.diff(offs.astype(jnp.int32), prepend=jnp.zeros(1, jnp.int32))
        if left.ndim == right.ndim:
            return lax.ragged_dot_general(left, right, group_sizes, _SUMMED_IN_GROUPS, **options)
        if left.ndim == 2:
            return lax.ragged_dot(left, right, group_sizes, **options)
        return lax.ragged_dot(right.T, left.transpose(0, 2, 1), group_sizes, **options).T

    # XLA:CPU has no such product of 16-bit floats.
    out = lax.platform_dependent(self, mat2, tpu=product, default=lambda left, right: product(widen(left), widen(right)))
    return out if bias is None else out + bias
