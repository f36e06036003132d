"""Values of the sizes that were left open while a graph was traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_SYMBOLIC = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


class Sizes:
    """Symbols, or whole expressions of them, and their values."""

    def __init__(self, values: Mapping[Any, int] | None = None) -> None:
        self._values = dict(values or {})

    def of(self, value: Any) -> Any:
        """A symbolic size, or a number that follows from sizes, as a number; everything else as it is."""
        kind = _SYMBOLIC.get(type(value))
        if kind is None:
            return value
        known = value.node.expr.xreplace(self._values)
        return value if getattr(known, "free_symbols", None) else kind(known)  # a plain int where a symbol was replaced

    def shape(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The shape of a fake tensor."""
        return tuple(map(self.of, tensor.shape))

    def strides(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The strides of a fake tensor."""
        return tuple(map(self.of, tensor.stride()))


def is_symbolic(value: Any) -> bool:
    """Whether a value is a number that is known only when the graph is called."""
    return type(value) in _SYMBOLIC


def shape_symbols(value: Any) -> set[Any]:
    """The symbols in shapes and strides of fake tensors, nested as they may be."""
    found: set[Any] = set()
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.update(*(n.node.expr.free_symbols for n in (*leaf.shape, *leaf.stride()) if is_symbolic(n)))
    return found


def number_symbols(value: Any) -> set[Any]:
    """The symbols of numbers, nested as they may be."""
    return set().union(*(leaf.node.expr.free_symbols for leaf in tree_leaves(value) if is_symbolic(leaf)))


def bindings(given: Sequence[Any]) -> dict[Any, tuple[int, int | None]]:
    """Where the value of each expression is found when a graph is called with what ``given`` stands for: position and dim.

    None in place of a dim: the argument itself is the number.
    """
    found: dict[Any, tuple[int, int | None]] = {}
    for position, value in enumerate(given):
        if is_symbolic(value):
            found.setdefault(value.node.expr, (position, None))
    for position, value in enumerate(given):
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if is_symbolic(size) and size.node.expr.is_Symbol:
                    found.setdefault(size.node.expr, (position, dim))
    return found


def known_symbols(given: Sequence[Any]) -> set[Any]:
    """The symbols whose values follow from the arguments that ``given`` stands for."""
    return set().union(*(expression.free_symbols for expression in bindings(given)))
