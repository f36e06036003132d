"""Where fake tensors and the CPU disagree: strides and dtypes of results, and arguments that only the CPU refuses."""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.errors import UnsupportedDtypeError
from torchtpu.graph import promotion
from torchtpu.graph.arguments import TensorArgument, leaves
from torchtpu.graph.overloads import key_of

# Tagged elementwise, but with an order of operands of their own: fakes know their strides.
_OWN_STRIDES = frozenset({
    "aten::masked_fill.Scalar", "aten::masked_fill.Tensor", "aten::conj_physical", "aten::positive", "aten::mvlgamma",
    "aten::threshold_backward",
})
# Elementwise without the tag.
_ELEMENTWISE = frozenset({
    "aten::complex", "aten::polar", "aten::elu_backward", "aten::hardsigmoid_backward", "aten::hardswish_backward",
    "aten::hardtanh_backward", "aten::softplus_backward", "aten::floor_divide",
})
# The CPU returns these row-major whatever the memory of the arguments.
_ROW_MAJOR = frozenset({
    "aten::pow.Scalar", "aten::float_power.Scalar", "aten::rrelu", "aten::mse_loss_backward", "aten::huber_loss_backward",
    "aten::smooth_l1_loss_backward", "aten::_log_softmax_backward_data", "aten::isin.Tensor_Tensor", "aten::isin.Tensor_Scalar",
    "aten::isin.Scalar_Tensor", "aten::_standard_gamma", "aten::poisson", "aten::normal.Tensor_Tensor",
    "aten::normal.float_Tensor", "aten::normal.Tensor_float",
})
# A number among these arguments becomes a tensor on its way, and fakes forget that it was a number: 0-dim results widen.
_FORGET_NUMBERS = frozenset({
    "aten::remainder.Scalar", "aten::fmod.Scalar", "aten::bitwise_and.Scalar", "aten::bitwise_or.Scalar",
    "aten::bitwise_xor.Scalar", "aten::bitwise_left_shift.Tensor_Scalar", "aten::bitwise_right_shift.Tensor_Scalar",
})
_INTEGRAL = frozenset({
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift",
})


def check(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """Refuse what the CPU refuses and fakes let pass.

    Raises:
        UnsupportedDtypeError: floats where integers are needed, numbers where a mask is.
        RuntimeError: the extreme of nothing.
        IndexError: a dimension that does not exist.
    """
    name = op._schema.name.partition("::")[2].rstrip("_")
    tensors = [leaf for leaf in leaves(arguments) if isinstance(leaf, TensorArgument)]
    if name in _INTEGRAL:
        for tensor in tensors:
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                raise UnsupportedDtypeError(
                    op=key_of(op), expected="integers or bools", got=str(tensor.dtype), why="Bits of floats have no such meaning.",
                    fix="Use .to(torch.int32), or .view(torch.int32) for the bits themselves.")
    elif name == "masked_fill" and tensors[1].dtype != torch.bool:
        raise UnsupportedDtypeError(
            op=key_of(op), expected="a mask of bools", got=str(tensors[1].dtype), why="A mask selects.", fix="Use mask.bool().")
    elif name in ("max", "min") and not op._schema.overload_name and 0 in tensors[0].sizes:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
            "argument.")
    elif name in ("_softmax", "_log_softmax"):
        ndim = max(len(tensors[0].sizes), 1)
        if not -ndim <= arguments[1] < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {arguments[1]})")


def corrected(op: torch._ops.OpOverload, arguments: list[Any], fakes: list[Any], result: Any) -> Any:
    """The result with the CPU's strides and dtype; called under the fake mode."""
    if not isinstance(result, torch.Tensor) or op._schema.is_mutable or op.is_view:
        return result
    key = key_of(op)
    dtype = promotion.common_dtype(arguments) if key in _FORGET_NUMBERS and result.dim() == 0 else result.dtype
    strides = _strides(op, key, fakes, result)
    if dtype == result.dtype and strides == result.stride():
        return result
    return torch.empty_strided(result.shape, strides, dtype=dtype, device="cpu")


def resized_strides(functional: torch._ops.OpOverload, fakes: list[Any], out: torch.Tensor) -> tuple[int, ...]:
    """Strides that the CPU gives an ``out=`` tensor that it resizes; ``fakes`` are the other arguments."""
    return _strides(functional, key_of(functional), fakes, out)


def _strides(op: torch._ops.OpOverload, key: str, fakes: list[Any], result: torch.Tensor) -> tuple[int, ...]:
    if key in _ROW_MAJOR:
        return torch._prims_common.make_contiguous_strides_for(result.shape)
    if key in _OWN_STRIDES or not (torch.Tag.pointwise in op.tags or key in _ELEMENTWISE):
        return result.stride()
    tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    if all(tensor.is_contiguous() for tensor in tensors):
        return result.stride()
    like = [tensor.expand(result.shape) if tensor.dim() else tensor for tensor in tensors]
    return tuple(torch._prims_common.compute_elementwise_output_strides(*like))
