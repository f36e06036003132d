"""Operators that make a tensor of another layout of a dense one: sparse, quantized, nested. XLA has no such arrays."""

from __future__ import annotations

import torch

from torchtpu.errors import LayoutError
from torchtpu.graph.overloads import key_of
from torchtpu.graph.refused_dtypes import Check, Named


def _refusal(kind: str, fix: str) -> Check:
    def refuse(op: torch._ops.OpOverload, _: Named) -> None:
        raise LayoutError(op=key_of(op), kind=kind, fix=fix)

    return refuse


CHECKS: dict[str, Check] = {
    **dict.fromkeys(("_to_sparse", "sparse_mask"), _refusal("sparse", LayoutError.DENSE)),
    **dict.fromkeys(
        ("_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"), _refusal("compressed sparse", LayoutError.DENSE)),
    **dict.fromkeys(
        ("quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel"), _refusal("quantized", LayoutError.FLOATS)),
    **dict.fromkeys(
        ("_nested_tensor_from_mask", "_nested_from_padded", "_nested_view_from_buffer"),
        _refusal("nested, strided", LayoutError.JAGGED)),
    "to_mkldnn": _refusal("oneDNN", "Use the tensor as it is."),
}
