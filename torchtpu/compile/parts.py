"""A graph that cannot be one region as a whole: regions, and between them what runs operator by operator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_leaves

from torchtpu.compile import region, telling
from torchtpu.graph.computable import obstacle


def make(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """The graph as a function of its arguments, in as few parts as its dependencies allow; says why there are several."""
    if not any(_tensors(node, region.is_here) for node in module.graph.nodes):
        return module.forward  # none of the device's business
    obstacles = {node: why for node in module.graph.nodes if (why := _obstacle(node)) is not None}
    for node, why in obstacles.items():
        if any(_tensors(n, _is_work) for n in (node, *node.all_input_nodes)):
            telling.tell_operator(node, why)
    levels = _levels(module.graph, obstacles)
    if not any(level % 2 == 0 for level in levels.values()):
        return module.forward
    split = split_module(module, module, levels.__getitem__, keep_original_order=False)
    for name, part in list(split.named_children()):
        if name.startswith("submod_") and isinstance(part, torch.fx.GraphModule):  # others are graphs that operators call
            setattr(split, name, _Part(part))
    return split.forward


class _Part(torch.nn.Module):
    """One part in place of its graph."""

    def __init__(self, part: torch.fx.GraphModule) -> None:
        super().__init__()
        (output,) = part.graph.find_nodes(op="output")
        self.is_single = not isinstance(output.args[0], tuple | list)
        if self.is_single:
            output.args = ((output.args[0],),)
            part.recompile()
        made = region.make(part)
        self.call = made or (lambda arguments: part.forward(*arguments))

    def forward(self, *arguments: Any) -> Any:
        results = self.call(list(arguments))
        return results[0] if self.is_single else results


def _obstacle(node: torch.fx.Node) -> str | None:
    """Why a node cannot be part of a region, or None."""
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    why = obstacle(node)
    if why is None and (not _are_here(node, result=True) or not all(_are_here(n, result=False) for n in node.all_input_nodes)):
        return "its tensors are on the host"
    return why


def _are_here(node: torch.fx.Node, result: bool) -> bool:
    """Whether all tensors that a node stands for are on the device, or numbers in tensors that a program may take."""
    return not _tensors(node, lambda t: not region.is_here(t) and (t.device.type != "cpu" or t.dim() > 0 or result))


def _is_work(tensor: torch.Tensor) -> bool:
    """Arithmetic on sizes, assertions about them, and single numbers are the host's in any case: they are not told."""
    return region.is_here(tensor) or tensor.dim() > 0


def _tensors(node: torch.fx.Node, kind: Callable[[torch.Tensor], bool]) -> list[torch.Tensor]:
    """The tensors of a kind that a node stands for."""
    return [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor) and kind(leaf)]


def _levels(graph: torch.fx.Graph, obstacles: dict[torch.fx.Node, str]) -> dict[torch.fx.Node, int]:
    """The part of every node: even ones are regions. A node comes as early as what it reads allows."""
    levels: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        earliest = max((levels[n] for n in node.all_input_nodes if n in levels), default=0)
        follows = node.target is operator.getitem or earliest % 2 == (node in obstacles)
        levels[node] = earliest if follows else earliest + 1
    return levels
