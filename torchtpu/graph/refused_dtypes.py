"""Dtypes that the CPU refuses and fakes let pass: differences of bools, results that do not fit back, complex numbers in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchtpu.errors import UnsupportedDtypeError
from torchtpu.graph import promotion
from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument, leaves
from torchtpu.graph.overloads import key_of

Named = dict[str, Any]  # parsed arguments by name, without those that are only written
Check = Callable[[torch._ops.OpOverload, Named], None]
_FACTORS = frozenset({"alpha", "value"})  # they scale another operand and have no say in the dtype of the result


def refuse(
    op: torch._ops.OpOverload, tensors: Sequence[TensorArgument | HostScalar], wrong: Callable[[torch.dtype], bool], expected: str,
    why: str, fix: str,
) -> None:
    """Refuse tensors of a wrong dtype.

    Raises:
        UnsupportedDtypeError: there is one.
    """
    for tensor in tensors:
        if wrong(tensor.dtype):
            raise UnsupportedDtypeError(op=key_of(op), expected=expected, got=str(tensor.dtype), why=why, fix=fix)


def tensors(named: Named) -> list[TensorArgument | HostScalar]:
    """All tensors of a call that are read, 0-dim ones of the CPU included."""
    return [leaf for leaf in leaves(named.values()) if isinstance(leaf, TensorArgument | HostScalar)]


def _is_bool(leaf: Any) -> bool:
    return leaf.dtype == torch.bool if isinstance(leaf, TensorArgument | HostScalar) else isinstance(leaf, bool)


def _difference(op: torch._ops.OpOverload, named: Named) -> None:
    if any(_is_bool(leaf) for name, value in named.items() if name != "alpha" for leaf in leaves([value])):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` "
            "or `logical_not()` operator instead.")
    _sum(op, named)


def _sum(op: torch._ops.OpOverload, named: Named) -> None:
    alpha = named.get("alpha", 1)
    alpha = alpha.value if isinstance(alpha, RunTimeNumber) else alpha
    for common in _common_dtypes(named):
        if isinstance(alpha, bool) and common != torch.bool:
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
        if isinstance(alpha, float) and not (common.is_floating_point or common.is_complex):
            raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
        if isinstance(alpha, complex) and not common.is_complex:
            raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    _fits_back(op, named)


def _fits_back(op: torch._ops.OpOverload, named: Named) -> None:
    """What an in-place operator computes has to fit into the tensor."""
    if not op._schema.name.endswith("_"):
        return
    for target, common in zip(leaves([named["self"]]), _common_dtypes(named), strict=True):
        if not torch.can_cast(common, target.dtype):
            raise RuntimeError(f"result type {common} can't be cast to the desired output type {target.dtype}")


def _common_dtypes(named: Named) -> list[torch.dtype]:
    """What the operands promote to: one dtype, or one for each tensor of a list."""
    operands = [value for name, value in named.items() if name not in _FACTORS]
    if not isinstance(named["self"], list):
        return [promotion.common_dtype(_as_data(operands))]
    return [
        promotion.common_dtype(_as_data([value[place] if isinstance(value, list) else value for value in operands]))
        for place in range(len(named["self"]))]


def _as_data(operands: list[Any]) -> list[Any]:
    return [RunTimeNumber(value) if isinstance(value, bool | int | float | complex) else value for value in operands]


def real_number(op: torch._ops.OpOverload, named: Named) -> None:
    """A complex number does not go into a real tensor, unless it is known to be real.

    Raises:
        RuntimeError: it should.
    """
    value, target = named["value"], named["self"].dtype
    if isinstance(value, HostScalar):
        is_complex = value.wrapped and value.dtype.is_complex
    elif isinstance(value, RunTimeNumber):
        is_complex = isinstance(value.value, complex)
    else:
        is_complex = isinstance(value, complex) and value.imag != 0
    if is_complex and not target.is_complex and target != torch.bool:
        raise RuntimeError(f"value cannot be converted to type {target} without overflow")


def ordered(op: torch._ops.OpOverload, named: Named) -> None:
    """Complex numbers have no order.

    Raises:
        NotImplementedError: one is needed. Not a TypeError, which `>` would hide.
    """
    for tensor in tensors(named):
        if tensor.dtype.is_complex:
            raise NotImplementedError(f"{key_of(op)} is not implemented for {tensor.dtype}: complex numbers have no order.")


def _relu(op: torch._ops.OpOverload, named: Named) -> None:
    refuse(op, tensors(named), lambda dtype: dtype == torch.bool, "numbers", "Bools are not below zero.", "Use .int().")
    ordered(op, named)


def _spread(op: torch._ops.OpOverload, named: Named) -> None:
    refuse(op, [named["self"]], lambda dtype: not (dtype.is_floating_point or dtype.is_complex), "floats",
           "The mean of whole numbers is none.", "Use .float().")


def _power(op: torch._ops.OpOverload, named: Named) -> None:
    base, exponent = named["self"], named["exponent"]
    whole = not any(dtype.is_floating_point or dtype.is_complex for dtype in _common_dtypes(named))
    if whole and isinstance(exponent, int) and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if not (_is_bool(base) and _is_bool(exponent)):
        _fits_back(op, named)
    elif not isinstance(exponent, bool):  # of a number there is nothing to compute: the result is the base, or all true
        raise NotImplementedError(f"{key_of(op)} is not implemented for torch.bool: powers are of numbers.")


def _power_sum(op: torch._ops.OpOverload, named: Named) -> None:
    if named["dtype"] is None:
        refuse(op, [named["self"]], lambda dtype: not (dtype.is_floating_point or dtype.is_complex), "floats",
               "Its powers are floats.", "Use .float().")


CHECKS: dict[str, Check] = {
    "linalg__powsum": _power_sum,
    **dict.fromkeys(("add", "_foreach_add"), _sum),
    **dict.fromkeys(("sub", "rsub", "_foreach_sub"), _difference),
    **dict.fromkeys(("mul", "addcmul", "_foreach_mul", "_foreach_addcmul"), _fits_back),
    "relu": _relu,
    "pow": _power,
    "fill": real_number,
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _spread),
    **dict.fromkeys((
        "gt", "ge", "lt", "le", "maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "sign", "floor",
        "ceil", "trunc", "round", "frac", "remainder", "fmod", "argmax", "argmin", "amax", "amin", "aminmax", "sort", "topk",
        "kthvalue", "median", "nanmedian", "cummax", "cummin", "unique_dim", "_unique2",
    ), ordered),
}
