"""Where PyTorch's inference knows only what CUDA does, and the device does more."""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.graph.own_inference import grouped_mm


def register() -> None:
    """Tell fake tensors of the device; those of other devices are left as they were."""
    from torch._subclasses.fake_impls import register_op_impl

    register_op_impl(torch.ops.aten._grouped_mm.default)(_grouped_mm)


def _grouped_mm(fake_mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    if args[0].device.type != "tpu":
        return NotImplemented
    with fake_mode:
        return grouped_mm(*args, **kwargs)
