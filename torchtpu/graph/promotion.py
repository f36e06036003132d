"""PyTorch's type promotion over the arguments of a call, without tensors to ask.

Source: the categories of ``at::native::ResultTypeState`` (aten/src/ATen/native/TypeProperties.cpp): tensors with dimensions come
before 0-dim tensors, and these before Python numbers; a lower category matters only where it is of a higher kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument, leaves


def common_dtype(arguments: Iterable[Any]) -> torch.dtype:
    """The promoted dtype of all tensors and numbers among parsed arguments; float32 if there are none."""
    dims: list[torch.dtype] = []
    zero_dims: list[torch.dtype] = []
    numbers: list[torch.dtype] = []
    for leaf in leaves(arguments):
        if isinstance(leaf, TensorArgument):
            (dims if leaf.sizes else zero_dims).append(leaf.dtype)
        elif isinstance(leaf, HostScalar):
            (numbers if leaf.wrapped else zero_dims).append(_default_of(leaf.dtype) if leaf.wrapped else leaf.dtype)
        elif isinstance(leaf, RunTimeNumber):
            numbers.append(_dtype_of_number(leaf.value))
    result = _combine(_promote(dims), _combine(_promote(zero_dims), _promote(numbers)))
    return result or torch.get_default_dtype()


def _dtype_of_number(value: Any) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    if isinstance(value, complex):
        return torch.promote_types(torch.get_default_dtype(), torch.complex64)
    return torch.get_default_dtype()


def _default_of(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.promote_types(torch.get_default_dtype(), torch.complex64)
    return torch.get_default_dtype() if dtype.is_floating_point else dtype


def _promote(kinds: list[torch.dtype]) -> torch.dtype | None:
    result: torch.dtype | None = None
    for kind in kinds:
        result = kind if result is None else _promote_pair(result, kind)
    return result


def _promote_pair(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    # PyTorch promotes 8-bit floats with nothing, and inference refuses operators that would need it. Copies meet them here.
    for narrow, wide in ((one, other), (other, one)):
        if narrow.is_floating_point and narrow.itemsize == 1:
            return wide
    return torch.promote_types(one, other)


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return torch.promote_types(higher, torch.complex64) if lower.is_complex and higher != torch.float16 else (
            torch.complex32 if lower.is_complex else higher)
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher
