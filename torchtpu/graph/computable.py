"""Which nodes of an FX graph become part of one JAX function, and why the others do not."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torchtpu.graph.overloads import key_of, overload
from torchtpu.graph.rule_choice import draws_numbers
from torchtpu.graph.sizes import is_symbolic, number_symbols, shape_symbols
from torchtpu.rules import find, find_higher_order

COPIES = {"aten::clone", "aten::alias", "aten::detach", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::contiguous"}
# A random operator that draws from a generator of its own, as checkpointing does to draw the same numbers again.
FROM_GENERATOR = "graphsafe_run_with_rng_state"
_OF_VALUES = "the shape of its result depends on values"


def is_computable(graph: torch.fx.Graph) -> bool:
    """Whether every node of the graph can be computed."""
    return all(obstacle(node) is None for node in graph.nodes)


def obstacle(node: torch.fx.Node) -> str | None:
    """Why a node cannot be computed inside a program, or None."""
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return _obstacle_of_higher_order(node, node.target)
    value = node.meta.get("val")
    if is_symbolic(value):
        fresh = number_symbols(value) - _known_symbols(node)
        return "it reads a value on the host" if fresh else None
    return _obstacle_of(node.target) or (_OF_VALUES if shape_symbols(value) - _known_symbols(node) else None)


def is_view(op: torch._ops.OpOverload) -> bool:
    """Whether an operator only looks at its argument in another way."""
    return any(a.alias_info is not None and not a.alias_info.is_write for a in op._schema.arguments) or op.is_view


def view_of(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The view operator that gives the values of ``op``: itself, or the one that it copies; None if it is neither."""
    if is_view(op):
        return op
    if torch.Tag.view_copy not in op.tags:
        return None
    packet, _, name = key_of(op).partition(".")
    return overload(packet.removesuffix("_copy") + (f".{name}" if name else ""))


def is_random(node: torch.fx.Node) -> bool:
    """Whether a node of a graph, or a graph that it calls, draws random numbers of the device's generator."""
    op = node.target
    if isinstance(op, torch._ops.HigherOrderOperator):
        return any(is_random(inner) for graph in subgraphs(node) for inner in graph.graph.nodes)
    if not isinstance(op, torch._ops.OpOverload):
        return False
    schema = op._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return draws_numbers(op, defaults | dict(zip((a.name for a in schema), node.args, strict=False)) | node.kwargs)


def subgraphs(node: torch.fx.Node) -> Iterator[torch.fx.GraphModule]:
    """The graphs among the arguments of a node."""
    for argument in tree_leaves((node.args, node.kwargs)):
        if isinstance(argument, torch.fx.Node) and argument.op == "get_attr":
            value = attribute(argument)
            if isinstance(value, torch.fx.GraphModule):
                yield value


def attribute(node: torch.fx.Node) -> Any:
    """What a ``get_attr`` node stands for: a constant, or a graph."""
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


def _obstacle_of(op: Any) -> str | None:
    if not isinstance(op, torch._ops.OpOverload):
        return "it is no operator"
    rule = find(key_of(op))
    if rule is not None and rule.dynamic:
        return _OF_VALUES
    known = rule is not None or view_of(op) is not None or key_of(op) in COPIES
    return None if known else "there is no lowering for it"


def _obstacle_of_higher_order(node: torch.fx.Node, op: torch._ops.HigherOrderOperator) -> str | None:
    if op.name() == FROM_GENERATOR:
        return _obstacle_of(node.args[0])
    if find_higher_order(op.name()) is None:
        return "there is no lowering for it"
    value = node.meta.get("val")
    if shape_symbols(value) - _known_symbols(node):
        return _OF_VALUES
    # A number that a loop counts is fine as long as nothing is as large as it says.
    counted = number_symbols(value) - _known_symbols(node)
    if counted and counted & set().union(*(shape_symbols(other.meta.get("val")) for other in node.graph.nodes)):
        return "a number that it computes is the size of a tensor"
    for graph in subgraphs(node):
        for inner in graph.graph.nodes:
            why = obstacle(inner)
            if why is not None:
                return f"it calls {inner.target}, and {why}"
    return None


def _known_symbols(node: torch.fx.Node) -> set[Any]:
    given = [n.meta.get("val") for n in node.all_input_nodes]
    return shape_symbols(given) | number_symbols(given)
