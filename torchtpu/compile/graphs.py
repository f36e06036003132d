"""From a graph of AOTAutograd to something that runs on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import TracingContext
from torch._prims.rng_prims import graphsafe_run_with_rng_state as _run_with_generator
from torch._subclasses.fake_tensor import FakeTensor

from torchtpu.compile.kept_graphs import KeptGraph
from torchtpu.graph.interpret import RECOMPUTED
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
    """Tell PyTorch that the device's generator can be set back, for checkpointing."""
    from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type

    register_graphsafe_rng_device_type("tpu")


def compile_graph(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> KeptGraph:
    """A forward pass, or one without gradients."""
    _infer_draws(module)
    return KeptGraph(module)


def compile_backward(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> KeptGraph:
    """A backward pass, which may repeat work of the forward pass where the user asked for checkpointing."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.meta.get("partitioner_tag") != "is_backward":
            node.meta[RECOMPUTED] = "recompute" in node.meta or "rng_state" in node.kwargs
    # Of what is kept for it nothing is donated, because the recorder finds out what dies; so it may run twice.
    TracingContext.get().fw_metadata.bw_donated_idxs = []  # type: ignore[union-attr]
    return compile_graph(module, example_inputs)


def _infer_draws(module: torch.fx.GraphModule) -> None:
    """Say what operators that draw from a generator of their own return: the partitioner, which makes them, does not."""
    for node in module.graph.find_nodes(op="call_function", target=_run_with_generator):
        fakes = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), FakeTensor)]
        op, *arguments = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
        named = {name: value for name, value in node.kwargs.items() if name != "rng_state"}
        with fakes[0].fake_mode:
            node.meta["val"] = op(*arguments, **torch.fx.map_arg(named, lambda n: n.meta["val"]))
