"""What the CPU runs in place of operators that only devices like this one have: the same results, from its own operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> list[torch.Tensor]:
    _check_attention(query, key, dropout_p)
    output, _ = _aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale)
    return [output]


def _attention_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None,
    grad_input_mask: list[bool], out: torch.Tensor, logsumexp: torch.Tensor, cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int,
    dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *, scale: float | None = None,
) -> list[torch.Tensor]:
    """The CPU lays its log-sum-exp out in its own way, so it makes one of its own."""
    _check_attention(query, key, dropout_p)
    if grad_input_mask[3] or not all(grad_input_mask[:3]):
        raise NotImplementedError("the CPU's attention has gradients of query, key and value only")
    output, own_logsumexp = _aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale)
    return list(_aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, output, own_logsumexp, dropout_p, is_causal, attn_mask=attn_bias, scale=scale))


def _check_attention(query: torch.Tensor, key: torch.Tensor, dropout_p: float) -> None:
    if dropout_p or query.dim() != 4 or query.shape[1] != key.shape[1]:
        raise NotImplementedError("the CPU's attention takes four dims, equal numbers of heads, and no dropout")


# By overload: a function of the same arguments that returns the first of the results. The others are not compared.
CPU_FORMS: dict[torch._ops.OpOverload, Callable[..., list[torch.Tensor]]] = {
    _aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
    _aten._scaled_dot_product_fused_attention_overrideable_backward.default: _attention_backward,
}
