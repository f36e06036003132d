"""What a compiled graph returns: tensors that it computes, views of these, numbers, and None.

Of several results that look at one memory, a region computes the memory once, and the views are made of it afterwards: whoever
writes one of them sees it in the others, as without compiling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtpu.graph.computable import is_view
from torchtpu.graph.sizes import number_symbols


@dataclass(frozen=True)
class Result:
    """One result: a size or None (``base`` is None), or a tensor that was made, seen through ``views``, or the number in it."""

    base: int | None
    views: tuple[torch.fx.Node, ...] = ()
    value: Any = None
    is_number: bool = False

    def of(self, made: Sequence[torch.Tensor], known: Callable[[Any], Any]) -> Any:
        """The result; ``known`` gives the value of a size."""
        if self.base is None:
            return known(self.value)
        tensor = made[self.base]
        if self.is_number:
            return tensor.item()
        for view in self.views:
            arguments = torch.fx.map_arg(view.args[1:], lambda node: known(node.meta["val"]))
            tensor = view.target(tensor, *arguments, **view.kwargs)  # type: ignore[operator]
        return tensor


def output_values(graph: torch.fx.Graph) -> list[Any]:
    """What the graph returns: fake tensors, sizes and None."""
    return [v.meta["val"] if isinstance(v, torch.fx.Node) else v for v in _outputs(graph)]


def views_of_results(graph: torch.fx.Graph, known: set[Any]) -> list[Result]:
    """Let the graph return every shared memory once, and say how its former results follow from what it returns now.

    ``known`` are the symbols whose values are known at the call; a number that needs others is computed like a tensor.
    """
    tensors = [v for v in _outputs(graph) if isinstance(v, torch.fx.Node) and isinstance(v.meta["val"], torch.Tensor)]
    bases = {node: _base(node) for node in tensors}
    shared = Counter(base for base, _ in dict(bases).values())
    returned: dict[torch.fx.Node, int] = {}
    results = []
    for value in _outputs(graph):
        if isinstance(value, torch.fx.Node) and number_symbols(value.meta["val"]) - known:
            results.append(Result(returned.setdefault(value, len(returned)), is_number=True))
            continue
        if not isinstance(value, torch.fx.Node) or value not in bases:
            results.append(Result(None, value=value.meta["val"] if isinstance(value, torch.fx.Node) else value))
            continue
        base, views = bases[value]
        if shared[base] == 1 or base.op == "placeholder":
            base, views = value, ()
        results.append(Result(returned.setdefault(base, len(returned)), views))
    (output,) = graph.find_nodes(op="output")
    output.args = (tuple(returned),)
    return results


def _outputs(graph: torch.fx.Graph) -> Sequence[Any]:
    (output,) = graph.find_nodes(op="output")
    return output.args[0]  # type: ignore[return-value]


def _base(node: torch.fx.Node) -> tuple[torch.fx.Node, tuple[torch.fx.Node, ...]]:
    """The node whose memory this one looks at, and the views between them, the first one first."""
    views: list[torch.fx.Node] = []
    while isinstance(node.target, torch._ops.OpOverload) and is_view(node.target) and isinstance(node.meta["val"], torch.Tensor):
        views.insert(0, node)
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        node = source
    return node, tuple(views)
