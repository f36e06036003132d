"""Where fake tensors and the CPU disagree about a result: its strides, or its dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from torchtpu.graph import promotion
from torchtpu.graph.arguments import HostScalar, leaves, map_leaves
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
    "aten::log_sigmoid_forward", "aten::_upsample_lanczos2d_aa_backward",
})
# An ``out=`` argument of these is resized row-major, whatever the strides of a fresh result.
_RESIZED_ROW_MAJOR = frozenset({"aten::cholesky", "aten::_fft_c2c", "aten::_fft_c2r", "aten::_fft_r2c"})
# The CPU asks for a memory format, and for nothing else, of the first argument, or of the one at another place.
_SUGGESTED_FORMAT = frozenset({
    "aten::native_batch_norm", "aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit.no_stats",
    "aten::_native_batch_norm_legit_no_training", "aten::_native_batch_norm_legit", "aten::native_batch_norm_backward",
    "aten::native_group_norm", "aten::native_group_norm_backward", "aten::max_unpool2d",
    "aten::reflection_pad2d_backward", "aten::replication_pad2d_backward", "aten::slow_conv_transpose2d",
})
_ASKED_FOR_FORMAT = {"aten::reflection_pad2d_backward": 1, "aten::replication_pad2d_backward": 1}
# 16-bit data with float32 parameters: the statistics are as wide as the parameters.
_SAVES_STATISTICS = frozenset({
    "aten::native_batch_norm", "aten::_native_batch_norm_legit_functional", "aten::_native_batch_norm_legit.no_stats",
    "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training",
})


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


def resized_strides(functional: torch._ops.OpOverload, fresh: torch.Tensor) -> tuple[int, ...]:
    """Strides that the CPU gives an ``out=`` argument that it resizes; ``fresh`` is what it would return without one."""
    if key_of(functional) in _RESIZED_ROW_MAJOR:
        return tuple(torch._prims_common.make_contiguous_strides_for(fresh.shape))
    return tuple(fresh.stride())


def _strides(op: torch._ops.OpOverload, key: str, fakes: list[Any], result: torch.Tensor) -> tuple[int, ...]:
    if key in _ROW_MAJOR:
        return tuple(torch._prims_common.make_contiguous_strides_for(result.shape))
    tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    if key in _SUGGESTED_FORMAT and result.dim() == tensors[0].dim():
        memory_format = torch._prims_common.suggest_memory_format(tensors[_ASKED_FOR_FORMAT.get(key, 0)])
        return result.contiguous(memory_format=memory_format).stride()
    if key in _OWN_STRIDES or not (torch.Tag.pointwise in op.tags or key in _ELEMENTWISE):
        return result.stride()
    if all(tensor.is_contiguous() for tensor in tensors):
        return result.stride()
    like = [tensor.expand(result.shape) if tensor.dim() else tensor for tensor in tensors]
    return tuple(torch._prims_common.compute_elementwise_output_strides(*like))
