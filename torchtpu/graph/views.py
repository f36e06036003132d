"""Reading and writing strided views of an array: what PyTorch's sizes, strides and offset mean to XLA.

A storage is a flat run of bytes whose value is one array, ``base``: its row-major order is the order in memory. A
tensor is a ``View`` of it. ``read`` becomes reshapes, static slices, one transposition and one broadcast; ``write``
becomes the value itself where it covers everything, else ``dynamic_update_slice`` (or pad and select, for steps above
1). Strides that overlap, as ``unfold`` and ``as_strided`` make them, are read by a few slices or, if they would be
many, gathered; they are written by a scatter. ``view_plan`` holds the arithmetic, ``bit_views`` what a change of
dtype does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from torchtpu.graph.bit_views import cast, cast_back, cast_shape, is_elementwise
from torchtpu.graph.view_plan import Dim, Plan, Step, is_regular, plan_view, reach, unrolled

_INT32_MAX = 2**31 - 1
_IN_BOUNDS = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


@dataclass(frozen=True)
class View:
    """One tensor's window onto a storage. Strides and offset count elements of ``dtype``, which may differ from the
    storage's."""

    dtype: np.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def is_empty(self) -> bool:
        """Whether the view has no elements."""
        return 0 in self.sizes

    @property
    def kept(self) -> tuple[int, ...]:
        """Dimensions that address different elements: neither of size 1 nor of stride 0."""
        return tuple(k for k, (n, stride) in enumerate(zip(self.sizes, self.strides, strict=True)) if n > 1 and stride)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Size and stride of the dimensions kept."""
        return tuple((self.sizes[k], self.strides[k]) for k in self.kept)

    @property
    def is_expanded(self) -> bool:
        """Whether several indices name one element because of a stride of 0."""
        return any(n > 1 and not stride for n, stride in zip(self.sizes, self.strides, strict=True))


def read(base: Array, view: View) -> Array:
    """The values of a view of ``base``, with the view's sizes and dtype.

    Raises:
        ValueError: the view reaches behind the end of ``base``.
    """
    if view.is_empty:
        return jnp.zeros(view.sizes, view.dtype)
    base = cast(base, _move_dtype(np.dtype(base.dtype), view.dtype))
    return _spread(cast(_read_dims(base, view.dims, view.offset), view.dtype), view)


def write(base: Array | jax.ShapeDtypeStruct, view: View, value: Array) -> Array:
    """``base`` with the elements at a view replaced by ``value``, which has the view's sizes and dtype.

    Where indices share an element, the last one in row-major order is kept. Where ``covers`` holds, only shape and
    dtype of ``base`` are looked at.

    Raises:
        ValueError: the view reaches behind the end of ``base``.
    """
    if view.is_empty:
        return _with_values(base) if math.prod(base.shape) else jnp.zeros(base.shape, base.dtype)
    dtype = _move_dtype(np.dtype(base.dtype), view.dtype)
    shape = cast_shape(tuple(base.shape), np.dtype(base.dtype), dtype)
    value = cast(_collapse(value, view), dtype)
    if not is_regular(view.dims):
        return cast_back(_scatter(cast(_with_values(base), dtype), view.dims, view.offset, value), base)
    plan = plan_view(shape, view.dims, view.offset)
    if plan.is_permuted:
        value = lax.transpose(value, plan.order)
    if not plan.is_whole:
        value = _put(cast(_with_values(base), dtype), plan.steps, value)
    return cast_back(lax.reshape(value, shape), base)


def _with_values(base: Array | jax.ShapeDtypeStruct) -> Array:
    assert not isinstance(base, jax.ShapeDtypeStruct), "only a view that covers its base can be written without it"
    return base


def covers(base_shape: Sequence[int], view: View, base_dtype: np.dtype | None = None) -> bool:
    """Whether writing the view sets every element of the base exactly once, so that the old value is not needed.

    ``base_dtype`` is the view's if not given.
    """
    shape = cast_shape(tuple(base_shape), np.dtype(base_dtype or view.dtype), view.dtype)
    if view.is_empty or view.is_expanded:
        return 0 in shape and view.is_empty
    return is_regular(view.dims) and plan_view(shape, view.dims, view.offset).is_whole


def resize(base: Array, num_bytes: int) -> Array:
    """A flat array of ``num_bytes`` that begins with the bytes of ``base``; the rest is zero.

    It keeps the dtype of ``base`` if whole elements fill it, and is uint8 otherwise.
    """
    itemsize = np.dtype(base.dtype).itemsize
    if num_bytes % itemsize:
        base, itemsize = cast(base, np.dtype(np.uint8)), 1
    flat = lax.reshape(base, (base.size,))
    size = num_bytes // itemsize
    if size <= flat.size:
        return lax.slice(flat, (0,), (size,))
    return lax.pad(flat, jnp.zeros((), flat.dtype), [(0, size - flat.size, 0)])


def kind(base_shape: Sequence[int], base_dtype: np.dtype, view: View) -> str:
    """The way that ``read`` takes, for tests and reports; ``"bits:"`` in front if the dtype changes.

    ``empty``; ``identity``, ``reshape``, ``broadcast`` (all elements in order); ``permute`` (only a transposition);
    ``slice`` (of the base's own dimensions); ``factor`` (dimensions of the base split or merged); ``pad`` (also
    padded, such as a diagonal inside of a batch); ``windows`` (several slices); ``gather``. The last two are written
    by a scatter.
    """
    base_dtype = np.dtype(base_dtype)
    shape = cast_shape(tuple(base_shape), base_dtype, view.dtype)
    return ("" if base_dtype == view.dtype else "bits:") + _kind(shape, view)


def _kind(shape: tuple[int, ...], view: View) -> str:
    if view.is_empty:
        return "empty"
    if not is_regular(view.dims):
        return "gather" if unrolled(view.dims) is None else "windows"
    plan = plan_view(shape, view.dims, view.offset)
    if any(any(step.pad) for step in plan.steps):
        return "pad"
    if plan.is_whole and not plan.is_permuted:
        if view.is_expanded:
            return "broadcast"
        return "identity" if shape == view.sizes else "reshape"
    if plan.splits:
        return "factor"
    return "permute" if plan.is_whole else "slice"


def _move_dtype(base_dtype: np.dtype, view_dtype: np.dtype) -> np.dtype:
    """The dtype in which elements are cut and placed.

    The base's, to leave it alone, if its elements are the view's. But the view's if only that one is not a float: XLA
    on the CPU moves 16-bit floats by way of float32, which changes the bits of signalling NaNs.
    """
    keeps = is_elementwise(base_dtype, view_dtype) and (base_dtype.kind in "biu" or view_dtype.kind not in "iu")
    return base_dtype if keeps else view_dtype


# Reading.


def _read_dims(x: Array, dims: tuple[Dim, ...], offset: int) -> Array:
    if is_regular(dims):
        plan = plan_view(x.shape, dims, offset)
        for step in plan.steps:
            x = _window(x, step)
        return _to_view_order(lax.reshape(x, plan.memory), plan)
    chosen = unrolled(dims)
    if chosen is None:
        return lax.reshape(x, (x.size,)).at[_indices(dims, offset, x.size)].get(**_IN_BOUNDS)
    axis = chosen[0]
    n, stride = dims[axis]
    rest = dims[:axis] + dims[axis + 1:]
    return jnp.stack([_read_dims(x, rest, offset + k * stride) for k in range(n)], axis=axis)


def _window(x: Array, step: Step) -> Array:
    x = lax.reshape(x, step.shape)
    if any(step.pad):
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, pad, 0) for pad in step.pad])
    limit = [start + (n - 1) * stride + 1 for start, n, stride in zip(step.start, step.count, step.stride, strict=True)]
    return lax.slice(x, step.start, limit, None if set(step.stride) == {1} else step.stride)


def _to_view_order(x: Array, plan: Plan) -> Array:
    return lax.transpose(x, np.argsort(plan.order)) if plan.is_permuted else x


def _spread(x: Array, view: View) -> Array:
    """Put the dimensions of size 1 and of stride 0 back."""
    if view.is_expanded:
        return lax.broadcast_in_dim(x, view.sizes, view.kept)
    return lax.reshape(x, view.sizes)


# Writing.


def _collapse(value: Array, view: View) -> Array:
    """Drop the dimensions of size 1 and of stride 0; of the latter the last index is kept."""
    if view.is_expanded:
        start = [0 if stride else n - 1 for n, stride in zip(view.sizes, view.strides, strict=True)]
        value = lax.slice(value, start, view.sizes)
    return lax.reshape(value, tuple(n for n, _ in view.dims))


def _put(old: Array, steps: tuple[Step, ...], value: Array) -> Array:
    """The inverse of the windows ``steps``: ``old`` with the innermost window replaced."""
    step, inner = steps[0], steps[1:]
    old = lax.reshape(old, step.shape)
    new = lax.reshape(_put(_window(old, step), inner, value) if inner else value, step.count)
    if set(step.stride) == {1}:
        return _update(old, step.start, _without_padding(new, step))
    return _update_strided(old, step, new)


def _update_strided(old: Array, step: Step, new: Array) -> Array:
    """Space ``new`` out over the whole of the strided dimensions and select; only the other dimensions are cut."""
    strided = [stride > 1 for stride in step.stride]
    start = [0 if wide else k for k, wide in zip(step.start, strided, strict=True)]
    sizes = [size if wide else n for size, n, wide in zip(old.shape, step.count, strided, strict=True)]
    region = _cut_out(old, start, sizes)
    config, mask = [], None
    for axis, (first, n, stride) in enumerate(zip(step.start, step.count, step.stride, strict=True)):
        if not strided[axis]:
            config.append((0, 0, 0))
            continue
        span = (n - 1) * stride + 1
        config.append((first, sizes[axis] - first - span, stride - 1))
        at = lax.broadcasted_iota(np.int32, tuple(sizes), axis)
        hit = lax.rem(at, lax.full_like(at, stride)) == first % stride
        if first >= stride:
            hit = hit & (at >= first)
        if sizes[axis] - first - span >= stride:
            hit = hit & (at < first + span)
        mask = hit if mask is None else mask & hit
    assert mask is not None, "a dimension with a step"
    spaced = lax.pad(new, jnp.zeros((), new.dtype), config)
    return _update(old, start, lax.select(mask, spaced, region))


def _cut_out(x: Array, start: Sequence[int], sizes: Sequence[int]) -> Array:
    if tuple(sizes) == x.shape:
        return x
    return lax.slice(x, start, [k + n for k, n in zip(start, sizes, strict=True)])


def _without_padding(new: Array, step: Step) -> Array:
    if not any(step.pad):
        return new
    limit = [min(n, size - start) for n, size, start in zip(step.count, step.shape, step.start, strict=True)]
    return lax.slice(new, (0,) * new.ndim, limit)


def _update(old: Array, start: Sequence[int], new: Array) -> Array:
    if new.shape == old.shape:
        return new
    index = np.int32 if max(old.shape) <= _INT32_MAX else np.int64
    return lax.dynamic_update_slice(old, new, [index(k) for k in start])


# The last resort: overlapping and irregular strides.


def _indices(dims: tuple[Dim, ...], offset: int, size: int) -> Array:
    """Flat indices of a view, made from iotas so that the program holds no table."""
    if offset + reach(dims) >= size:
        raise ValueError(f"view: expected at most {size} elements, got dims {dims} at offset {offset}")
    index = np.int32 if size <= _INT32_MAX else np.int64
    shape = tuple(n for n, _ in dims)
    total = lax.full(shape, offset, index)
    for axis, (_, stride) in enumerate(dims):
        total = total + lax.broadcasted_iota(index, shape, axis) * index(stride)
    return total


def _scatter(x: Array, dims: tuple[Dim, ...], offset: int, value: Array) -> Array:
    """Write through indices that may share elements.

    XLA leaves open which of several writes stays, so the last one is found first: by a scatter of row numbers with
    ``max``, which does not depend on the order.
    """
    flat = lax.reshape(x, (x.size,))
    where = lax.reshape(_indices(dims, offset, x.size), (value.size,))
    number = np.int32 if value.size <= _INT32_MAX else np.int64
    last = lax.full(flat.shape, -1, number).at[where].max(lax.iota(number, value.size), **_IN_BOUNDS)
    picked = lax.reshape(value, (value.size,)).at[jnp.maximum(last, 0)].get(**_IN_BOUNDS)
    return lax.reshape(lax.select(last >= 0, picked, flat), x.shape)
