"""A compiled graph as one operator: one node of the recorded program, lowered by the same rules as everything else.

The operator ``torchtpu::region`` takes the name of the graph, which is a hash of what it computes, so that the program is found again
by another process; its tensors; and the sizes that were left open while it was traced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import torch

from torchtpu.graph import own_inference
from torchtpu.graph.interpret import Interpreter, is_computable, is_random
from torchtpu.graph.rule_choice import NUM_DRAWS
from torchtpu.rules.context import RuleContext
from torchtpu.rules.registry import lower

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
    name = _name_of(module)
    _regions.setdefault(name, Region(module, sum(map(is_random, module.graph.nodes))))
    results = [_result(value) for value in _output_values(module.graph)]
    kinds = [isinstance(node.meta["val"], torch.Tensor) for node in module.graph.find_nodes(op="placeholder")]
    symbols = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder") if not isinstance(node.meta["val"], torch.Tensor)]

    def call(arguments: list[Any]) -> list[Any]:
        tensors = [a for a, is_tensor in zip(arguments, kinds, strict=True) if is_tensor]
        sizes = [int(a) for a, is_tensor in zip(arguments, kinds, strict=True) if not is_tensor]
        arguments.clear()
        stream = iter(torch.ops.torchtpu.region(name, tensors, sizes))
        known = _Sizes(symbols, sizes)
        return [next(stream) if kind == "tensor" else known.of(value) for kind, value in results]

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


@lower("torchtpu::region")
def torchtpu_region(ctx: RuleContext, graph: str, tensors: list[jax.Array], sizes: Sequence[int]) -> list[jax.Array]:
    """torchtpu::region(str graph, Tensor[] tensors, int[] sizes) -> Tensor[]"""
    outputs = Interpreter(_regions[graph].graph(sizes), ctx).run(tensors)
    return [output for output in outputs if isinstance(output, jax.Array)]


def _infer(graph: str, tensors: list[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    outputs = _output_values(_regions[graph].graph(sizes))
    return [
        torch.empty_strided(tuple(v.shape), tuple(v.stride()), dtype=v.dtype, device="cpu")
        for v in outputs if isinstance(v, torch.Tensor)]


own_inference.INFERENCE["torchtpu::region"] = _infer
NUM_DRAWS["torchtpu::region"] = lambda arguments: _regions[arguments[0]].num_draws


def _is_region(module: torch.fx.GraphModule) -> bool:
    """Whether all that comes in and goes out is on the device (or a number on the host), and every operator has a rule."""
    given = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    tensors = [v for v in given if isinstance(v, torch.Tensor)]
    inside = all(_is_here(v) or (v.device.type == "cpu" and v.dim() == 0) for v in tensors)
    numbers = all(isinstance(v, torch.Tensor | torch.SymInt | int) for v in given)
    returned = _output_values(module.graph)
    kept = all(_is_here(v) for v in returned if isinstance(v, torch.Tensor))
    return inside and numbers and kept and any(map(_is_here, tensors)) and is_computable(module.graph)


def _is_here(value: torch.Tensor) -> bool:
    return value.device.type == "tpu"


def _output_values(graph: torch.fx.Graph) -> list[Any]:
    """What the graph returns: fake tensors, sizes and None."""
    (output,) = graph.find_nodes(op="output")
    return [v.meta["val"] if isinstance(v, torch.fx.Node) else v for v in output.args[0]]


def _result(value: Any) -> tuple[str, Any]:
    return ("tensor", None) if isinstance(value, torch.Tensor) else ("other", value)


def _name_of(module: torch.fx.GraphModule) -> str:
    """A hash of operators, arguments, shapes, strides, dtypes and constants."""
    digest = hashlib.sha256()
    names: dict[torch.fx.Node, str] = {}
    for node in module.graph.nodes:
        names[node] = f"%{len(names)}"
        arguments = torch.fx.map_arg((node.args, node.kwargs), lambda n: _Named(names[n]))
        digest.update(f"{node.op} {node.target if callable(node.target) else ''} {arguments} {_shown(node)}\n".encode())
        if node.op == "get_attr":
            constant = getattr(module, str(node.target)).detach().cpu().contiguous()
            digest.update(constant.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class _Named:
    name: str

    def __repr__(self) -> str:
        return self.name


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
        made[node].meta["val"] = torch.utils._pytree.tree_map(lambda v: _plain(v, known), value)
    return copy


def _plain(value: Any, known: _Sizes) -> Any:
    if not isinstance(value, torch.Tensor):
        return known.of(value)
    from torchtpu.graph import inference

    with inference.fake_mode():
        shape, strides = (tuple(known.of(n) for n in given) for given in (value.shape, value.stride()))
        return torch.empty_strided(shape, strides, dtype=value.dtype, device="cpu")
