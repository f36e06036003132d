"""The ``_foreach_*`` operators: the rule of the matching operator, applied to each element of the list.

The tables say which operator that is; its rule is looked up when the list operator is lowered. Each element gets a
context of its own, because PyTorch promotes types element by element while the context of a list operator spans it all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from torchtpu.errors import RuleError
from torchtpu.rules._numbers import canonical_dims, cast
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import find, lower, lower_table

Array = jax.Array
Arrays = Sequence[Array]


def _category(x: Any) -> int:
    """0 for bool, 1 integer, 2 floating, 3 complex: a number only widens a tensor of a lower category."""
    dtype = x.dtype if hasattr(x, "dtype") else np.result_type(type(x))
    kinds = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    return next(i for i, kind in enumerate(kinds) if jnp.issubdtype(dtype, kind))


def _promoted(tensors: Arrays, numbers: Sequence[Any], out: np.dtype) -> np.dtype:
    """PyTorch's promotion over one element's tensors and numbers.

    0-d tensors and numbers count only where they are of a higher category than the tensors with dimensions; then the
    result is the output's dtype if that is of this category, else the default one.
    """
    sized = [x.dtype for x in tensors if x.ndim] or [x.dtype for x in tensors]
    common = np.dtype(jnp.promote_types(sized[0], sized[0]))
    for dtype in sized[1:]:
        common = np.dtype(jnp.promote_types(common, dtype))
    highest = max((_category(x) for x in (*tensors, *numbers)), default=0)
    if highest <= _category(np.empty(0, common)):
        return common
    if _category(np.empty(0, out)) == highest:
        return np.dtype(out)
    return np.dtype((np.bool_, np.int64, np.float32, np.complex64)[highest])


def _apply(
    ctx: RuleContext, key: str, index: int, args: Sequence[Any], tensors: Sequence[int] = (0,), **kwargs: Any
) -> Array:
    """The rule of ``key`` on element ``index`` of a list operator.

    Args:
        tensors: positions in ``args`` of those that the schema calls tensors; the others are numbers.
    """
    rule = find(key)
    if rule is None:
        raise RuleError(op=ctx.op, what=f"needs a rule for {key}, which is missing")
    out = ctx.outputs[index]
    common = _promoted([args[i] for i in tensors], [x for i, x in enumerate(args) if i not in tensors], out.dtype)
    element = dataclasses.replace(ctx, op=key, outputs=(out,), common_dtype=common)
    return rule.function(element, *args, **kwargs)


UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)

# Overloads: List zips a second list, ScalarList zips numbers, Scalar and Tensor pass one operand to every element.
BINARY = {
    "add": ("aten::add.Tensor", ("List", "Scalar", "ScalarList", "Tensor")),
    "sub": ("aten::sub.Tensor", ("List", "Scalar", "ScalarList")),
    "mul": ("aten::mul.Tensor", ("List", "Scalar", "ScalarList", "Tensor")),
    "div": ("aten::div.Tensor", ("List", "Scalar", "ScalarList", "Tensor")),
    "maximum": ("aten::maximum", ("List", "Scalar", "ScalarList")),
    "minimum": ("aten::minimum", ("List", "Scalar", "ScalarList")),
    # Clamping from below is the maximum, NaN included.
    "clamp_min": ("aten::maximum", ("List", "Scalar", "ScalarList")),
    "clamp_max": ("aten::minimum", ("List", "Scalar", "ScalarList")),
}
POINTWISE = {"addcmul": "aten::addcmul", "addcdiv": "aten::addcdiv"}
ZIPPED = frozenset({"List", "ScalarList"})


def _make_unary(key: str) -> Callable[..., list[Array]]:
    def rule(ctx: RuleContext, self: Arrays) -> list[Array]:
        return [_apply(ctx, key, i, (x,)) for i, x in enumerate(self)]

    return rule


def _make_binary(spec: tuple[str, str]) -> Callable[..., list[Array]]:
    key, overload = spec
    tensors = (0, 1) if overload in ("List", "Tensor") else (0,)

    def rule(ctx: RuleContext, self: Arrays, other: Any, **kwargs: Any) -> list[Array]:
        others = other if overload in ZIPPED else [other] * len(self)
        return [_apply(ctx, key, i, (x, others[i]), tensors, **kwargs) for i, x in enumerate(self)]

    return rule


def _make_pointwise(spec: tuple[str, str]) -> Callable[..., list[Array]]:
    key, overload = spec

    def rule(ctx: RuleContext, self: Arrays, tensor1: Arrays, tensor2: Arrays, value: Any = 1) -> list[Array]:
        # `Tensor` holds the numbers in a tensor of one dimension.
        values = [value] * len(self) if overload == "Scalar" else value
        return [_apply(ctx, key, i, (x, tensor1[i], tensor2[i]), (0, 1, 2), value=values[i])
                for i, x in enumerate(self)]

    return rule


lower_table({f"aten::_foreach_{name}": f"aten::{name}" for name in UNARY}, _make_unary)
lower_table({f"aten::_foreach_{name}.{overload}": (key, overload)
             for name, (key, overloads) in BINARY.items() for overload in overloads}, _make_binary)
lower_table({f"aten::_foreach_{name}.{overload}": (key, overload)
             for name, key in POINTWISE.items() for overload in ("Scalar", "ScalarList", "Tensor")}, _make_pointwise)


def _make_lerp(overload: str) -> Callable[..., list[Array]]:
    key, tensors = ("aten::lerp.Tensor", (0, 1, 2)) if overload == "List" else ("aten::lerp.Scalar", (0, 1))

    def rule(ctx: RuleContext, self: Arrays, tensors1: Arrays, weight: Any) -> list[Array]:
        weights = weight if overload in ZIPPED else [weight] * len(self)
        return [_apply(ctx, key, i, (x, tensors1[i], weights[i]), tensors) for i, x in enumerate(self)]

    return rule


lower_table({f"aten::_foreach_lerp.{overload}": overload for overload in ("List", "Scalar", "ScalarList")}, _make_lerp)


def _make_pow(overload: str) -> Callable[..., list[Array]]:
    key, tensors = ("aten::pow.Tensor_Tensor", (0, 1)) if overload == "List" else ("aten::pow.Tensor_Scalar", (0,))

    def rule(ctx: RuleContext, self: Arrays, exponent: Any) -> list[Array]:
        exponents = exponent if overload in ZIPPED else [exponent] * len(self)
        return [_apply(ctx, key, i, (x, exponents[i]), tensors) for i, x in enumerate(self)]

    return rule


lower_table({f"aten::_foreach_pow.{overload}": overload for overload in ("List", "Scalar", "ScalarList")}, _make_pow)


@lower("aten::_foreach_pow.ScalarAndTensor")
def aten__foreach_pow_ScalarAndTensor(ctx: RuleContext, self: Any, exponent: Arrays) -> list[Array]:
    """aten::_foreach_pow.ScalarAndTensor(Scalar self, Tensor[] exponent) -> Tensor[]"""
    return [_apply(ctx, "aten::pow.Scalar", i, (self, x), (1,)) for i, x in enumerate(exponent)]


@lower("aten::_foreach_mm")
def aten__foreach_mm(ctx: RuleContext, self: Arrays, mat2: Arrays) -> list[Array]:
    """aten::_foreach_mm(Tensor[] self, Tensor[] mat2) -> Tensor[]"""
    return [_apply(ctx, "aten::mm", i, (x, mat2[i]), (0, 1)) for i, x in enumerate(self)]


@lower("aten::_foreach_max")
def aten__foreach_max(ctx: RuleContext, self: Arrays) -> list[Array]:
    """aten::_foreach_max(Tensor[] self) -> Tensor[]"""
    return [_apply(ctx, "aten::max", i, (x,)) for i, x in enumerate(self)]


@lower("aten::_foreach_norm.Scalar")
def aten__foreach_norm_Scalar(
    ctx: RuleContext, self: Arrays, ord: Any = 2, dtype: np.dtype | None = None
) -> list[Array]:
    """aten::_foreach_norm.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> Tensor[]"""
    return [_apply(ctx, "aten::linalg_vector_norm", i, (x,), ord=ord, dtype=dtype)
            for i, x in enumerate(self)]


@lower("aten::_foreach_powsum.Scalar")
def aten__foreach_powsum_Scalar(
    ctx: RuleContext, self: Arrays, ord: Any = 2, dtype: np.dtype | None = None
) -> list[Array]:
    """aten::_foreach_powsum.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> Tensor[]"""
    sums = []
    for x in self:
        magnitude = jnp.abs(cast(x, ctx.accum(x.dtype if dtype is None else dtype)))
        sums.append(jnp.sum(magnitude**ord, canonical_dims(None, x.ndim)))
    return sums


@lower("aten::_foreach_copy")
def aten__foreach_copy(ctx: RuleContext, self: Arrays, src: Arrays, non_blocking: bool = False) -> list[Array]:
    """aten::_foreach_copy(Tensor[] self, Tensor[] src, bool non_blocking=False) -> Tensor[] self_out"""
    return [jnp.broadcast_to(cast(y, x.dtype), x.shape) for x, y in zip(self, src, strict=True)]


@lower("aten::_foreach_clone")
def aten__foreach_clone(ctx: RuleContext, self: Arrays, *, memory_format: None = None) -> list[Array]:
    """aten::_foreach_clone(Tensor[] self, *, MemoryFormat? memory_format=None) -> Tensor[]"""
    return list(self)


@lower("aten::_foreach_zero")
def aten__foreach_zero(ctx: RuleContext, self: Arrays) -> list[Array]:
    """aten::_foreach_zero(Tensor[] self) -> Tensor[] self_out"""
    return [jnp.zeros_like(x) for x in self]
