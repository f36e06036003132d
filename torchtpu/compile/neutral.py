"""What padding does to operators: for each one a rule that says where its results are valid, or refuses.

A rule gets the walk over the graph and the node, whose arguments it may replace by masked ones. Layouts are those of padding.py. An
operator without a rule refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import Node

from torchtpu.graph.overloads import key_of

if TYPE_CHECKING:
    from torchtpu.compile.padding import Layout, Rewrite

Rule = Callable[["Rewrite", Node], "Layout | list[Layout]"]
_RULES: dict[str, Rule] = {}
_NUMBER_TAKERS = {"aten::mul.Tensor", "aten::div.Tensor", "aten::add.Tensor", "aten::sub.Tensor"}
aten = torch.ops.aten


def rule_of(node: Node) -> Rule:
    """The rule of an operator; one that refuses if it has none."""
    from torchtpu.compile import neutral_views  # noqa: F401 - registers its own

    assert isinstance(node.target, torch._ops.OpOverload)
    key = key_of(node.target)
    return _RULES.get(key) or (_pointwise if torch.Tag.pointwise in node.target.tags else _unknown)


def rule(*keys: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators."""
    def register(function: Rule) -> Rule:
        for key in keys:
            assert key not in _RULES, key
            _RULES[key] = function
        return function

    return register


def _schema(node: Node) -> Any:
    return node.target._schema.arguments  # type: ignore[union-attr]


def argument(node: Node, name: str) -> Any:
    """An argument of a call by its name in the schema, given or default."""
    schema = _schema(node)
    place, declared = next((i, a) for i, a in enumerate(schema) if a.name == name)
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, declared.default_value)


def replace(node: Node, name: str, value: Any) -> None:
    """Give a call another argument."""
    schema = _schema(node)
    place = next(i for i, a in enumerate(schema) if a.name == name)
    if place < len(node.args):
        node.args = (*node.args[:place], value, *node.args[place + 1:])
    elif schema[place].kwarg_only:
        node.kwargs = {**node.kwargs, name: value}
    else:
        defaults = [schema[i].default_value for i in range(len(node.args), place)]
        node.args = (*node.args, *defaults, value)


def _unknown(rewrite: Rewrite, node: Node) -> Layout:
    rewrite.refuse("one of which it is not known what padding does to it")


# Place by place.


@rule("aten::clone", "aten::alias", "aten::_to_copy", "aten::masked_fill.Tensor", "aten::hardswish")
def _pointwise(rewrite: Rewrite, node: Node) -> Layout | list[Layout]:
    """A size used as a number must be the true one."""
    for place, value in enumerate(node.args):
        if rewrite.has_symbol(value):
            if key_of(node.target) not in _NUMBER_TAKERS:  # type: ignore[arg-type]
                rewrite.refuse("a size used as a number")
            number = rewrite.number(_expr(value.meta["val"]))  # type: ignore[union-attr]
            node.args = (*node.args[:place], number, *node.args[place + 1:])
    if any(map(rewrite.has_symbol, node.kwargs.values())):
        rewrite.refuse("a size used as a number")
    layout = rewrite.broadcast([n for n in node.all_input_nodes if isinstance(n.meta["val"], torch.Tensor)])
    return rewrite.same(node, lambda _: layout)


