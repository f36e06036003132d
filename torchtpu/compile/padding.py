"""Which graphs give the same results when a size is larger than it should be, and the graph made ready for that.

Let ``s`` be an open size of a graph. Its *padded* graph runs with a larger ``s``, and nothing is known of what fills the tensors
up: it may be NaN. A value then has valid entries and others; where they are is its ``Layout``. Every operator must keep the valid
entries of its results free of the others (neutral.py says how, operator by operator); where it would mix them, as a sum does, the
others are overwritten with its neutral element first. That needs the true size: a number that is an input of the padded graph, so
that one program serves all sizes. An operator of which this is not known refuses, and the graph keeps its exact sizes.

One symbol is treated at a time. If a graph may be padded along ``s`` whatever ``t`` is, and that padded graph along ``t``, then
along both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import sympy
import torch
from torch.fx import Node
from torch.utils import _pytree

from torchtpu.compile import neutral
from torchtpu.errors import PaddingError
from torchtpu.graph.computable import is_random
from torchtpu.graph.overloads import key_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Padding:
    """How a dimension holds padding: seen as ``outer`` x ``extent`` x ``inner``, the first entries along ``extent`` are valid.

    ``extent`` holds the symbol; as many entries are valid as it is with the true size. ``outer`` is 1 but for a dimension that was
    made by merging others.
    """

    extent: sympy.Expr
    outer: sympy.Expr = sympy.S.One
    inner: sympy.Expr = sympy.S.One

    @property
    def is_prefix(self) -> bool:
        """Whether the valid entries are the first ones of the dimension, each one entry of the extent."""
        return self.outer == 1 and self.inner == 1


Layout = tuple[Padding | None, ...]  # one a dimension; None: all of it is valid


def is_size(node: Node) -> bool:
    """Whether a node stands for a number that follows from open sizes."""
    return isinstance(node.meta.get("val"), int | torch.SymInt)


def expr(size: Any) -> sympy.Expr:
    """A size, open or not, as an expression."""
    if isinstance(size, sympy.Expr):
        return size
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def same_size(one: sympy.Expr, other: sympy.Expr) -> bool:
    """Whether two expressions are equal for all sizes."""
    return sympy.expand(one - other) == 0


def tensors_of(node: Node) -> list[torch.Tensor]:
    """What an operator returns, without what is no tensor."""
    return [v for v in _pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]


@dataclass
class Padded:
    """A graph that may be run with larger sizes.

    Attributes:
        module: the graph; behind its own inputs it takes ``numbers``, 0-dim tensors on the host.
        symbols: the sizes that may be larger.
        numbers: expressions of true sizes.
        outputs: for each tensor of the output, where it is valid: symbol by symbol.
    """

    module: torch.fx.GraphModule
    symbols: list[sympy.Expr]
    numbers: list[sympy.Expr]
    outputs: list[list[Layout]]


def pad(module: torch.fx.GraphModule, symbols: Sequence[sympy.Expr]) -> tuple[Padded, list[PaddingError]]:
    """The padded graph along as many of the symbols as can be, and why not along the others."""
    padded = Padded(module, [], [], [])
    refusals = []
    for symbol in symbols:
        rewrite = Rewrite(padded.module, symbol)
        try:
            outputs = rewrite.run()
        except PaddingError as refusal:
            refusals.append(refusal)
            continue
        padded = Padded(
            torch.fx.GraphModule(module, rewrite.graph), [*padded.symbols, symbol], [*padded.numbers, *rewrite.numbers],
            [*padded.outputs, outputs])
    return padded, refusals


class Rewrite:
    """One walk over a graph that makes its padded graph along one symbol; the operators' rules work on it."""

    def __init__(self, module: torch.fx.GraphModule, symbol: sympy.Expr) -> None:
        self.source = module.graph
        self.graph = torch.fx.Graph(owning_module=module)
        self.symbol = symbol
        self.numbers: list[sympy.Expr] = []
        self._number_nodes: dict[sympy.Expr, Node] = {}
        self._layouts: dict[Node, Layout | list[Layout]] = {}
        self._node: Node  # the one that is being treated

    def run(self) -> list[Layout]:
        """Fill ``graph``; where the tensors that it returns are valid.

        Raises:
            PaddingError: an operator refuses.
        """
        made: dict[Node, Node] = {}
        for node in self.source.nodes:
            made[node] = self._node = self.graph.node_copy(node, made.__getitem__)
            value = node.meta.get("val")
            if isinstance(value, torch.SymFloat | torch.SymBool):
                if self.symbol in value.node.expr.free_symbols:
                    self.refuse("a number that is no size, computed from it")
            elif not is_size(node) and not isinstance(value, float) and node.op != "output":
                self._layouts[self._node] = self._layout_of_result()
        returned = _pytree.tree_leaves(self._node.args)
        return [self.layout(v) for v in returned if isinstance(v, Node) and isinstance(v.meta["val"], torch.Tensor)]

    def _layout_of_result(self) -> Layout | list[Layout]:
        node = self._node
        if node.op == "placeholder" or node.op == "get_attr":
            return self.fresh(node)
        if node.target is operator.getitem:
            source, place = node.args
            return cast(list[Layout], self._layouts[source])[place]  # type: ignore[index]
        tensors = [n for n in node.all_input_nodes if n in self._layouts]
        if not any(any(self.layout(n)) for n in tensors) and not self._speaks_of_symbol(node):
            return self.same(node, lambda value: (None,) * value.dim())
        if node.target._schema.is_mutable:
            self.refuse("one that writes into its arguments")
        if is_random(node):
            self.refuse("random numbers, which depend on the shape that is drawn")
        result = neutral.rule_of(node)(self, node)
        values = node.meta["val"]
        for value, layout in zip(values, result, strict=True) if isinstance(result, list) else [(values, result)]:
            if isinstance(value, torch.Tensor):
                self._check(value, layout)
        return result

    def _speaks_of_symbol(self, node: Node) -> bool:
        sizes = [size for value in tensors_of(node) for size in value.shape]
        sizes += [n.meta["val"] for n in node.all_input_nodes if is_size(n)]
        return any(self.symbol in expr(size).free_symbols for size in sizes)

    def _check(self, value: torch.Tensor, layout: Layout) -> None:
        for size, padding in zip(value.shape, layout, strict=True):
            has_symbol = self.symbol in expr(size).free_symbols
            if has_symbol != (padding is not None):
                self.refuse(f"a result of size {size} whose padding is not known")
            if padding is not None and not same_size(padding.outer * padding.extent * padding.inner, expr(size)):
                self.refuse(f"a result of size {size}, padded as {padding}")

    # What rules ask.

    def refuse(self, why: str) -> NoReturn:
        """Raise ``PaddingError`` for the operator that is being treated."""
        target = self._node.target
        op = key_of(target) if isinstance(target, torch._ops.OpOverload) else str(target)
        raise PaddingError(op=op, why=f"{why} (along the open size {self.symbol})")

    def layout(self, node: Any) -> Layout:
        """Where a tensor is valid."""
        layout = self._layouts[node]
        if isinstance(layout, list):
            self.refuse(f"all results of {node} at once")
        return layout

    def padding(self, size: Any) -> Padding | None:
        """Of a dimension of ``size``, of which a beginning is valid."""
        size = expr(size)
        if self.symbol not in size.free_symbols:
            return None
        inner, extent = sympy.factor(size).as_independent(self.symbol, as_Add=False)
        return Padding(sympy.expand(extent), inner=inner)

    def fresh(self, node: Node) -> Layout | list[Layout]:
        """Of tensors whose beginning is valid along each dimension: inputs, and what depends on places only."""
        return self.same(node, lambda value: tuple(map(self.padding, value.shape)))

    def same(self, node: Node, layout: Callable[[torch.Tensor], Layout]) -> Layout | list[Layout]:
        """One layout for an operator's only tensor, or one for each."""
        value = node.meta["val"]
        return layout(value) if isinstance(value, torch.Tensor) else [
            layout(v) if isinstance(v, torch.Tensor) else () for v in value]

    def has_symbol(self, value: Any) -> bool:
        """Whether an argument is a size that holds the symbol."""
        return isinstance(value, Node) and is_size(value) and self.symbol in expr(value.meta["val"]).free_symbols

    def broadcast(self, nodes: Sequence[Node]) -> Layout:
        """Of tensors combined place by place."""
        merged: list[Padding | None] = [None] * max(node.meta["val"].dim() for node in nodes)
        sizes: list[sympy.Expr] = [sympy.Integer(1)] * len(merged)
        for node in nodes:
            offset = len(merged) - node.meta["val"].dim()
            for dim, (size, padding) in enumerate(zip(node.meta["val"].shape, self.layout(node), strict=True), offset):
                if expr(size) == 1:
                    continue
                if sizes[dim] != 1 and (padding != merged[dim]):
                    self.refuse(f"dimensions padded as {merged[dim]} and as {padding}")
                merged[dim], sizes[dim] = padding, expr(size)
        return tuple(merged)

    # What rules add to the graph, before the node that is being treated.

    def add(self, op: Any, *args: Any, layout: Layout, **kwargs: Any) -> Node:
        """A call whose result is valid where ``layout`` says."""
        with self.graph.inserting_before(self._node):
            node = self.graph.call_function(op, args, kwargs)
        values = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        mode = self._fake_mode()
        with mode, mode.shape_env.suppress_guards():
            node.meta["val"] = op(*cast(Any, values)[0], **cast(Any, values)[1])
        self._layouts[node] = layout
        return node

    def size(self, size: Any) -> Any:
        """A size of the padded graph, as an argument."""
        if expr(size).is_Integer:
            return int(size)
        with self.graph.inserting_before(self._node):
            node = self.graph.call_function(operator.pos, (str(expr(size)),))
        node.meta["val"] = size if isinstance(size, torch.SymInt) else self._symbolic(size)
        return node

    def number(self, size: sympy.Expr) -> Node:
        """A true size, or an expression of true sizes: a 0-dim tensor of 32-bit integers on the host."""
        if size not in self._number_nodes:
            last = self.graph.find_nodes(op="placeholder")[-1]
            with self.graph.inserting_after(last):
                node = self.graph.placeholder(f"true_{self.symbol}_{len(self.numbers)}")
            with self._fake_mode():
                node.meta["val"] = torch.empty((), dtype=torch.int32, device="cpu")
            self._layouts[node] = ()
            self._number_nodes[size] = node
            self.numbers.append(size)
        return self._number_nodes[size]

    def masked(self, node: Node, dim: int, fill: float) -> Node:
        """A tensor with ``fill`` in the padding of a dimension; itself if there is none."""
        value, layout = node.meta["val"], self.layout(node)
        dim %= max(value.dim(), 1)
        padding = layout[dim] if layout else None
        if padding is None:
            return node
        where = self.is_padding(value.shape[dim], padding, value.device)
        where = self.add(aten.view.default, where, [self.size(value.shape[dim]), *[1] * (value.dim() - dim - 1)],
                         layout=(padding, *[None] * (value.dim() - dim - 1)))
        return self.add(aten.masked_fill.Scalar, node, where, fill, layout=layout)

    def is_padding(self, size: Any, padding: Padding, device: torch.device) -> Node:
        """For each place of a dimension, whether it is padding."""
        layout = (padding,)
        place = self.add(aten.arange.default, self.size(size), dtype=torch.int32, device=device, layout=layout)
        if padding.inner != 1:
            place = self.add(aten.floor_divide.default, place, self.size(padding.inner), layout=layout)
        if padding.outer != 1:
            place = self.add(aten.remainder.Scalar, place, self.size(padding.extent), layout=layout)
        return self.add(aten.ge.Tensor, place, self.number(padding.extent), layout=layout)

    def _symbolic(self, size: sympy.Expr) -> Any:
        shape_env = self._fake_mode().shape_env
        return shape_env.create_symintnode(size, hint=None)

    def _fake_mode(self) -> Any:
        values = (node.meta["val"] for node in self.source.find_nodes(op="placeholder"))
        return next(v for v in values if isinstance(v, torch.Tensor)).fake_mode  # type: ignore[attr-defined]
