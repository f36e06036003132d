"""Tensors that are not plain memory: each of their dispatch keys gets a kernel that says so and names what to use instead.

PyTorch would list some eighty registrations of other devices instead, or, for nested tensors, end the process.
What makes such tensors of dense ones comes to graph/refused_layouts.py.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.errors import LayoutError

# Dispatch key -> what its tensors are called, and what to do.
_KEYS = {
    "SparsePrivateUse1": ("sparse", f"{LayoutError.DENSE} Of embeddings, use sparse=False."),
    "SparseCsrPrivateUse1": ("compressed sparse", LayoutError.DENSE),
    "QuantizedPrivateUse1": ("quantized", LayoutError.FLOATS),
    "NestedTensorPrivateUse1": ("nested, strided", LayoutError.JAGGED),
}
# What makes nested tensors of dense ones, without coming by the recorder. Those would end the process, not raise.
_MAKERS = ("_nested_tensor_from_tensor_list",)
# What makes such tensors of nothing, or of the CPU's: it may come before anything else has used the device.
_FIRST = {
    "SparsePrivateUse1": ("empty.memory_format", "_sparse_coo_tensor_with_dims"),
    "SparseCsrPrivateUse1": ("empty.memory_format",),
    "QuantizedPrivateUse1": ("empty.memory_format", "_empty_affine_quantized", "empty_quantized"),
    "NestedTensorPrivateUse1": ("_to_copy",),
}
_libraries: list[Any] = []  # registrations end with the object that made them


def refuse_first() -> None:
    """Register the refusals of what can be the first use of the device, with the device itself: each costs 30 microseconds."""
    aten = torch.library.Library("aten", "IMPL")
    for key, names in _FIRST.items():
        for name in names:
            aten.impl(name, _refusal(f"aten::{name}", *_KEYS[key]), key)
    _libraries.append(aten)


def refuse_others() -> None:
    """Register a refusal for every layout but the dense one, at the first use of the device: each key costs 4 ms."""
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    for key, (kind, fix) in _KEYS.items():
        every.fallback(_refusal_of_all(kind, fix), key)
    for name in _MAKERS:
        aten.impl(name, _refusal(f"aten::{name}", *_KEYS["NestedTensorPrivateUse1"]), "PrivateUse1")
    _libraries.extend((every, aten))


def _refusal(op: str, kind: str, fix: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LayoutError(op=op, kind=kind, fix=fix)

    return refuse


def _refusal_of_all(kind: str, fix: str) -> Any:
    def refuse(op: Any, *_: Any, **__: Any) -> Any:
        raise LayoutError(op=str(op.name()), kind=kind, fix=fix)

    return refuse
