"""The few places in PyTorch's Python code that have no hook for an external device. Each patch steps aside for other devices."""

from __future__ import annotations

import functools
from typing import Any


def apply(torch: Any, bridge: Any) -> None:
    """Apply all of them."""
    from torchtpu.device import nested

    nested.attend_by_padding(torch)
    _dlpack(torch)
    _printing()
    _sending(torch)
    hide_from_dynamo(type(bridge))


def _dlpack(torch: Any) -> None:
    """DLPack knows only "some external device"; we export the array as the platform's own device, where others can read it."""
    export, device_of = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    @functools.wraps(export)
    def __dlpack__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type != "tpu":
            return export(self, *args, **kwargs)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")  # PyTorch's own words
        array = _array(self)
        if kwargs.pop("copy", None) is not False:
            array = array.copy()  # an importer may write into what it gets; ours is shared and must never change
        return array.__dlpack__(**{k: v for k, v in kwargs.items() if k != "stream" or v is not None})

    @functools.wraps(device_of)
    def __dlpack_device__(self: Any) -> Any:
        return _array(self).__dlpack_device__() if self.device.type == "tpu" else device_of(self)

    capsule_of = torch.utils.dlpack.to_dlpack

    @functools.wraps(capsule_of)
    def to_dlpack(tensor: Any) -> Any:
        return tensor.__dlpack__() if tensor.device.type == "tpu" else capsule_of(tensor)

    torch.Tensor.__dlpack__ = __dlpack__
    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.utils.dlpack.to_dlpack = torch.to_dlpack = to_dlpack


def _array(tensor: Any) -> Any:
    import jax

    from torchtpu.device.interop import to_jax

    with jax.enable_x64(True):
        return to_jax(tensor)


def _printing() -> None:
    """Printing a tensor runs dozens of tiny operators to format it: format a copy on the CPU instead."""
    from torch import _tensor_str

    original = _tensor_str._tensor_str

    @functools.wraps(original)
    def formatted(self: Any, indent: int) -> str:
        return original(self.cpu() if self.device.type == "tpu" else self, indent)

    _tensor_str._tensor_str = formatted


def _sending(torch: Any) -> None:
    """What goes to another process through a queue or a pipe goes as a copy: a device's memory cannot be shared."""
    import pickle
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    def reduce(tensor: Any) -> Any:
        return (pickle.loads, (pickle.dumps(tensor),)) if tensor.device.type == "tpu" else reductions.reduce_tensor(tensor)

    ForkingPickler.register(torch.Tensor, reduce)
    ForkingPickler.register(torch.nn.Parameter, reduce)


def hide_from_dynamo(owner: type) -> None:
    """Dynamo looks into every Python function that is entered while it watches, also by way of C++.

    What the core calls in its bridge, and JAX below, is none of its business; nor are threads and queues.
    """
    import torch

    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in vars(owner).values():
        if hasattr(function, "__code__"):
            frames.set_code_exec_strategy(function.__code__, skip)
