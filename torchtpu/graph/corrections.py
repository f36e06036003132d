"""Where fake tensors and the CPU disagree: strides and dtypes of results, and arguments that only the CPU refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from torchtpu.errors import UnsupportedDtypeError
from torchtpu.graph import promotion
from torchtpu.graph.arguments import HostScalar, TensorArgument, leaves, map_leaves
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
    "aten::normal.float_Tensor", "aten::normal.Tensor_float", "aten::native_layer_norm_backward", "aten::nll_loss2d_forward",
    "aten::log_sigmoid_forward",
})
# The CPU asks for a memory format, and for nothing else, of the first argument.
_SUGGESTED_FORMAT = frozenset({
    "aten::native_batch_norm", "aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit.no_stats",
    "aten::_native_batch_norm_legit_no_training", "aten::_native_batch_norm_legit", "aten::native_batch_norm_backward",
    "aten::native_group_norm", "aten::native_group_norm_backward",
})
# 16-bit data with float32 parameters: the statistics are as wide as the parameters.
_SAVES_STATISTICS = frozenset({
    "aten::native_batch_norm", "aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit.no_stats",
    "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training",
})
_INTEGRAL = frozenset({
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift",
})


_SAME_DTYPE = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "_addmm_activation", "convolution",
})
_INDEX_NAMES = ("index", "indices")


def check(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """Refuse what the CPU refuses and fakes let pass.

    Raises:
        UnsupportedDtypeError: floats where integers are needed, numbers where a mask is, products of several dtypes.
        RuntimeError: the extreme of nothing.
        IndexError: a dimension that does not exist.
    """
    name = op._schema.name.partition("::")[2].rstrip("_")
    tensors = [leaf for leaf in leaves(arguments) if isinstance(leaf, TensorArgument)]
    if name in _INTEGRAL:
        _refuse(op, tensors, lambda dtype: dtype.is_floating_point or dtype.is_complex, "integers or bools",
                "Bits of floats have no such meaning.", "Use .to(torch.int32), or .view(torch.int32) for the bits themselves.")
    elif name == "masked_fill":
        _refuse(op, tensors[1:2], lambda dtype: dtype != torch.bool, "a mask of bools", "A mask selects.", "Use mask.bool().")
    elif name in _SAME_DTYPE and not op._schema.overload_name == "dtype":
        _refuse(op, tensors[1:], lambda dtype: dtype != tensors[0].dtype, f"tensors of the same dtype, {tensors[0].dtype}",
                "The product of two dtypes is not defined.", "Convert one of them with .to().")
    elif name in ("max", "min") and not op._schema.overload_name and 0 in tensors[0].sizes:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
            "argument.")
    elif name in ("_softmax", "_log_softmax"):
        ndim = max(len(tensors[0].sizes), 1)
        if not -ndim <= arguments[1] < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {arguments[1]})")
    for argument, value in zip(op._schema.arguments, arguments, strict=True):
        if argument.name in _INDEX_NAMES and isinstance(value, TensorArgument):
            _refuse(op, [value], lambda dtype: dtype.is_floating_point or dtype.is_complex, "integers as indices",
                    "Places are whole numbers.", "Use .long().")


def _refuse(op: torch._ops.OpOverload, tensors: list[TensorArgument], wrong: Callable[[torch.dtype], bool], expected: str, why: str,
            fix: str) -> None:
    for tensor in tensors:
        if wrong(tensor.dtype):
            raise UnsupportedDtypeError(op=key_of(op), expected=expected, got=str(tensor.dtype), why=why, fix=fix)


def corrected(op: torch._ops.OpOverload, arguments: list[Any], fakes: list[Any], result: Any) -> Any:
    """The result with the CPU's strides and dtype; called under the fake mode."""
    if op.is_view:
        return result
    if isinstance(result, tuple):
        return tuple(_corrected(op, arguments, fakes, part, place) for place, part in enumerate(result))
    return _corrected(op, arguments, fakes, result, 0)


def _corrected(op: torch._ops.OpOverload, arguments: list[Any], fakes: list[Any], result: Any, place: int) -> Any:
    if not isinstance(result, torch.Tensor) or any(result is fake for fake in fakes):
        return result
    dtype, strides = _dtype(arguments, result.dtype), _strides(op, key_of(op), fakes, result)
    if place and key_of(op) in _SAVES_STATISTICS and any(_is_float32(fake) for fake in fakes[1:]):
        dtype = torch.float32
    if dtype == result.dtype and strides == result.stride():
        return result
    return torch.empty_strided(result.shape, strides, dtype=dtype, device="cpu")


def _dtype(arguments: list[Any], seen: torch.dtype) -> torch.dtype:
    """Fakes do not know which 0-dim tensors were Python numbers, and let them widen other 0-dim tensors."""
    if not any(isinstance(leaf, HostScalar) and leaf.wrapped for leaf in leaves(arguments)):
        return seen
    forgotten = map_leaves(arguments, lambda leaf: replace(leaf, wrapped=False) if isinstance(leaf, HostScalar) else leaf)
    return promotion.common_dtype(arguments) if seen == promotion.common_dtype(forgotten) else seen


def _is_float32(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.dtype == torch.float32


def resized_strides(functional: torch._ops.OpOverload, fakes: list[Any], out: torch.Tensor) -> tuple[int, ...]:
    """Strides that the CPU gives an ``out=`` tensor that it resizes; ``fakes`` are the other arguments."""
    return _strides(functional, key_of(functional), fakes, out)


def _strides(op: torch._ops.OpOverload, key: str, fakes: list[Any], result: torch.Tensor) -> tuple[int, ...]:
    if key in _ROW_MAJOR:
        return tuple(torch._prims_common.make_contiguous_strides_for(result.shape))
    tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    if key in _SUGGESTED_FORMAT and result.dim() == tensors[0].dim():
        memory_format = torch._prims_common.suggest_memory_format(tensors[0])
        return result.contiguous(memory_format=memory_format).stride()
    if key in _OWN_STRIDES or not (torch.Tag.pointwise in op.tags or key in _ELEMENTWISE):
        return result.stride()
    if all(tensor.is_contiguous() for tensor in tensors):
        return result.stride()
    like = [tensor.expand(result.shape) if tensor.dim() else tensor for tensor in tensors]
    return tuple(torch._prims_common.compute_elementwise_output_strides(*like))
