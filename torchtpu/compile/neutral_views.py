"""What padding does to operators that only move entries: views, and what puts tensors together. See neutral.py."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import Node

from torchtpu.compile.neutral import argument, plain_dims, rule

if TYPE_CHECKING:
    from torchtpu.compile.padding import Layout, Padding, Rewrite

aten = torch.ops.aten


@rule("aten::view", "aten::_unsafe_view")
def _view(rewrite: Rewrite, node: Node) -> Layout:
    """Dimensions as digits of a number: a padded one may be split off, and merged with what stands before and behind it.

    ``between[k]`` is the product of all that lies between the (k-1)-th extent and the k-th one; the padded dimensions of the
    result take their share of it.
    """
    from torchtpu.compile.padding import Padding, expr

    source: Any = node.args[0]
    between: list[sympy.Expr] = [sympy.Integer(1)]
    extents = []
    for size, padding in zip(source.meta["val"].shape, rewrite.layout(source), strict=True):
        if padding is None:
            between[-1] *= expr(size)
        else:
            between[-1] *= padding.outer
            between.append(padding.inner)
            extents.append(padding.extent)
    sizes = [expr(size) for size in node.meta["val"].shape]
    if len(extents) != sum(rewrite.symbol in size.free_symbols for size in sizes):
        rewrite.refuse("several padded dimensions merged into one")
    layout: list[Padding | None] = []
    left = between[0]
    for size in sizes:
        if rewrite.symbol not in size.free_symbols:
            layout.append(None)
            left = _quotient(rewrite, left, size)
            continue
        place = sum(p is not None for p in layout)
        later = sizes[len(layout) + 1:]
        outer = left
        inner = _quotient(rewrite, size, outer * extents[place])
        layout.append(Padding(extents[place], outer, inner))
        left = _quotient(rewrite, between[place + 1], inner) if later or inner != 1 else between[place + 1]
    if left != 1:
        rewrite.refuse("a padded dimension that is split")
    return tuple(layout)


def _quotient(rewrite: Rewrite, size: sympy.Expr, by: sympy.Expr) -> sympy.Expr:
    numerator, denominator = sympy.fraction(sympy.cancel(size / by))
    if denominator != 1 or not numerator.is_integer:
        rewrite.refuse("a padded dimension that is split")
    return sympy.expand(numerator)


@rule("aten::permute")
def _permute(rewrite: Rewrite, node: Node) -> Layout:
    layout = rewrite.layout(node.args[0])
    return tuple(layout[dim] for dim in argument(node, "dims"))


@rule("aten::unsqueeze")
def _unsqueeze(rewrite: Rewrite, node: Node) -> Layout:
    layout = list(rewrite.layout(node.args[0]))
    layout.insert(argument(node, "dim") % (len(layout) + 1), None)
    return tuple(layout)


@rule("aten::squeeze.dims")
def _squeeze(rewrite: Rewrite, node: Node) -> Layout:
    source: Any = node.args[0]
    layout, shape = rewrite.layout(source), source.meta["val"].shape
    dims = {dim % len(layout) for dim in argument(node, "dim")}
    return tuple(p for dim, p in enumerate(layout) if dim not in dims or not _is_one(shape[dim]))


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


@rule("aten::expand")
def _expand(rewrite: Rewrite, node: Node) -> Layout:
    """Copies are valid everywhere."""
    source: Any = node.args[0]
    layout, shape, target = rewrite.layout(source), source.meta["val"].shape, node.meta["val"].shape
    new = len(target) - len(layout)
    return tuple(
        rewrite.padding(size) if dim < new or (_is_one(shape[dim - new]) and not _is_one(size)) else layout[dim - new]
        for dim, size in enumerate(target))


@rule("aten::slice.Tensor")
def _slice(rewrite: Rewrite, node: Node) -> Layout:
    """From a fixed place on: what is left of the valid entries is a beginning again."""
    from torchtpu.compile.padding import expr

    source: Any = node.args[0]
    layout = list(rewrite.layout(source))
    dim = argument(node, "dim") % len(layout)
    padding = layout[dim]
    if padding is None:
        return tuple(layout)
    size, left = expr(source.meta["val"].shape[dim]), expr(node.meta["val"].shape[dim])
    start, end = argument(node, "start") or 0, _end(argument(node, "end"), size)
    if start == 0 and left == size:
        return tuple(layout)
    if not padding.is_prefix or isinstance(start, Node) or start < 0 or argument(node, "step") != 1:
        rewrite.refuse("a slice that starts at the end of a padded dimension, has a step, or is of a merged dimension")
    # Where the end is clamped for the sizes that were seen, it may not be for larger ones.
    if end - start != left if rewrite.symbol in left.free_symbols else rewrite.symbol in end.free_symbols:
        rewrite.refuse("a slice that ends where a size decides")
    layout[dim] = rewrite.padding(node.meta["val"].shape[dim])
    return tuple(layout)


def _end(end: Any, size: sympy.Expr) -> sympy.Expr:
    from torchtpu.compile.padding import expr

    if isinstance(end, Node):
        return expr(end.meta["val"])
    return size if end is None or end == sys.maxsize else size + end if end < 0 else sympy.Integer(end)


@rule("aten::select.int")
def _select(rewrite: Rewrite, node: Node) -> Layout:
    """Along a padded dimension, places counted from the end follow from the true size: a look-up."""
    source, dim, index = node.args
    layout = list(rewrite.layout(source))
    dim %= len(layout)  # type: ignore[operator, assignment]
    padding = layout.pop(dim)  # type: ignore[arg-type]
    if padding is None:
        return tuple(layout)
    if not padding.is_prefix or isinstance(index, Node):
        rewrite.refuse("an entry whose place is a size, or in a merged dimension")
    if index < 0:  # type: ignore[operator]
        place = rewrite.add(aten.view.default, rewrite.number(padding.extent + index), [1], layout=(None,))
        place = rewrite.add(aten._to_copy.default, place, device=source.meta["val"].device, layout=(None,))  # type: ignore[union-attr]
        before = (*layout[:dim], None, *layout[dim:])  # type: ignore[misc]
        node.args = (rewrite.add(aten.index_select.default, source, dim, place, layout=before), dim, 0)
    return tuple(layout)


@rule("aten::split_with_sizes")
def _split(rewrite: Rewrite, node: Node) -> list[Layout]:
    layout = rewrite.layout(node.args[0])
    plain_dims(rewrite, layout, [argument(node, "dim")])
    return rewrite.same(node, lambda _: layout)  # type: ignore[return-value]


@rule("aten::cat")
def _cat(rewrite: Rewrite, node: Node) -> Layout:
    """Along a padded dimension, only the last tensor may be padded, or its padding would stand in the middle."""
    tensors: Any = node.args[0]
    dim = argument(node, "dim") % node.meta["val"].dim()
    layouts = [rewrite.layout(tensor) for tensor in tensors]
    if len({len(layout) for layout in layouts}) > 1:
        rewrite.refuse("tensors of several ranks")
    *before, last = [layout[dim] for layout in layouts]
    if any(before) or (last is not None and not last.is_prefix):
        rewrite.refuse("a tensor behind a padded one")
    others = {(*layout[:dim], *layout[dim + 1:]) for layout in layouts}
    if len(others) > 1:
        rewrite.refuse("tensors that are padded in several ways")
    return (*layouts[0][:dim], rewrite.padding(node.meta["val"].shape[dim]), *layouts[0][dim + 1:])


@rule("aten::stack")
def _stack(rewrite: Rewrite, node: Node) -> Layout:
    tensors: Any = node.args[0]
    layouts = {rewrite.layout(tensor) for tensor in tensors}
    if len(layouts) > 1:
        rewrite.refuse("tensors that are padded in several ways")
    (layout,) = layouts
    dim = argument(node, "dim") % node.meta["val"].dim()
    return (*layout[:dim], None, *layout[dim:])
