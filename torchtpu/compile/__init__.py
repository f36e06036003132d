"""The ``torch.compile`` backend named ``tpu``.

Dynamo and AOTAutograd make functional graphs of aten operators; each becomes one operator of the recorded program (region.py),
so that forward, backward and optimizer are still one XLA program a step. What of a graph cannot be is run operator by operator,
recorded as eager code is, and a ``CompileWarning`` says why (telling.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchtpu.compile.shapes import ShapePolicy, listed, multiples_of, power_of_two, set_shape_policy, shape_policy

__all__ = ["ShapePolicy", "listed", "multiples_of", "power_of_two", "set_shape_policy", "shape_policy", "tpu_backend"]


def tpu_backend(graph_module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    """Entry point ``torch_dynamo_backends``.

    ``mode`` and ``options`` are accepted, and change nothing: XLA has no such choice.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler

    from torchtpu.compile import telling
    from torchtpu.compile.graphs import compile_backward, compile_graph, decompositions, prepare
    from torchtpu.compile.kept_graphs import KeptGraph, keeping

    prepare()
    telling.tell_break(graph_module)
    forward, backward = (SerializableAOTDispatchCompiler(KeptGraph, make) for make in (compile_graph, compile_backward))
    compiler = aot_autograd(
        fw_compiler=forward, bw_compiler=backward, inference_compiler=forward, decompositions=decompositions())
    with keeping(graph_module, example_inputs):
        return compiler(graph_module, example_inputs)
