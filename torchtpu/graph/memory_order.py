"""In which order the dims of a tensor lie in memory."""

from __future__ import annotations

Sizes = tuple[int, ...]


def row_major(sizes: Sizes) -> Sizes:
    """The strides of a tensor that lies in memory row by row."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_row_major(sizes: Sizes, strides: Sizes) -> bool:
    """Whether it lies so; strides of dims of one place do not matter."""
    dims = zip(sizes, strides, row_major(sizes), strict=True)
    return 0 in sizes or all(size == 1 or stride == expected for size, stride, expected in dims)


def memory_order(sizes: Sizes, strides: Sizes) -> Sizes | None:
    """Dims from the outermost to the innermost in memory, if they fill it without gaps or overlaps."""
    if 0 in sizes:
        return tuple(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d], d) if sizes[d] > 1 else (-strides[d], 0, d))
    large = [d for d in order if sizes[d] > 1]
    expected = 1
    for d in reversed(large):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    if large == sorted(large):
        return tuple(range(len(sizes)))
    return tuple([*large, *(d for d in range(len(sizes)) if sizes[d] <= 1)])
