"""Running an FX graph of aten operators on JAX arrays, operator by operator through the rule table.

View operators need no rules: what one does to sizes and strides is asked of PyTorch, and read like any other view.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.export import is_symbolic_dim
from torch.utils import _pytree

from torchtpu import dtypes
from torchtpu.graph import inference, open_views, promotion, views
from torchtpu.graph.arguments import RunTimeNumber, TensorArgument
from torchtpu.graph.computable import FROM_GENERATOR, attribute, is_random, view_of
from torchtpu.graph.lowered import key_of_draw
from torchtpu.graph.overloads import key_of
from torchtpu.graph.sizes import Sizes, is_symbolic
from torchtpu.rules import find, find_higher_order
from torchtpu.rules.context import RuleContext, opmath

# In ``meta`` of a node that repeats work of the forward pass in order not to keep its result.
RECOMPUTED = "torchtpu_recomputed"


class Interpreter:
    """One run of a graph; ``context`` is the context of the operator that the graph stands for.

    ``sizes`` gives what stands for a size that was left open in the graph: an int, or a dimension expression of ``jax.export``.
    ``wide``: what is a 16-bit float in the graph is computed, taken and returned in the dtype in which sums of these are.
    """

    def __init__(self, graph: torch.fx.Graph, context: RuleContext, sizes: Sizes | None = None, wide: bool = False) -> None:
        self.graph = graph
        self.context = context
        self.sizes = sizes or Sizes()
        self.wide = wide
        self.num_drawn = 0
        self.behind_barrier: dict[torch.fx.Node, jax.Array] = {}

    def run(self, inputs: Sequence[Any]) -> Any:
        """The outputs of the graph, nested as it returns them.

        ``inputs`` has one value a placeholder: an array, the words of a random generator, a number, or None where that is
        known from the sizes.
        """
        values: dict[torch.fx.Node, Any] = {}
        stream = iter(inputs)
        nodes = list(self.graph.nodes)
        for position, node in enumerate(nodes):
            if node.op == "placeholder":
                values[node] = self._given(node, next(stream))
            elif node.op == "get_attr":
                values[node] = self._attribute(node)
            elif node.op == "output":
                return torch.fx.map_arg(node.args[0], values.__getitem__)
            else:
                if node.meta.get(RECOMPUTED) and not nodes[position - 1].meta.get(RECOMPUTED):
                    self._raise_barrier(nodes[position:], values)
                values[node] = self._call(node, values)
        raise AssertionError("a graph without an output")

    def _given(self, node: torch.fx.Node, value: Any) -> Any:
        fake = node.meta["val"]
        if isinstance(fake, torch.Tensor):
            return jnp.asarray(value).astype(self._dtype(fake.dtype))
        known = self.sizes.of(fake)
        return known if value is None or (is_symbolic(fake) and not is_symbolic(known)) else value

    def _dtype(self, dtype: torch.dtype) -> np.dtype:
        return opmath(dtypes.to_numpy(dtype)) if self.wide else dtypes.to_numpy(dtype)

    def _draws(self, node: torch.fx.Node) -> tuple[Callable[[], jax.Array], ...]:
        """The next draw of the operator that the graph stands for; beyond its last one, streams split off that."""
        if not is_random(node):
            return ()
        place, given = self.num_drawn, self.context.draws
        self.num_drawn += 1
        return (given[place],) if place < len(given) else (lambda: jax.random.fold_in(given[-1](), place),)

    def _attribute(self, node: torch.fx.Node) -> Any:
        value = attribute(node)
        return jnp.asarray(value.detach().cpu().numpy()) if isinstance(value, torch.Tensor) else value

    def _call(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
        known = self.sizes.of(node.meta.get("val"))
        is_number = isinstance(known, int | float) or is_symbolic_dim(known)
        if is_number and not isinstance(node.target, torch._ops.HigherOrderOperator):
            return known
        read = functools.partial(self._value, values=values, recomputed=node.meta.get(RECOMPUTED, False))
        mapped = torch.fx.map_arg((node.args, node.kwargs), read)
        arguments, keywords = cast(tuple[tuple[Any, ...], dict[str, Any]], mapped)
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._higher_order(node, node.target.name(), arguments, keywords)
        if not isinstance(node.target, torch._ops.OpOverload):
            return cast(Callable[..., Any], node.target)(*arguments, **keywords)  # arithmetic on a number that a loop computed
        rule = find(key_of(node.target))
        if rule is not None:
            return self._apply(node, node.target, arguments, keywords, self._draws(node))
        view = view_of(node.target)
        if view is None:
            return arguments[0]
        if self._is_open(node, (arguments, keywords)):
            return open_views.apply(key_of(view), self._shapes(node), *arguments, **keywords)
        return self._view(node, view, arguments, keywords)

    def _shapes(self, node: torch.fx.Node) -> list[tuple[Any, ...]]:
        """The shapes of a node's results."""
        return [self.sizes.shape(v) for v in _pytree.tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor)]

    def _is_open(self, node: torch.fx.Node, arguments: Any) -> bool:
        """Whether a size takes part that is not a number."""
        sizes = (*(n for shape in self._shapes(node) for n in shape), *arguments[0][0].shape, *_pytree.tree_leaves(arguments))
        return any(is_symbolic_dim(n) for n in sizes)

    def _value(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], recomputed: bool) -> Any:
        return self.behind_barrier[node] if recomputed and node in self.behind_barrier else values[node]

    def _view(self, node: torch.fx.Node, op: torch._ops.OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Asks PyTorch what the view does to a contiguous tensor, and reads that."""
        base, *rest = arguments
        source = cast(torch.fx.Node, node.args[0]).meta["val"]
        with inference.fake_mode():
            fake = torch.empty(self.sizes.shape(source), dtype=source.dtype, device="cpu")
            result = op(fake, *rest, **keywords)

        def one(view: torch.Tensor) -> jax.Array:
            where = views.View(self._dtype(view.dtype), tuple(view.shape), tuple(view.stride()), int(view.storage_offset()))
            value = views.read(base, where)
            return jnp.conj(value) if view.is_conj() else -value if view.is_neg() else value

        return [one(view) for view in result] if isinstance(result, list | tuple) else one(result)

    def _context(
        self, node: torch.fx.Node, op: str, draws: tuple[Callable[[], jax.Array], ...], common: torch.dtype
    ) -> RuleContext:
        outputs = [v for v in _pytree.tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor)]
        return RuleContext(
            op, tuple(jax.ShapeDtypeStruct(s, self._dtype(o.dtype)) for s, o in zip(self._shapes(node), outputs, strict=True)),
            self._dtype(common), self.context.matmul_precision, draws)

    def _apply(
        self, node: torch.fx.Node, op: torch._ops.OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any],
        draws: tuple[Callable[[], jax.Array], ...], operands: tuple[Any, ...] | None = None,
    ) -> Any:
        """The rule of ``op``; ``operands`` are its arguments in the graph, if those of the node are not."""
        rule = find(key_of(op))
        assert rule is not None
        schema = op._schema.arguments
        by_name = {a.name: a for a in schema}
        pairs = [*zip(schema, node.args if operands is None else operands, strict=False),
                 *((by_name[name], node.kwargs[name]) for name in keywords)]
        context = self._context(node, key_of(op), draws, promotion.common_dtype(self._leaves_for_promotion(pairs)))
        given = [_for_rule(value, schema[i], context) for i, value in enumerate(arguments)]
        named = {name: _for_rule(value, by_name[name], context) for name, value in keywords.items()}
        return self._as_promised(rule.function(context, *given, **named), node.meta["val"])

    def _as_promised(self, result: Any, value: Any) -> Any:
        """A result in the dtype that inference says; what is no tensor there (None, a size) is known already."""
        if isinstance(value, list | tuple):
            return [self._as_promised(r, v) for r, v in zip(result, value, strict=True)]
        if is_symbolic(value) or result is None:
            return result
        if not isinstance(value, torch.Tensor):
            return value
        return jnp.asarray(result).astype(self._dtype(value.dtype))

    def _leaves_for_promotion(self, pairs: list[tuple[Any, Any]]) -> list[Any]:
        """Tensors and numbers that take part in type promotion, from arguments of a schema and what a graph has for them."""
        result: list[Any] = []
        for argument, value in pairs:
            for leaf in _pytree.tree_leaves(value):
                fake = self.sizes.of(leaf.meta.get("val")) if isinstance(leaf, torch.fx.Node) else leaf
                if isinstance(fake, torch.Tensor):
                    result.append(TensorArgument(0, fake.dtype, self.sizes.shape(fake), (), 0, False, False))
                elif isinstance(fake, int | float | complex) or is_symbolic(fake) or is_symbolic_dim(fake):
                    kinds = str(argument.type), str(argument.real_type)
                    if kinds[0] == "Tensor" or "number" in kinds[0] or "number" in kinds[1]:
                        result.append(RunTimeNumber(fake if isinstance(fake, int | float | complex) else 0))
        return result

    def _higher_order(self, node: torch.fx.Node, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if name == FROM_GENERATOR:
            op, *rest = arguments
            words = keywords["rng_state"]
            named = {name: value for name, value in keywords.items() if name != "rng_state"}
            return self._apply(node, op, tuple(rest), named, (lambda: key_of_draw(words),), node.args[1:])
        rule = find_higher_order(name)
        assert rule is not None
        draws = self._draws(node)
        graph_of = functools.partial(self._subgraph, draws=draws)
        given = _pytree.tree_map_only(torch.fx.GraphModule, graph_of, arguments)
        results = rule.function(self._context(node, rule.key, draws, torch.float32), *given, **keywords)
        return self._as_promised(results, node.meta["val"])

    def _subgraph(self, module: torch.fx.GraphModule, draws: tuple[Callable[[], jax.Array], ...]) -> Any:
        """A graph as a function; every iteration of a loop has random numbers of its own."""

        def run(*inputs: Any, step: jax.Array | None = None, wide: bool = False) -> tuple[Any, ...]:
            own = draws if step is None else tuple(functools.partial(_draw_of_step, draw, step) for draw in draws)
            results = Interpreter(module.graph, replace(self.context, draws=own), self.sizes, wide or self.wide).run(inputs)
            return tuple(results) if isinstance(results, list | tuple) else (results,)

        return run

    def _raise_barrier(self, rest: list[torch.fx.Node], values: dict[torch.fx.Node, Any]) -> None:
        """XLA would merge recomputation with the forward pass when both are in one program, and it would then save no memory.

        So what a run of recomputed nodes takes from outside passes through one barrier, together with the gradient that arrived
        last: it is not the same value any more, and it does not exist before that gradient does.
        """
        run: dict[torch.fx.Node, None] = {}
        for node in rest:
            if not node.meta.get(RECOMPUTED):
                break
            run[node] = None
        read = dict.fromkeys(given for node in run for given in node.all_input_nodes)
        outside = [node for node in read if node not in run and isinstance(values[node], jax.Array)]
        latest = [value for node, value in values.items() if isinstance(value, jax.Array) and not node.meta.get(RECOMPUTED)][-1:]
        passed = lax.optimization_barrier((*(values[n] for n in outside), *latest))
        self.behind_barrier.update(zip(outside, passed, strict=False))


def _draw_of_step(draw: Callable[[], jax.Array], step: jax.Array) -> jax.Array:
    return jax.random.fold_in(draw(), step)


def _for_rule(value: Any, argument: Any, context: RuleContext) -> Any:
    if isinstance(value, torch.dtype):
        return dtypes.to_numpy(value)
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    if str(argument.type) == "Tensor" and isinstance(value, int | float | complex):
        return jnp.asarray(value, context.compute_dtype)
    return list(value) if isinstance(value, tuple) else value
