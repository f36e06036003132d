"""Numbers and dtypes inside rules: which scalars are known while tracing, and casts that agree with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.export import is_symbolic_dim

from torchtpu.rules.context import RuleContext, opmath

Scalar = Any  # a Python number (static) or a 0-d array (known only at run time)


def is_static(x: Any) -> bool:
    """Whether a number is known while tracing, so that a rule may branch on its value."""
    return not isinstance(x, jax.Array)


def is_one(x: Any) -> bool:
    """Whether a number is known to be one, so that multiplying with it can be left out."""
    return is_static(x) and x == 1


def is_zero(x: Any) -> bool:
    """Whether a number is known to be zero."""
    return is_static(x) and x == 0


def is_inexact(dtype: Any) -> bool:
    """Whether a dtype is floating or complex, 16-bit floats included."""
    return jnp.issubdtype(dtype, jnp.inexact)


def is_real_float(dtype: Any) -> bool:
    """Whether a dtype is floating and not complex."""
    return jnp.issubdtype(dtype, jnp.floating)


def is_complex(dtype: Any) -> bool:
    """Whether a dtype is complex."""
    return jnp.issubdtype(dtype, jnp.complexfloating)


def is_bool(dtype: Any) -> bool:
    """Whether a dtype is bool."""
    return np.dtype(dtype) == np.dtype(np.bool_)


def constant(value: Any, dtype: Any) -> Any:
    """A Python number as a 0-d constant; integers wrap and floats are cut, as in C++. An open size becomes an array."""
    if is_symbolic_dim(value):
        return jnp.asarray(value).astype(dtype)
    with np.errstate(all="ignore"):
        array = np.asarray(value)
        if np.iscomplexobj(array) and not is_complex(dtype):
            array = array.real
        return array.astype(dtype)


def cast(x: Any, dtype: Any) -> Any:
    """``x`` in ``dtype``: the real part of complex numbers, and integers that wrap, as PyTorch converts.

    Python numbers become typed 0-d constants, so that they never widen the other operand.
    """
    dtype = np.dtype(dtype)
    if is_static(x):
        return constant(x, dtype)
    if x.dtype == dtype:
        return x
    if is_bool(x.dtype) and is_inexact(dtype):
        # Not a conversion: XLA makes a selection of a product with a converted bool, and NaN * False is not 0.
        return jnp.where(x, np.ones((), dtype), np.zeros((), dtype))
    if is_complex(x.dtype) and not is_complex(dtype):
        if is_bool(dtype):
            return x != 0
        x = lax.real(x)
    if jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize < 4:
        # XLA saturates; C++ goes through a wider integer and wraps, so -1.0 is 255 as uint8.
        x = lax.convert_element_type(x, np.int32)
    return lax.convert_element_type(x, dtype)


def truth(x: Array) -> Array:
    """Whether each element counts as true: whether it is not zero, NaN included."""
    # A bool compared with a Python zero would be widened to 64 bits first.
    return x if x.dtype == np.bool_ else x != 0


def float_dtype(ctx: RuleContext) -> np.dtype:
    """The compute dtype of operators that turn integers into floats."""
    if is_inexact(ctx.common_dtype):
        return ctx.compute_dtype
    return opmath(ctx.out_dtype) if is_inexact(ctx.out_dtype) else np.dtype(np.float32)


def rounded(x: Any, dtype: Any) -> Any:
    """``x``, in its own dtype, rounded to what a narrower float ``dtype`` can hold.

    Not a pair of casts, which XLA may leave out: but a TPU, where float64 is a pair of float32, has nothing else for it.
    """
    if is_static(x) or x.dtype == dtype or not (is_real_float(x.dtype) and is_real_float(dtype)):
        return x
    narrow, wide = jnp.finfo(dtype), jnp.finfo(x.dtype)
    if narrow.bits >= wide.bits:
        return x

    def reduced(x: Array) -> Array:
        return lax.reduce_precision(x, narrow.nexp, narrow.nmant)

    def cast_and_back(x: Array) -> Array:
        return lax.optimization_barrier(x.astype(dtype)).astype(wide.dtype)

    return lax.platform_dependent(x, tpu=cast_and_back, default=reduced) if wide.bits == 64 else reduced(x)


def to_common(ctx: RuleContext, *xs: Any) -> list[Any]:
    """Operands in PyTorch's promoted dtype: for comparisons, logic and selection."""
    return [cast(rounded(x, ctx.common_dtype), ctx.common_dtype) for x in xs]


def to_compute(ctx: RuleContext, *xs: Any) -> list[Any]:
    """Operands in the dtype that ATen computes in."""
    return [cast(x, ctx.compute_dtype) for x in xs]


def to_wide(ctx: RuleContext, *xs: Any) -> list[Any]:
    """Operands rounded to the promoted dtype, then widened: for discontinuous functions, whose scalar ATen rounds."""
    return [
        cast(cast(x, ctx.common_dtype) if is_static(x) else rounded(x, ctx.common_dtype), ctx.compute_dtype) for x in xs
    ]


def to_float(ctx: RuleContext, *xs: Any) -> list[Any]:
    """Operands in the compute dtype, integers as floats."""
    dtype = float_dtype(ctx)
    return [cast(x, dtype) for x in xs]


def float_rule(function: Callable[[Any], Any]) -> Callable[[RuleContext, Array], Array]:
    """The rule of an operator that is ``function`` of one tensor in its compute dtype, integers as floats."""

    def rule(ctx: RuleContext, self: Array) -> Array:
        (x,) = to_float(ctx, self)
        return function(x)

    return rule


def scaled(x: Any, factor: Scalar) -> Any:
    """``factor * x`` in the dtype of ``x``; no multiplication where the factor is known to be one."""
    return x if is_one(factor) else jnp.multiply(cast(factor, x.dtype), x)


def full(shape: tuple[int, ...], value: Scalar, dtype: Any) -> Array:
    """An array filled with one number, which may be known only at run time."""
    return jnp.broadcast_to(jnp.asarray(cast(value, dtype)), shape)


def index_dtype(size: int) -> np.dtype:
    """The narrowest of int32 and int64 that can count to ``size``: 64-bit integers are emulated on a TPU."""
    try:
        return np.dtype(np.int32 if size < 2**31 else np.int64)
    except jax.errors.InconclusiveDimensionOperation:  # a size that an exported program leaves open, without a bound
        return np.dtype(np.int64)


def narrow_loops(dtype: Any) -> Any:
    """A context in which loops over data of 32 bits, or of two such parts, count in 32 bits."""
    return jax.enable_x64(np.dtype(dtype).itemsize > (8 if is_complex(dtype) else 4))


def canonical_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front; a 0-d tensor has dimension 0 (and -1)."""
    return dim % ndim if ndim else 0


def canonical_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front, an int counting as one; None and the empty list mean all."""
    if isinstance(dims, int):
        dims = (dims,)
    if dims is None or len(dims) == 0:
        return tuple(range(ndim))
    return tuple(canonical_dim(dim, ndim) for dim in dims) if ndim else ()


def at_least_1d(x: Array) -> Array:
    """A 0-d array as one of length 1: PyTorch lets most dimension arguments treat it so."""
    return x.reshape(1) if x.ndim == 0 else x
