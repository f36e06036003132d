"""Names of operators: ``"aten::add.Tensor"`` and the overload objects behind them."""

from __future__ import annotations

import functools

import torch


@functools.cache
def overload(key: str) -> torch._ops.OpOverload:
    """The overload object of a key; a default overload has no suffix.

    Raises:
        AttributeError: PyTorch has no such operator.
    """
    namespace, _, name = key.partition("::")
    packet_name, _, overload_name = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name)
    return getattr(packet, overload_name or "default")


def key_of(op: torch._ops.OpOverload) -> str:
    """The key of an overload object."""
    return op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
