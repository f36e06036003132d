"""How a strided view lies in an array: the arithmetic behind ``views.py``, without arrays and without JAX.

A view is a list of (size, stride) pairs and an offset into a flat run of elements. The array that holds this run has
a shape of its own. The plan says how to get from the one to the other with reshapes and static windows only:

1. Dimensions of size 1 and of stride 0 are left out; what remains is sorted by stride, largest first ("memory
   order"). If the reach of all smaller strides stays below each stride, no two indices meet ("regular"). All views
   that PyTorch's own operators make are regular, except ``unfold`` with a step below its size and ``as_strided``.
2. Each dimension of the view goes to the dimension of the array whose row-major stride divides its stride. Where the
   view crosses the edge of an array dimension, or its stride divides badly, two neighbouring dimensions of the array
   are merged; all others keep their place, because a TPU array is tiled and flattening it is a copy.
3. Within one (merged) dimension of the array a regular list (n1, p1), (n2, p2), ... is unpacked from the outside: cut
   a window of n1 * p1 elements, call it (n1, p1), and go on inside of the p1 with the rest. A window may have to end
   behind the end of the dimension (a diagonal's last row): then it is padded with elements that nobody reads.
4. A view that is not regular is unrolled over few small dimensions if that leaves regular ones ("windows"), else
   gathered.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LANES = 128
"""Minor dimension of a TPU tile: a dimension of at least this size may become the minor one without wasting memory."""

MAX_UNROLLED = 64
"""Slices that one overlapping view may become before a gather is cheaper to compile and to run."""

Dim = tuple[int, int]  # size, stride
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One window: reshape to ``shape``, append ``pad``, take ``count`` from ``start`` by ``stride``, per dimension."""

    shape: Shape
    start: Shape
    count: Shape
    stride: Shape
    pad: Shape

    @property
    def is_whole(self) -> bool:
        """Whether the window is all of its input, unpadded."""
        return self.count == self.shape and not any(self.start) and not any(self.pad)


@dataclass(frozen=True)
class Plan:
    """A way from an array to a view.

    Attributes:
        steps: windows, one after the other.
        memory: sizes after the last window, in memory order.
        order: the view's dimension at each place of ``memory``; its inverse is the transposition to do.
        splits: whether dimensions of the array are merged or factored.
    """

    steps: tuple[Step, ...]
    memory: Shape
    order: tuple[int, ...]
    splits: bool

    @property
    def is_whole(self) -> bool:
        """Whether the view holds every element of the array exactly once."""
        return not self.steps

    @property
    def is_permuted(self) -> bool:
        """Whether the view's dimensions are not in memory order."""
        return self.order != tuple(range(len(self.order)))


def reach(dims: Sequence[Dim]) -> int:
    """Distance from the first to the last element of a view."""
    return sum((n - 1) * stride for n, stride in dims)


def is_regular(dims: Sequence[Dim]) -> bool:
    """Whether the dimensions nest like digits of a number, so that no two indices name one element."""
    ordered = sorted(dims, key=lambda dim: -dim[1])
    return all(reach(ordered[k + 1:]) < ordered[k][1] for k in range(len(ordered)))


@functools.lru_cache(maxsize=16384)
def plan_view(shape: Shape, dims: tuple[Dim, ...], offset: int) -> Plan:
    """Plan a regular view, whose dimensions all have a size above 1 and a stride above 0, of an array of ``shape``.

    Raises:
        ValueError: the view reaches behind the end of the array.
    """
    num_elements = math.prod(shape)
    if offset < 0 or offset + reach(dims) >= num_elements:
        raise ValueError(
            f"view: expected at most {num_elements} elements, got dims {dims} at offset {offset}, "
            f"which reach element {offset + reach(dims)}")
    order = tuple(sorted(range(len(dims)), key=lambda k: -dims[k][1]))
    ordered = [dims[k] for k in order]
    groups = _match(tuple(n for n in shape if n != 1), ordered, offset)
    stages = [list(_unpack(*group)) for group in groups]
    steps = []
    for depth in range(max(map(len, stages), default=0)):
        parts = [stage[depth] if depth < len(stage) else _all_of(stage[-1]) for stage in stages]
        step = Step(*(tuple(itertools.chain(*columns)) for columns in zip(*parts, strict=True)))
        if not step.is_whole:
            steps.append(step)
    splits = any(len(part[0]) > 1 for stage in stages for part in stage)
    return Plan(tuple(steps), tuple(n for n, _ in ordered), order, splits)