def _expr(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


@rule("aten::full", "aten::zeros", "aten::ones", "aten::full_like", "aten::zeros_like", "aten::ones_like", "aten::new_zeros",
      "aten::new_ones", "aten::new_full", "aten::arange")
def _factory(rewrite: Rewrite, node: Node) -> Layout:
    """Constants, and places counted from 0: the beginning is what it would be with the true size."""
    if any(a.name == "fill_value" and rewrite.has_symbol(argument(node, a.name)) for a in _schema(node)):
        rewrite.refuse("a size used as a number")
    if "like" in str(node.target):
        return rewrite.layout(node.args[0])
    return rewrite.fresh(node)  # type: ignore[return-value]


@rule("aten::arange.start", "aten::arange.start_step")
def _arange(rewrite: Rewrite, node: Node) -> Layout:
    step = argument(node, "step") if "step" in str(node.target) else 1
    if rewrite.has_symbol(argument(node, "start")) or rewrite.has_symbol(step) or (isinstance(step, int | float) and step < 0):
        rewrite.refuse("a count that starts at a size")
    return rewrite.fresh(node)  # type: ignore[return-value]


@rule("aten::tril", "aten::triu")
def _triangle(rewrite: Rewrite, node: Node) -> Layout:
    layout = rewrite.layout(node.args[0])
    if any(p is not None and not p.is_prefix for p in layout[-2:]) or rewrite.has_symbol(argument(node, "diagonal")):
        rewrite.refuse("a triangle of merged dimensions")
    return layout


# Products: what is contracted is filled with zeros, on both sides, because what lies there may be NaN.


@rule("aten::mm", "aten::bmm")
def _product(rewrite: Rewrite, node: Node) -> Layout:
    return _contract(rewrite, node, ("self", "mat2"))


@rule("aten::addmm", "aten::baddbmm")
def _product_and_sum(rewrite: Rewrite, node: Node) -> Layout:
    batched = "baddbmm" in str(node.target)
    layout = _contract(rewrite, node, ("batch1", "batch2") if batched else ("mat1", "mat2"))
    _check_fits(rewrite, node.args[0], layout)
    return layout


def _check_fits(rewrite: Rewrite, added: Any, wanted: Layout) -> None:
    """Refuse a tensor that is not padded as what it is broadcast to and added to."""
    shape = added.meta["val"].shape
    for have, size, want in zip(reversed(rewrite.layout(added)), reversed(shape), reversed(wanted), strict=False):
        if have != want and not (have is None and isinstance(size, int) and size == 1):
            rewrite.refuse(f"dimensions padded as {want} and as {have}")


def _contract(rewrite: Rewrite, node: Node, names: tuple[str, str]) -> Layout:
    left, right = (argument(node, name) for name in names)
    before, after = rewrite.layout(left), rewrite.layout(right)
    if before[-1] != after[-2] or before[:-2] != after[:-2]:
        rewrite.refuse(f"factors padded as {before} and as {after}")
    replace(node, names[0], rewrite.masked(left, -1, 0))
    replace(node, names[1], rewrite.masked(right, -2, 0))
    return (*before[:-1], after[-1])


@rule("aten::convolution")
def _convolution(rewrite: Rewrite, node: Node) -> Layout:
    """Any number of samples; along space, zeros stand behind the end of a sample as they do with its true size."""
    data, weight, bias = node.args[:3]
    layout = rewrite.layout(data)
    if any(rewrite.layout(weight)) or (bias is not None and any(rewrite.layout(bias))) or layout[1] is not None:
        rewrite.refuse("padded channels")
    space = [dim for dim, padding in enumerate(layout) if dim > 1 and padding is not None]
    if space and (argument(node, "transposed") or not all(layout[dim].is_prefix for dim in space)):  # type: ignore[union-attr]
        rewrite.refuse("padding along space")
    for dim in space:
        data = rewrite.masked(data, dim, 0)  # type: ignore[arg-type]
    replace(node, "input", data)
    return (layout[0], None, *map(rewrite.padding, node.meta["val"].shape[2:]))


@rule("aten::_scaled_dot_product_fused_attention_overrideable")
def _attention(rewrite: Rewrite, node: Node) -> list[Layout]:
    """Padded keys get a bias of minus infinity, but where causal queries never see them; keys and values become zero there."""
    query, key, value = node.args[:3]
    bias = argument(node, "attn_bias")
    q, k, v = map(rewrite.layout, (query, key, value))
    if len({q[:1], k[:1], v[:1]}) > 1 or k[-2] != v[-2] or any((q[-3], k[-3], v[-3], q[-1], k[-1], v[-1])):
        rewrite.refuse("heads or features that are padded, or batches that are padded in several ways")
    if any(p is not None and not p.is_prefix for p in (q[-2], k[-2])):
        rewrite.refuse("queries or keys in merged dimensions")
    replace(node, "value", rewrite.masked(value, -2, 0))  # type: ignore[arg-type]
    hidden = argument(node, "is_causal") and q[-2] == k[-2]
    if bias is not None:
        _check_fits(rewrite, bias, (q[0], None, q[-2], k[-2]))
    if k[-2] is not None and not hidden:
        replace(node, "key", rewrite.masked(key, -2, 0))  # type: ignore[arg-type]
        replace(node, "attn_bias", _bias_of_padding(rewrite, key, bias))
    return rewrite.same(node, lambda t: {4: (*q[:-1], v[-1]), 3: q[:-1]}.get(t.dim(), (None,) * t.dim()))  # type: ignore[return-value]


def _bias_of_padding(rewrite: Rewrite, key: Any, bias: Any) -> Node:
    """Minus infinity at padded keys, added to the bias there is."""
    value, padding = key.meta["val"], rewrite.layout(key)[-2]
    assert padding is not None
    zeros = rewrite.add(
        aten.full.default, [rewrite.size(value.shape[-2])], 0.0, dtype=value.dtype, device=value.device, layout=(padding,))
    hidden = rewrite.masked(zeros, 0, -math.inf)
    if bias is None:
        return rewrite.add(aten.view.default, hidden, [1, 1, 1, rewrite.size(value.shape[-2])], layout=(None, None, None, padding))
    clean = rewrite.masked(bias, -1, 0)
    return rewrite.add(aten.add.Tensor, clean, hidden, layout=rewrite.broadcast([clean, hidden]))


# Look-ups.


@rule("aten::embedding")
def _embedding(rewrite: Rewrite, node: Node) -> Layout:
    """What is looked up for padding is read from within the table: indices are clamped."""
    table, indices = node.args[:2]
    if any(rewrite.layout(table)):
        rewrite.refuse("a padded table")
    return (*rewrite.layout(indices), None)


@rule("aten::index_select")
def _index_select(rewrite: Rewrite, node: Node) -> Layout:
    source, dim, index = node.args
    layout = list(rewrite.layout(source))
    dim %= len(layout)  # type: ignore[operator, assignment]
    if layout[dim] is not None:  # type: ignore[index]
        rewrite.refuse("a look-up along a padded dimension")
    (layout[dim],) = rewrite.layout(index)  # type: ignore[index]
    return tuple(layout)


@rule("aten::gather")
def _gather(rewrite: Rewrite, node: Node) -> Layout:
    source, dim, index = node.args[:3]
    layout, wanted = rewrite.layout(source), rewrite.layout(index)
    dim %= len(layout)  # type: ignore[operator, assignment]
    if layout[dim] is not None:  # type: ignore[index]
        rewrite.refuse("a look-up along a padded dimension")
    if any(ours != theirs for place, (ours, theirs) in enumerate(zip(layout, wanted, strict=True)) if place != dim):
        rewrite.refuse("indices that are padded in another way")
    return wanted


# Norms, and what works along dimensions without padding.


def plain_dims(rewrite: Rewrite, layout: Layout, dims: Any) -> None:
    """Refuse if one of these dimensions is padded."""
    if any(layout[dim] is not None for dim in dims):
        rewrite.refuse("a dimension that is padded, along which entries are combined")


@rule("aten::native_layer_norm", "aten::_fused_rms_norm")
def _layer_norm(rewrite: Rewrite, node: Node) -> list[Layout]:
    layout, num_dims = rewrite.layout(node.args[0]), len(argument(node, "normalized_shape"))
    plain_dims(rewrite, layout, range(-num_dims, 0))
    return [layout, *[(*layout[:-num_dims], *[None] * num_dims)] * (len(node.meta["val"]) - 1)]


@rule("aten::native_group_norm")
def _group_norm(rewrite: Rewrite, node: Node) -> list[Layout]:
    layout = rewrite.layout(node.args[0])
    plain_dims(rewrite, layout, range(1, len(layout)))
    return [layout, (layout[0], None), (layout[0], None)]


@rule("aten::_native_batch_norm_legit_no_training")
def _batch_norm(rewrite: Rewrite, node: Node) -> list[Layout]:
    layout = rewrite.layout(node.args[0])
    plain_dims(rewrite, layout, [1])
    return [layout, (None,), (None,)]


@rule("aten::_softmax", "aten::_log_softmax")
def _softmax(rewrite: Rewrite, node: Node) -> Layout:
    layout = rewrite.layout(node.args[0])
    replace(node, "self", rewrite.masked(node.args[0], argument(node, "dim"), -math.inf))  # type: ignore[arg-type]
    return layout


@rule("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::cummax", "aten::cummin")
def _scan(rewrite: Rewrite, node: Node) -> Layout | list[Layout]:
    """An entry depends on those before it."""
    layout, dim = rewrite.layout(node.args[0]), argument(node, "dim")
    padding = layout[dim] if layout else None
    if padding is not None and not padding.is_prefix:
        rewrite.refuse("a running sum along merged dimensions")
    if padding is not None:  # parallel scans multiply what comes later with zero
        replace(node, "self", rewrite.masked(node.args[0], dim, 0))  # type: ignore[arg-type]
    return rewrite.same(node, lambda _: layout)


# Operators that work along some dimensions and leave the others alone: which these are.
_ALONG: dict[str, Callable[[Node], Any]] = {
    "aten::sort": lambda node: [argument(node, "dim")],
    "aten::sort.stable": lambda node: [argument(node, "dim")],
    "aten::topk": lambda node: [argument(node, "dim")],
    "aten::glu": lambda node: [argument(node, "dim")],
    "aten::flip": lambda node: argument(node, "dims"),
    "aten::roll": lambda node: argument(node, "dims") or range(_num_dims(node)),
    "aten::repeat": lambda node: [dim for dim, times in enumerate(argument(node, "repeats")) if times != 1],
    "aten::constant_pad_nd": lambda node: [-1 - k // 2 for k, width in enumerate(argument(node, "pad")) if width != 0],
    "aten::avg_pool2d": lambda node: (-2, -1),
    "aten::max_pool2d_with_indices": lambda node: (-2, -1),
}


@rule(*_ALONG)
def _along_dims(rewrite: Rewrite, node: Node) -> Layout | list[Layout]:
    layout = rewrite.layout(node.args[0])
    new_dims = node.meta["val"].dim() - len(layout) if "repeat" in str(node.target) else 0
    layout = (*[None] * new_dims, *layout)
    plain_dims(rewrite, layout, _ALONG[key_of(node.target)](node))  # type: ignore[arg-type]
    return rewrite.same(node, lambda _: layout)


def _num_dims(node: Node) -> int:
    return node.args[0].meta["val"].dim()  # type: ignore[union-attr]


# Reductions.


def _lowest(dtype: torch.dtype) -> float:
    return -math.inf if dtype.is_floating_point else 0 if dtype == torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float:
    return math.inf if dtype.is_floating_point else 1 if dtype == torch.bool else torch.iinfo(dtype).max


# What padding is filled with so that it adds nothing; None: refused along padded dimensions.
_NEUTRAL: dict[str, Callable[[torch.dtype], float] | None] = {
    "aten::sum": lambda _: 0, "aten::sum.dim_IntList": lambda _: 0, "aten::prod.dim_int": lambda _: 1, "aten::prod": lambda _: 1,
    "aten::amax": _lowest, "aten::amin": _highest, "aten::max": _lowest, "aten::min": _highest,
    "aten::max.dim": _lowest, "aten::min.dim": _highest, "aten::logsumexp": _lowest,
    "aten::any": lambda _: 0, "aten::any.dim": lambda _: 0, "aten::any.dims": lambda _: 0,
    "aten::all": lambda _: 1, "aten::all.dim": lambda _: 1, "aten::all.dims": lambda _: 1,
    "aten::argmax": None, "aten::argmin": None, "aten::median.dim": None, "aten::var.correction": None,
    "aten::std.correction": None, "aten::var_mean.correction": None, "aten::linalg_vector_norm": None,
}


_PLACES = {"aten::max.dim", "aten::min.dim"}  # they return these too, and only those of a beginning are what they would be


@rule(*_NEUTRAL)
def _reduction(rewrite: Rewrite, node: Node) -> Layout | list[Layout]:
    """Over padded dimensions, of a tensor filled with the neutral element."""
    source: Any = node.args[0]
    layout, dims, key = rewrite.layout(source), _reduced_dims(node), key_of(node.target)  # type: ignore[arg-type]
    fill = _NEUTRAL[key]
    if fill is None or (key in _PLACES and not all(p is None or p.is_prefix for p in layout)):
        plain_dims(rewrite, layout, dims)
    else:
        for dim in dims:
            source = rewrite.masked(source, dim, fill(source.meta["val"].dtype))
        node.args = (source, *node.args[1:])
    return rewrite.same(node, lambda _: _kept(node, layout, dims))


@rule("aten::mean", "aten::mean.dim")
def _mean(rewrite: Rewrite, node: Node) -> Layout:
    """Over padded dimensions, a sum divided by the true count; 16-bit floats are summed in 32 bits, as by ``mean`` itself."""
    source: Any = node.args[0]
    layout, dims, dtype = rewrite.layout(source), _reduced_dims(node), node.meta["val"].dtype
    kept = _kept(node, layout, dims)
    if all(layout[dim] is None for dim in dims):
        return kept
    count = rewrite.number(sympy.Mul(*(_expr(source.meta["val"].shape[dim]) for dim in dims)))
    keepdim = bool(argument(node, "keepdim")) if "dim" in str(node.target) else False
    for dim in dims:
        source = rewrite.masked(source, dim, 0)
    wide = torch.promote_types(dtype, torch.float32)
    total = rewrite.add(aten.sum.dim_IntList, source, dims, keepdim, dtype=wide, layout=kept)
    mean = rewrite.add(aten.div.Tensor, total, count, layout=kept)
    node.target, node.args, node.kwargs = aten._to_copy.default, (mean,), {"dtype": dtype}
    return kept


def _reduced_dims(node: Node) -> list[int]:
    num_dims, names = _num_dims(node), {a.name for a in _schema(node)}
    given: Any = argument(node, "dim") if "dim" in names else None
    if given is None or given == []:
        return list(range(num_dims))
    return [dim % max(num_dims, 1) for dim in (given if isinstance(given, list | tuple) else [given])]


def _kept(node: Node, layout: Layout, dims: list[int]) -> Layout:
    """The layout that a reduction leaves."""
    names = {a.name for a in _schema(node)}
    keepdim = "keepdim" in names and argument(node, "keepdim")
    return tuple(None if dim in dims else p for dim, p in enumerate(layout) if keepdim or dim not in dims)
