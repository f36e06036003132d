"""``torch.compile`` without a backend, or with "inductor": graphs on the tpu device come to ours, others to Inductor as before."""

from __future__ import annotations

import functools
from typing import Any

import torch


def install() -> None:
    """Wrap the one object that PyTorch makes for both; it costs no import of Dynamo or Inductor."""
    wrapper = torch._TorchCompileInductorWrapper
    inductor = wrapper.__call__

    @functools.wraps(inductor)
    def call(self: Any, model_: Any, inputs_: Any, **options: Any) -> Any:
        if not _is_on_tpu(model_, inputs_):
            return inductor(self, model_, inputs_, **options)
        from torchtpu.compile import tpu_backend

        return tpu_backend(model_, inputs_)

    wrapper.__call__ = call  # type: ignore[method-assign]


def _is_on_tpu(module: torch.fx.GraphModule, inputs: Any) -> bool:
    """Whether a tensor that comes in, or is made inside, is on the device."""
    inside = (node.meta.get("example_value") for node in module.graph.nodes)
    return any(isinstance(v, torch.Tensor) and v.device.type == "tpu" for v in (*inputs, *inside))