def _match(shape: Shape, dims: list[Dim], offset: int) -> list[tuple[Shape, int, list[Dim]]]:
    """Merge as few neighbours of ``shape`` as needed for each dimension of the view to lie within one of them.

    Returns, for each merged dimension: the sizes merged, the start in it, and the view's dimensions in it with their
    strides.
    """
    groups: list[Shape] = [(n,) for n in shape]
    while True:
        sizes = [math.prod(group) for group in groups]
        strides = [math.prod(sizes[j + 1:]) for j in range(len(sizes))]
        starts = [offset // stride % size for size, stride in zip(sizes, strides, strict=True)]
        inside: list[list[Dim]] = [[] for _ in groups]
        merge = None
        for n, stride in dims:
            j = next(j for j, unit in enumerate(strides) if unit <= stride)
            if stride % strides[j]:
                merge = j + 1  # exists: the last unit is 1, which divides everything
                break
            inside[j].append((n, stride // strides[j]))
        else:
            spills = (j for j in reversed(range(len(sizes))) if starts[j] + reach(inside[j]) >= sizes[j])
            merge = next(spills, None)  # never 0: the first dimension can only spill out of the array
        if merge is None:
            return list(zip(groups, starts, inside, strict=True))
        groups[merge - 1:merge + 1] = [groups[merge - 1] + groups[merge]]


Part = tuple[Shape, Shape, Shape, Shape, Shape]  # the fields of Step, for one group of dimensions


def _all_of(last: Part) -> Part:
    """The window that takes everything that the window ``last`` leaves, size-1 leftovers of a select dropped."""
    shape = tuple(n for n in last[2] if n != 1)
    zeros = (0,) * len(shape)
    return shape, zeros, shape, (1,) * len(shape), zeros


def _unpack(sizes: Shape, start: int, dims: list[Dim]) -> Iterator[Part]:
    """Windows that lead from one group of array dimensions to the view's dimensions within it, one digit at a time."""
    size = math.prod(sizes)
    if len(sizes) > 1:  # first drop whole rows, while the array still has its own shape
        row = size // sizes[0]
        first, last = start // row, (start + reach(dims)) // row
        rows = last - first + 1
        zeros = (0,) * len(sizes)
        yield sizes, (first, *zeros[1:]), (rows, *sizes[1:]), (1,) * len(sizes), zeros
        start, size = start - first * row, rows * row
    done: Shape = ()
    rest = dims
    while True:
        zeros, ones = (0,) * len(done), (1,) * len(done)
        if not rest:
            yield (*done, size), (*zeros, start), (*done, 1), (*ones, 1), (*zeros, 0)
            return
        (n, stride), rest = rest[0], rest[1:]
        cut, pad = _cut(size, start, n, stride, reach(rest))
        if not rest and (stride < LANES or pad):
            yield (*done, size), (*zeros, start), (*done, n), (*ones, stride), (*zeros, 0)
            return
        yield (*done, size), (*zeros, cut), (*done, n * stride), (*ones, 1), (*zeros, pad)
        done, size, start = (*done, n), stride, start - cut


def _cut(size: int, start: int, n: int, stride: int, inner_reach: int) -> tuple[int, int]:
    """Where to cut ``n * stride`` elements so that each run of ``stride`` holds an inner part, and the padding needed.

    Cutting nothing is best; next best is a cut at ``start``, which leaves no offset to the inner part.
    """
    low = max(0, start + inner_reach - stride + 1)
    high = min(start, size - n * stride)
    if low == 0 and n * stride == size:
        return 0, 0
    if low <= high:
        return high, 0
    return start, max(0, start + n * stride - size)


@functools.lru_cache(maxsize=4096)
def unrolled(dims: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The dimensions over which to unroll a view that is not regular: as few slices as possible; None if too many."""
    best: tuple[int, ...] | None = None
    slices = MAX_UNROLLED + 1
    small = [k for k, (n, _) in enumerate(dims) if n <= MAX_UNROLLED]
    for count in (1, 2, 3):
        for chosen in itertools.combinations(small, count):
            product = math.prod(dims[k][0] for k in chosen)
            if product < slices and is_regular([dim for k, dim in enumerate(dims) if k not in chosen]):
                best, slices = chosen, product
    return best
