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
from jax.export import is_symbolic_dim
from torch.utils import _pytree

from torchtpu import dtypes
from torchtpu.graph import inference, open_views, promotion, views
from torchtpu.graph.arguments import RunTimeNumber, TensorArgument
from torchtpu.graph.overloads import key_of
from torchtpu.graph.rule_choice import draws_numbers
from torchtpu.rules import find
from torchtpu.rules.context import RuleContext

_COPIES = {"aten::clone", "aten::alias", "aten::detach", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::contiguous"}


def is_computable(graph: torch.fx.Graph) -> bool:
    """Whether every operator of the graph has a rule or is a view."""
    return all(map(is_known, graph.nodes))


def is_known(node: torch.fx.Node) -> bool:
    """Whether a node has a rule, or needs none."""
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    rule = find(key_of(node.target))
    return is_view(node.target) or (rule is not None and not rule.dynamic) or key_of(node.target) in _COPIES


def is_random(node: torch.fx.Node) -> bool:
    """Whether a node of a graph draws random numbers."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload):
        return False
    schema = op._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return draws_numbers(op, defaults | dict(zip((a.name for a in schema), node.args, strict=False)) | node.kwargs)


class Interpreter:
    """One run of a graph; ``context`` is the context of the operator that the graph stands for.

    ``size`` gives what stands for a size that was left open in the graph (a ``torch.SymInt``): an int, or a dimension expression
    of ``jax.export``. Other values it leaves alone.
    """

    def __init__(self, graph: torch.fx.Graph, context: RuleContext, size: Callable[[Any], Any] = lambda value: value) -> None:
        self.graph = graph
        self.context = context
        self.size = size
        self.num_drawn = 0

    def run(self, inputs: Sequence[jax.Array]) -> Any:
        """The outputs of the graph, nested as it returns them. ``inputs``: one a placeholder."""
        values: dict[torch.fx.Node, Any] = {}
        stream = iter(inputs)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                values[node] = _as_promised(next(stream), node.meta["val"])
            elif isinstance(node.meta.get("val"), torch.SymInt):
                values[node] = self.size(node.meta["val"])
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
            if self._is_open(node, (arguments, keywords)):
                return open_views.apply(key_of(node.target), self._shapes(node), *arguments, **keywords)
            return self._view(node, node.target, arguments, keywords)
        return arguments[0]

    def _shapes(self, node: torch.fx.Node) -> list[tuple[Any, ...]]:
        """The shapes of a node's results."""
        results = [v for v in _pytree.tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor)]
        return [tuple(map(self.size, result.shape)) for result in results]

    def _is_open(self, node: torch.fx.Node, arguments: Any) -> bool:
        """Whether a size takes part that is not a number."""
        sizes = (*(n for shape in self._shapes(node) for n in shape), *arguments[0][0].shape, *_pytree.tree_leaves(arguments))
        return any(is_symbolic_dim(n) for n in sizes)

    def _view(self, node: torch.fx.Node, op: torch._ops.OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Asks PyTorch what the view does to a contiguous tensor, and reads that."""
        source_node = node.args[0]
        assert isinstance(source_node, torch.fx.Node)
        base, *rest = arguments
        with inference.fake_mode():
            fake = torch.empty(base.shape, dtype=source_node.meta["val"].dtype, device="cpu")
            result = op(fake, *rest, **keywords)

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
            key_of(op),
            tuple(jax.ShapeDtypeStruct(s, dtypes.to_numpy(o.dtype)) for s, o in zip(self._shapes(node), outputs, strict=True)),
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
                elif isinstance(fake, torch.SymInt) and _is_data(argument):
                    result.append(RunTimeNumber(0))
            elif isinstance(leaf, int | float | complex) and _is_data(argument):
                result.append(RunTimeNumber(leaf))
    return result


def _is_data(argument: Any) -> bool:
    """Whether a number given for an argument is data, not a size or an option."""
    kinds = str(argument.type), str(argument.real_type)
    return kinds[0] == "Tensor" or "number" in kinds[0] or "number" in kinds[1]


def _for_rule(value: Any, argument: Any, context: RuleContext) -> Any:
    if isinstance(value, torch.dtype):
        return dtypes.to_numpy(value)
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    if is_symbolic_dim(value) and _is_data(argument):
        return jnp.asarray(value, context.compute_dtype)
    if str(argument.type) == "Tensor" and isinstance(value, int | float | complex):
        return jnp.asarray(value, context.compute_dtype)
    return list(value) if isinstance(value, tuple) else value
