"""Attention between sequences of different lengths (``layout=torch.jagged``).

PyTorch computes it one sequence after the other, each of a shape of its own, or by kernels of CUDA. Here the sequences are
padded to the longest one, and a mask hides the padding.
"""

from __future__ import annotations

import functools
from typing import Any

from torchtpu.errors import JaggedMaskError


def attend_by_padding(torch: Any) -> None:
    """Patch the attention of jagged tensors, which `import torch` has loaded already."""
    from torch.nested._internal import nested_tensor

    load = nested_tensor.NestedTensor.__torch_function__.__func__

    @functools.wraps(load)
    def __torch_function__(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention and args and args[0].device.type == "tpu":
            return _attention(*args, **(kwargs or {}))
        return load(cls, func, types, args, kwargs)

    nested_tensor.NestedTensor.__torch_function__ = classmethod(__torch_function__)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:
    """``scaled_dot_product_attention`` of jagged tensors of shape (batch, heads, length, features).

    Raises:
        JaggedMaskError: there is a mask.
    """
    import torch
    from torch.nested._internal.nested_tensor import nested_from_padded
    from torch.nn import functional as F

    if attn_mask is not None:
        raise JaggedMaskError(got=f"{attn_mask.dtype}{list(attn_mask.shape)}")
    q_BHLE, k_BHSE, v_BHSE = (t.transpose(1, 2).to_padded_tensor(0.0).transpose(1, 2) for t in (query, key, value))
    lengths_B = key.offsets().diff()
    places_S = torch.arange(k_BHSE.shape[2], device=query.device)
    mask = (places_S < lengths_B[:, None])[:, None, None]
    if is_causal:
        mask = mask & (places_S <= torch.arange(q_BHLE.shape[2], device=query.device)[:, None])
    out_BHLE = F.scaled_dot_product_attention(
        q_BHLE, k_BHSE, v_BHSE, attn_mask=mask, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa)
    return nested_from_padded(
        out_BHLE.transpose(1, 2), query.offsets(), ragged_idx=1, min_seqlen=query._maybe_min_seqlen,
        max_seqlen=query._maybe_max_seqlen, sum_S=query.values().shape[query._ragged_idx - 1]).transpose(1, 2)
