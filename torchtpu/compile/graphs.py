"""From a graph of AOTAutograd to something that runs on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchtpu.compile import fakes, region
from torchtpu.graph.overloads import key_of
from torchtpu.rules import find


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own, of operators without a rule."""
    from torch._decomp import core_aten_decompositions

    return {op: function for op, function in core_aten_decompositions().items()
            if isinstance(op, torch._ops.OpOverload) and find(key_of(op)) is None}


@functools.cache
def prepare() -> None:
    """Tell PyTorch what it does not know of the device: that its generator can be set back, for checkpointing, and more dtypes."""
    from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type

    register_graphsafe_rng_device_type("tpu")
    fakes.register()


def compile_graph(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """One operator if all of it has rules, else its operators one by one."""
    from functorch.compile import make_boxed_func

    return region.make(module) or make_boxed_func(module.forward)
