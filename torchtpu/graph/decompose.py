"""PyTorch's own decompositions as rules: traced once a signature, then every operator in the trace is lowered by its rule."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchtpu.graph import inference
from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument, map_leaves
from torchtpu.graph.computable import is_computable
from torchtpu.graph.interpret import Interpreter
from torchtpu.graph.overloads import key_of
from torchtpu.rules import find
from torchtpu.rules.context import RuleContext


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def exists(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch can express ``op`` in simpler operators."""
    return op in _table() or op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def build(op: torch._ops.OpOverload, call: Any) -> Callable[..., Any] | None:
    """A rule for ``op`` at the shapes of ``call``, or None if its decomposition leads to an operator that nothing computes."""
    arguments, keywords = call.rule_arguments
    graph = _trace(op, arguments, keywords)
    if graph is None or not is_computable(graph):
        return None

    def rule(ctx: RuleContext, *given: Any, **named: Any) -> Any:
        values = [*given, *(named[name] for name in keywords)]
        tensors: list[Any] = []
        map_leaves(values, lambda leaf: tensors.append(leaf) if hasattr(leaf, "aval") else None)
        return Interpreter(graph, ctx).run(tensors)

    return rule


def _trace(op: torch._ops.OpOverload, arguments: list[Any], keywords: tuple[str, ...]) -> torch.fx.Graph | None:
    """One call in simpler operators, without mutation; inputs are its tensors and run-time numbers, in order."""
    from torch.fx.experimental.proxy_tensor import make_fx

    samples: list[tuple[tuple[int, ...], torch.dtype]] = []
    template = map_leaves(arguments, lambda leaf: _sample(leaf, samples))
    split = len(template) - len(keywords)

    def decomposed(*tensors: torch.Tensor) -> Any:
        stream = iter(tensors)
        filled = map_leaves(template, lambda leaf: next(stream) if leaf is _HOLE else leaf)
        given = dict(zip(keywords, filled[split:], strict=True))
        return op(*filled[:split], **{name: value for name, value in given.items() if value is not None})

    table = {key: value for key, value in _table().items() if key == op or find(key_of(key)) is None}
    try:
        with inference.fake_mode(), torch.no_grad():
            fakes = [torch.empty(shape, dtype=dtype, device="cpu") for shape, dtype in samples]
            functional = torch.func.functionalize(decomposed, remove="mutations_and_views")
            return make_fx(functional, decomposition_table=table)(*fakes).graph
    except (NotImplementedError, *inference.unsupported()):
        return None


class _Hole:
    """Stands for an input of the trace among the arguments."""


_HOLE = _Hole()


def _sample(leaf: Any, samples: list[tuple[tuple[int, ...], torch.dtype]]) -> Any:
    if isinstance(leaf, TensorArgument):
        samples.append((leaf.sizes, leaf.dtype))
        return _HOLE
    if isinstance(leaf, HostScalar):
        samples.append(((), leaf.dtype))
        return _HOLE
    return leaf.value if isinstance(leaf, RunTimeNumber) else leaf
