"""One batch on its way: made tensors, padded, moved by the thread that loads, and handed over to the one that computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchtpu import _C
from torchtpu.data import padding, trees
from torchtpu.data.arrays import as_tensor, is_array


@dataclass
class _Arrived:
    """A leaf that has been moved. ``order``: the dims of the true tensor in the order in which it lies in memory."""

    value: Any
    true_shape: torch.Size | None = None  # if it was padded
    order: tuple[int, ...] | None = None  # if it is not the order of its dims
    is_ours: bool = False  # whether nobody else has the tensor

    def take(self) -> Any:
        """The value, in the thread that will compute with it.

        What is on a tpu device gets a fresh buffer over the same array: the recorder tells a model's parameters, which repeat, from
        batches, which do not, by which is older than the program, and this one has been waiting while programs came and went.
        """
        value, self.value = self.value, None
        if self.is_ours and value.device.type == "tpu":
            array, dtype, shape, index = _C.to_array(value), value.dtype, list(value.shape), value.device.index
            del value  # counted once in the statistics of memory
            value = _C.from_array(array, dtype, shape, index)
        if self.order is not None:
            inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
            value = value.permute(inverse).data  # .data: a tensor of its own, no view of another
        if self.true_shape is not None:
            padding.note_true_shape(value, self.true_shape)
        return value


class Mover:
    """Moves batches to one device."""

    def __init__(self, device: torch.device, pads: padding.Padding) -> None:
        self._device = device
        self._pads = pads

    def __call__(self, batch: Any) -> Callable[[], Any]:
        """Move a batch; the function that comes back hands it over, once.

        Raises:
            BatchShapeError: it cannot be padded as asked.
            UnsupportedDtypeError: an array has a dtype that PyTorch does not know.
        """
        leaves, build = trees.flatten(batch)
        if build is None:
            return lambda: batch
        values = [_or_tensor(leaf.value) for leaf in leaves]
        if self._pads:
            self._pads.check({leaf.path: v for leaf, v in zip(leaves, values, strict=True) if isinstance(v, torch.Tensor)})
        arrived = [self._moved(leaf.path, value) for leaf, value in zip(leaves, values, strict=True)]
        if _C.started():
            _C.flush(-1, "batch made on the device")  # by the source, in this thread: the program that uses it must not wait for it
        return lambda: build(item.take() for item in arrived)

    def _moved(self, path: str, value: Any) -> _Arrived:
        if not isinstance(value, torch.Tensor):
            return _Arrived(value.to(self._device) if trees.moves_itself(value) else value)
        sizes = self._pads.sizes(path, value)
        if value.device.type != "cpu" or value.layout != torch.strided or type(value) is not torch.Tensor or value.requires_grad:
            return _Arrived(value.to(self._device))
        arrived = _Arrived(value, order=_memory_order(value), is_ours=True)
        if arrived.order is not None:
            value = value.permute(arrived.order)
        if sizes is not None:
            arrived.true_shape = arrived.value.shape
            sizes = sizes if arrived.order is None else [sizes[dim] for dim in arrived.order]
            value = padding.padded(path, value, sizes, self._pads.fill_of(path))
        # What the source goes on to write must not reach the batch; copies to another device are made before `to` returns.
        arrived.value = value.to(self._device, copy=self._device.type == "cpu" and sizes is None)
        return arrived


def _or_tensor(value: Any) -> Any:
    """A tensor for an array that holds numbers; else the value itself."""
    tensor = as_tensor(value) if is_array(value) else None
    return value if tensor is None else tensor


def _memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The dims from the outermost in memory to the innermost, if that is another order than theirs and memory has no gaps.

    So moved, memory stays as it is (``channels_last``, a transposed matrix) and no program has to reorder it.
    """
    if tensor.is_contiguous():
        return None
    order = tuple(sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim)))
    return order if tensor.permute(order).is_contiguous() else None
