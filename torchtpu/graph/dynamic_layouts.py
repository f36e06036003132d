"""How the CPU lays out results whose shape depends on values: their strides, once the shape is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchtpu.graph.arguments import TensorArgument
from torchtpu.graph.inference import infer
from torchtpu.graph.memory_order import is_row_major, row_major
from torchtpu.graph.overloads import overload
from torchtpu.rules.dynamic import index_shape

Sizes = tuple[int, ...]
_MASKS = (torch.bool, torch.uint8)


def strides(op: str, arguments: list[Any], place: int, sizes: Sizes) -> Sizes:
    """Of the result at ``place`` of a call with these parsed arguments."""
    layout = _LAYOUTS.get(op)
    return layout(arguments, sizes) if layout and place == 0 and 0 not in sizes else row_major(sizes)


def _in_columns(_: list[Any], sizes: Sizes) -> Sizes:
    return 1, sizes[0]


def _along(place: int) -> Callable[[list[Any], Sizes], Sizes]:
    """One slice after the other, along the dim that is the argument at ``place``."""

    def layout(arguments: list[Any], sizes: Sizes) -> Sizes:
        if arguments[place] is None:
            return row_major(sizes)
        dim = arguments[place] % len(sizes)
        outer, *inner = row_major((sizes[dim], *sizes[:dim], *sizes[dim + 1:]))
        return *inner[:dim], outer, *inner[dim:]

    return layout


def _indexed(arguments: list[Any], sizes: Sizes) -> Sizes:
    """As if a mask were the places of its elements, which is how the CPU does it."""
    self, indices = arguments
    tensors = [self, *(index for index in indices if index is not None)]
    if all(is_row_major(t.sizes, t.strides) and t.sizes for t in tensors):
        return row_major(sizes)
    like_one = index_shape(self.sizes, [None if i is None else i.sizes for i in _with_places(indices, 1)])
    count = next((size for size, one in zip(sizes, like_one, strict=True) if size != one), 1)
    return infer(overload("aten::index.Tensor"), [self, _with_places(indices, count)]).result.stride()


def _with_places(indices: list[TensorArgument | None], count: int) -> list[TensorArgument | None]:
    places = TensorArgument(0, torch.int64, (count,), (1,), 0, False, False)
    return [
        part for index in indices
        for part in ([places] * len(index.sizes) if index is not None and index.dtype in _MASKS else [index])]


_LAYOUTS: dict[str, Callable[[list[Any], Sizes], Sizes]] = {
    "aten::nonzero": _in_columns,
    "aten::unique_dim": _along(1),
    "aten::unique_dim_consecutive": _along(1),
    "aten::unique_consecutive": _along(3),
    "aten::index.Tensor": _indexed,
    "aten::_unsafe_index.Tensor": _indexed,
}
