"""Views of arrays some of whose sizes are left open, as ``jax.export`` traces them.

Where all sizes are numbers, PyTorch is asked what a view does to strides (interpret.py). Strides that are expressions cannot be
read that way, so each view operator is written out here; one that is missing is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

Shape = tuple[Any, ...]


def apply(key: str, shapes: Sequence[Shape], base: Array, *arguments: Any, **keywords: Any) -> Any:
    """The view ``key`` of ``base``: an array, or a list of them where the operator returns one. ``shapes``: of its results.

    Raises:
        NotImplementedError: this view is not written out.
    """
    if key not in _VIEWS:
        raise NotImplementedError(f"{key} of a tensor with an open size is not supported")
    return _VIEWS[key](shapes, base, *arguments, **keywords)


def _reshape(shapes: Sequence[Shape], base: Array, *_: Any) -> Array:
    return lax.reshape(base, shapes[0])


def _same(shapes: Sequence[Shape], base: Array) -> Array:
    return base


def _expand(shapes: Sequence[Shape], base: Array, size: Any, *, implicit: bool = False) -> Array:
    return jnp.broadcast_to(base, shapes[0])


def _permute(shapes: Sequence[Shape], base: Array, dims: Sequence[int]) -> Array:
    return jnp.transpose(base, dims)


def _transpose(shapes: Sequence[Shape], base: Array, dim0: int, dim1: int) -> Array:
    return jnp.swapaxes(base, dim0, dim1) if base.ndim else base


def _t(shapes: Sequence[Shape], base: Array) -> Array:
    return jnp.transpose(base)


def _at(base: Array, dim: int, index: Any) -> Array:
    return base[(*[slice(None)] * (dim % base.ndim), index)]


def _slice(shapes: Sequence[Shape], base: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    return _at(base, dim, slice(start, None if isinstance(end, int) and end == 2**63 - 1 else end, step))


def _select(shapes: Sequence[Shape], base: Array, dim: int, index: Any) -> Array:
    return _at(base, dim, index)


def _parts(shapes: Sequence[Shape], base: Array, sizes: Any = 0, dim: int = 0) -> list[Array]:
    """Neighbours along ``dim``, as long as the results are to be."""
    parts, start = [], 0
    for shape in shapes:
        end = start + shape[dim % base.ndim]
        parts.append(_at(base, dim, slice(start, end)))
        start = end
    return parts


def _unbind(shapes: Sequence[Shape], base: Array, dim: int = 0) -> list[Array]:
    return [_at(base, dim, index) for index in range(len(shapes))]


_VIEWS: dict[str, Callable[..., Any]] = {
    "aten::alias": _same,
    "aten::detach": _same,
    "aten::expand": _expand,
    "aten::permute": _permute,
    "aten::select.int": _select,
    "aten::slice.Tensor": _slice,
    "aten::split.Tensor": _parts,
    "aten::split_with_sizes": _parts,
    "aten::squeeze": _reshape,
    "aten::squeeze.dim": _reshape,
    "aten::squeeze.dims": _reshape,
    "aten::t": _t,
    "aten::transpose.int": _transpose,
    "aten::unbind.int": _unbind,
    "aten::unsqueeze": _reshape,
    "aten::view": _reshape,
}
