"""Running an FX graph of aten operators on JAX arrays, operator by operator through the rule table.

View operators need no rules: what one does to sizes and strides is asked of PyTorch, and read like any other view.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import torch
from torch.utils import _pytree

from torchtpu import dtypes
from torchtpu.graph import inference, promotion, views
from torchtpu.graph.arguments import RunTimeNumber, TensorArgument
from torchtpu.graph.overloads import key_of
from torchtpu.graph.rule_choice import draws_numbers
from torchtpu.rules import find
from torchtpu.rules.context import RuleContext

_COPIES = {"aten::clone", "aten::alias", "aten::detach", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::contiguous"}


def is_computable(graph: torch.fx.Graph) -> bool:
    """Whether every operator of the graph has a rule or is a view."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or _is_arithmetic(node):
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            return False
        rule = find(key_of(node.target))
        if not is_view(node.target) and (rule is None or rule.dynamic) and key_of(node.target) not in _COPIES:
            return False
    return True


def _is_arithmetic(node: torch.fx.Node) -> bool:
    """Whether a node computes a number from open sizes alone, which are known when the graph is run."""
    return all(isinstance(n.meta.get("val"), int | torch.SymInt) for n in (node, *node.all_input_nodes))


def is_random(node: torch.fx.Node) -> bool:
    """Whether a node of a graph draws random numbers."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload):
        return False
    schema = op._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return draws_numbers(op, defaults | dict(zip((a.name for a in schema), node.args, strict=False)) | node.kwargs)


class Interpreter:
    """One run of a graph; ``context`` is the context of the operator that the graph stands for."""

    def __init__(self, graph: torch.fx.Graph, context: RuleContext) -> None:
        self.graph = graph
        self.context = context
        self.num_drawn = 0

    def run(self, inputs: Sequence[jax.Array]) -> Any:
        """The outputs of the graph, nested as it returns them."""
        values: dict[torch.fx.Node, Any] = {}
        stream = iter(inputs)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                given = next(stream)
                values[node] = given.astype(dtypes.to_numpy(node.meta["val"].dtype))
            elif node.op == "get_attr":
                values[node] = self._constant(node)
            elif node.op == "output":
                return torch.fx.map_arg(node.args[0], values.__getitem__)
            else:
                values[node] = self._call(node, values)
        raise AssertionError("a graph without an output")

    def _draws(self, node: torch.fx.Node) -> tuple[Callable[[], jax.Array], ...]:
        """The next draw of the operator that the graph stands for; beyond its last one, streams split off that."""
        if not is_random(node):
            return ()
        place, given = self.num_drawn, self.context.draws
        self.num_drawn += 1
        return (given[place],) if place < len(given) else (lambda: jax.random.fold_in(given[-1](), place),)

    def _constant(self, node: torch.fx.Node) -> jax.Array:
        tensor = getattr(self.graph.owning_module, str(node.target))
        return jnp.asarray(tensor.detach().cpu().numpy())

    def _call(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
        mapped = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        arguments, keywords = cast(tuple[tuple[Any, ...], dict[str, Any]], mapped)
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        assert isinstance(node.target, torch._ops.OpOverload)
        rule = find(key_of(node.target))
        if rule is not None:
            return self._apply(node, node.target, rule.function, arguments, keywords)
        if is_view(node.target):
            return self._view(node, node.target, arguments[0])
        return arguments[0]

    def _view(self, node: torch.fx.Node, op: torch._ops.OpOverload, base: jax.Array) -> Any:
        """Asks PyTorch what the view does to a contiguous tensor, and reads that."""
        source_node, *arguments = node.args
        assert isinstance(source_node, torch.fx.Node)
        source = source_node.meta["val"]
        with inference.fake_mode():
            fake = torch.empty(source.shape, dtype=source.dtype, device="cpu")
            result = op(fake, *arguments, **node.kwargs)

        def one(view: torch.Tensor) -> jax.Array:
            where = views.View(
                dtypes.to_numpy(view.dtype), tuple(view.shape), tuple(view.stride()), int(view.storage_offset()))
            value = views.read(base, where)
            return jnp.conj(value) if view.is_conj() else -value if view.is_neg() else value

        return [one(view) for view in result] if isinstance(result, list | tuple) else one(result)

    def _apply(
        self, node: torch.fx.Node, op: torch._ops.OpOverload, function: Any, arguments: Any, keywords: Any
    ) -> Any:
        outputs = [v for v in _pytree.tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor)]
        common = dtypes.to_numpy(promotion.common_dtype(_leaves_for_promotion(node)))
        context = RuleContext(
            key_of(op), tuple(jax.ShapeDtypeStruct(tuple(o.shape), dtypes.to_numpy(o.dtype)) for o in outputs),
            common, self.context.matmul_precision, self._draws(node))
        schema = op._schema.arguments
        given = [_for_rule(value, schema[i], context) for i, value in enumerate(arguments)]
        by_name = {a.name: a for a in schema}
        named = {name: _for_rule(value, by_name[name], context) for name, value in keywords.items()}
        results = function(context, *given, **named)
        return _pytree.tree_map(_as_promised, results, node.meta["val"], is_leaf=lambda leaf: leaf is None)


def _as_promised(result: Any, value: Any) -> Any:
    """A result in the dtype that inference says; what is no tensor there (None, a size) is known already."""
    if not isinstance(value, torch.Tensor):
        return value
    return None if result is None else jnp.asarray(result).astype(dtypes.to_numpy(value.dtype))


def is_view(op: torch._ops.OpOverload) -> bool:
    """Whether an operator only looks at its argument in another way."""
    return any(a.alias_info is not None and not a.alias_info.is_write for a in op._schema.arguments) or op.is_view


def _leaves_for_promotion(node: torch.fx.Node) -> list[Any]:
    schema = node.target._schema.arguments
    by_name = {a.name: a for a in schema}
    pairs = [*zip(schema, node.args, strict=False), *((by_name[n], v) for n, v in node.kwargs.items())]
    result: list[Any] = []
    for argument, value in pairs:
        for leaf in _pytree.tree_leaves(value):
            if isinstance(leaf, torch.fx.Node):
                fake = leaf.meta["val"]
                if isinstance(fake, torch.Tensor):
                    result.append(TensorArgument(0, fake.dtype, tuple(fake.shape), (), 0, False, False))
            elif isinstance(leaf, int | float | complex):
                kinds = str(argument.type), str(argument.real_type)
                if kinds[0] == "Tensor" or "number" in kinds[0] or "number" in kinds[1]:
                    result.append(RunTimeNumber(leaf))
    return result


def _for_rule(value: Any, argument: Any, context: RuleContext) -> Any:
    if isinstance(value, torch.dtype):
        return dtypes.to_numpy(value)
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    if str(argument.type) == "Tensor" and isinstance(value, int | float | complex):
        return jnp.asarray(value, context.compute_dtype)
    return list(value) if isinstance(value, tuple) else value
