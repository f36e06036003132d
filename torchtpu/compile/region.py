"""A compiled graph as one operator: one node of the recorded program, lowered by the same rules as everything else.

The operator ``torchtpu::region`` takes the name of the graph, which is a hash of what it computes, so that another process finds
the program again; its tensors; and the sizes that were left open while it was traced.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_map

from torchtpu import _C
from torchtpu.compile.results import output_values, views_of_results
from torchtpu.graph import own_inference
from torchtpu.graph.interpret import Interpreter, is_computable, is_random
from torchtpu.graph.rule_choice import NUM_DRAWS
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower
from torchtpu.runtime import step_hooks

_library = torch.library.Library("torchtpu", "DEF")
_library.define("region(str graph, Tensor[] tensors, int[] sizes) -> Tensor[]")


@dataclass
class Region:
    """A functional graph of aten operators."""

    module: torch.fx.GraphModule
    num_draws: int
    at_sizes: dict[tuple[int, ...], torch.fx.Graph] = field(default_factory=dict)

    def graph(self, sizes: Sequence[int]) -> torch.fx.Graph:
        """The graph with every open size filled in."""
        key = tuple(sizes)
        if key not in self.at_sizes:
            self.at_sizes[key] = _filled(self.module, key)
        return self.at_sizes[key]


_regions: dict[str, Region] = {}


def make(module: torch.fx.GraphModule) -> Callable[[list[Any]], list[Any]] | None:
    """The graph as a function of a list that it empties, or None if not everything in it can become one operator."""
    if not _is_region(module):
        return None
    results = views_of_results(module.graph)
    _keep_constants(module)
    name = register(module)
    given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    is_tensor = [isinstance(value, torch.Tensor) for value in given]
    symbols = [value for value in given if not isinstance(value, torch.Tensor)]
    buckets = _buckets(module) if symbols else None

    def call(arguments: list[Any]) -> list[Any]:
        step_hooks.tell_compiled_steps(_C)
        tensors = list(itertools.compress(arguments, is_tensor))
        sizes = [int(a) for a, tensor in zip(arguments, is_tensor, strict=True) if not tensor]
        arguments.clear()
        made = buckets.run(tensors, sizes) if buckets else None
        if made is None:
            made = torch.ops.torchtpu.region(name, tensors, sizes)
        del tensors
        known = _Sizes(symbols, sizes)
        return [result.of(made, known.of) for result in results]

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def register(module: torch.fx.GraphModule) -> str:
    """Make a graph known as a region; its name."""
    name = _name_of(module)
    _regions.setdefault(name, Region(module, sum(map(is_random, module.graph.nodes))))
    return name


def _buckets(module: torch.fx.GraphModule) -> Any:
    from torchtpu.compile.buckets import Buckets  # only graphs with open sizes need it

    return Buckets(module)


def _keep_constants(module: torch.fx.GraphModule) -> None:
    """Constants of the graph on the host, where they are read when it is hashed and when it is lowered."""
    with unset_fake_temporarily():
        for node in module.graph.find_nodes(op="get_attr"):
            constant = getattr(module, str(node.target))
            if isinstance(constant, torch.Tensor):
                setattr(module, str(node.target), constant.detach().cpu().contiguous())


@lower("torchtpu::region")
def torchtpu_region(ctx: RuleContext, graph: str, tensors: list[jax.Array], sizes: Sequence[int]) -> list[jax.Array]:
    """torchtpu::region(str graph, Tensor[] tensors, int[] sizes) -> Tensor[]"""
    return list(Interpreter(_regions[graph].graph(sizes), ctx).run(tensors))


def _infer(graph: str, tensors: list[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    outputs = output_values(_regions[graph].graph(sizes))
    return [torch.empty_strided(tuple(v.shape), tuple(v.stride()), dtype=v.dtype, device="cpu") for v in outputs]


own_inference.INFERENCE["torchtpu::region"] = _infer
NUM_DRAWS["torchtpu::region"] = lambda arguments: _regions[arguments[0]].num_draws


def _is_region(module: torch.fx.GraphModule) -> bool:
    """Whether all that comes in and goes out is on the device (or a number on the host), and every operator has a rule."""
    given = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    tensors = [v for v in given if isinstance(v, torch.Tensor)]
    inside = all(_is_here(v) or (v.device.type == "cpu" and v.dim() == 0) for v in tensors)
    numbers = all(isinstance(v, torch.Tensor | torch.SymInt | int) for v in given)
    returned = output_values(module.graph)
    kept = all(_is_here(v) for v in returned if isinstance(v, torch.Tensor))
    return inside and numbers and kept and any(map(_is_here, tensors)) and is_computable(module.graph)


def _is_here(value: torch.Tensor) -> bool:
    return value.device.type == "tpu"


def _name_of(module: torch.fx.GraphModule) -> str:
    """A hash of operators, arguments, shapes, strides, dtypes and constants."""
    digest = hashlib.sha256()
    names: dict[Any, str] = {}
    for node in module.graph.nodes:
        names[node] = f"%{len(names)}"
        arguments = tree_map(lambda leaf: names[leaf] if isinstance(leaf, torch.fx.Node) else leaf, (node.args, node.kwargs))
        digest.update(f"{node.op} {node.target if callable(node.target) else ''} {arguments} {_shown(node)}\n".encode())
        if node.op == "get_attr":
            with unset_fake_temporarily():
                digest.update(getattr(module, str(node.target)).reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def _shown(node: torch.fx.Node) -> str:
    def one(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{value.dtype}{tuple(value.shape)}{tuple(value.stride())}"
        return str(value)

    value = node.meta.get("val")
    return " ".join(map(one, value)) if isinstance(value, list | tuple) else one(value)


class _Sizes:
    """Values of symbolic sizes, from those of the sizes that are arguments."""

    def __init__(self, symbols: Sequence[Any], values: Sequence[int]) -> None:
        self._values = {
            symbol.node.expr: value for symbol, value in zip(symbols, values, strict=True) if isinstance(symbol, torch.SymInt)}

    def of(self, value: Any) -> Any:
        """A size as an int; everything else as it is."""
        return int(value.node.expr.xreplace(self._values)) if isinstance(value, torch.SymInt) else value


def _filled(module: torch.fx.GraphModule, sizes: tuple[int, ...]) -> torch.fx.Graph:
    """A copy of the graph without symbolic sizes: nodes that compute them are gone, and the fakes have plain shapes."""
    graph = module.graph
    open_sizes = [n for n in graph.find_nodes(op="placeholder") if not isinstance(n.meta["val"], torch.Tensor)]
    if not open_sizes:
        return graph
    known = _Sizes([node.meta["val"] for node in open_sizes], sizes)
    copy = torch.fx.Graph(owning_module=module)
    made: dict[torch.fx.Node, Any] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | int) and node.op != "output":
            made[node] = known.of(value)
            continue
        made[node] = copy.node_copy(node, made.__getitem__)
        made[node].meta["val"] = tree_map(lambda v: _plain(v, known), value)
    return copy


def _plain(value: Any, known: _Sizes) -> Any:
    if not isinstance(value, torch.Tensor):
        return known.of(value)
    from torchtpu.graph import inference

    with inference.fake_mode():
        shape, strides = (tuple(known.of(n) for n in given) for given in (value.shape, value.stride()))
        return torch.empty_strided(shape, strides, dtype=value.dtype, device="cpu")
