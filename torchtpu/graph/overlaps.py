"""Writes that would give one element several values: the CPU refuses them, and fakes let them pass.

Source: ``assert_no_internal_overlap``, ``assert_no_partial_overlap`` and ``assert_no_overlap`` (aten/src/ATen/MemoryOverlap.cpp).
Like there, irregular strides pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchtpu.graph.arguments import TensorArgument, leaves

_CHECKED_WRITES = frozenset({"bernoulli", "cat", "copy_", "index_select", "normal_", "take", "uniform_", "where"})
# Their other arguments may not even be the very tensor that is written.
_APART = frozenset({
    "index_put_", "_index_put_impl_", "index_add_", "index_copy_", "index_fill_", "masked_scatter_", "scatter_", "scatter_add_",
    "scatter_reduce_", "put_", "cat", "gather", "index_select", "scatter", "scatter_add", "scatter_reduce", "take",
})
_ADVICE = "Please clone() the tensor before performing the operation."


def refuse(op: torch._ops.OpOverload, arguments: list[Any]) -> None:
    """Refuse what the CPU refuses.

    Raises:
        RuntimeError: two elements that are written lie in one place, or one that is written and one that is read.
    """
    name = op._schema.name.partition("::")[2]
    checked = torch.Tag.pointwise in op.tags or name.startswith("_foreach_") or name in _CHECKED_WRITES
    if not op._schema.is_mutable or not (checked or name in _APART):
        return
    for written, others in _written(op, arguments):
        if checked and _is_expanded(written):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                f"{_ADVICE}")
        if any(_meet(written, other) and (name in _APART or not _is_same(written, other, name)) for other in others):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
                f"location. {_ADVICE}")


def in_turn(op: torch._ops.OpOverload, arguments: list[Any]) -> bool:
    """Whether a list operator reads or writes for one tensor what it wrote for one before it."""
    if not op._schema.name.startswith("aten::_foreach_") or not op._schema.is_mutable:
        return False
    earlier: dict[int, list[TensorArgument]] = {}
    for written, others in _written(op, arguments):
        if any(_spans_meet(before, t) for t in (written, *others) for before in earlier.get(t.buffer, ())):
            return True
        earlier.setdefault(written.buffer, []).append(written)
    return False


def _written(op: torch._ops.OpOverload, arguments: list[Any]) -> Iterator[tuple[TensorArgument, list[TensorArgument]]]:
    """Every tensor that is written, with those that are read for it: of lists, those in the same place."""
    for index, (argument, parsed) in enumerate(zip(op._schema.arguments, arguments, strict=True)):
        if not argument.is_write:
            continue
        rest = arguments[:index] + arguments[index + 1:]
        for place, leaf in enumerate(leaves([parsed])):
            if isinstance(leaf, TensorArgument):
                pairwise = [v[place:place + 1] if isinstance(v, list) and isinstance(parsed, list) else v for v in rest]
                yield leaf, [other for other in leaves(pairwise) if isinstance(other, TensorArgument)]


def _is_expanded(t: TensorArgument) -> bool:
    return 0 not in t.sizes and any(size > 1 and stride == 0 for size, stride in zip(t.sizes, t.strides, strict=True))


def _is_dense(t: TensorArgument) -> bool:
    expected = 1
    for stride, size in sorted((s, n) for n, s in zip(t.sizes, t.strides, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _is_same(one: TensorArgument, other: TensorArgument, name: str) -> bool:
    """Whether the elements of two dense tensors in one place have the same order.

    A single element may be copied to itself under other dims: ``t[None] = t``, where PyTorch fills from a number of the CPU's.
    """
    as_number = name == "copy_" and all(size == 1 for size in (*one.sizes, *other.sizes))
    return _bounds(one) == _bounds(other) and (one.strides == other.strides or as_number)


def _spans_meet(one: TensorArgument, other: TensorArgument) -> bool:
    """Whether two tensors of one buffer, however strided, may have an element in common."""
    if 0 in one.sizes or 0 in other.sizes:
        return False
    (begin, end), (other_begin, other_end) = _bounds(one), _bounds(other)
    return begin < other_end and other_begin < end


def _meet(one: TensorArgument, other: TensorArgument) -> bool:
    return one.buffer == other.buffer and _is_dense(one) and _is_dense(other) and _spans_meet(one, other)


def _bounds(t: TensorArgument) -> tuple[int, int]:
    """The bytes from the first element to the last of a tensor that has some."""
    reach = sum((n - 1) * stride for n, stride in zip(t.sizes, t.strides, strict=True))
    return t.offset * t.dtype.itemsize, (t.offset + reach + 1) * t.dtype.itemsize
