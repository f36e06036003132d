"""Which devices there are, and which one is current."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchtpu import _C, flags
from torchtpu.errors import DeviceIndexError


@dataclass(frozen=True)
class DeviceProperties:
    """What is known about a device. ``total_memory`` is in bytes."""

    name: str
    platform: str
    total_memory: int
    num_cores: int


def _index(device: Any) -> int:
    """The index that a device, an integer, a string or None (current) names.

    Raises:
        DeviceIndexError: it does not exist, or belongs to a device of another type.
    """
    if device is None:
        return current_device()
    if not isinstance(device, int):
        device = torch.device(device)
        if device.type != "tpu":
            raise DeviceIndexError(f"expected a tpu device, got {device}. Pass an index or torch.device('tpu').")
        device = current_device() if device.index is None else device.index
    _check(device)
    return device


def _check(index: int) -> None:
    _C.check_device(index)


def _start(index: int) -> Any:
    from torchtpu.device.backing import bridge

    bridge().start(index, _C.in_bad_fork())
    return bridge().devices[index]


def is_available() -> bool:
    """True for real chips, and once emulation was asked for (``TORCHTPU_PLATFORM``, or by naming the device).

    Raises:
        InvalidFlagError: it is not, and a ``TORCHTPU_*`` variable is unknown or malformed: a program that goes on without the
            device would never hear of ``TORCHTPU_PLATFROM=cpu``.
    """
    if not _C.available():
        flags.check_environment()
    return _C.available()


def is_initialized() -> bool:
    """Always True: JAX starts by itself at the first use, and libraries that ask must not try to start it."""
    return True


def init() -> None:
    """Start JAX now instead of at the first use."""
    _start(0)


def device_count() -> int:
    """Devices of this process; 0 while none is available."""
    if _C.started():
        return _C.started()
    return _C.device_count() if is_available() else 0


def current_device() -> int:
    """Index of the current device of this thread."""
    if torch.compiler.is_dynamo_compiling():
        return torch.accelerator.current_device_index()  # of which Dynamo knows that it may change
    return _C.current_device()


def set_device(device: Any) -> None:
    """Make a device current.

    Raises:
        DeviceIndexError: it does not exist.
    """
    index = _index(device)
    if index >= 0:
        _C.set_device(index)


def synchronize(device: Any = None) -> None:
    """Run everything recorded on the device, and wait until it has finished."""
    torch.accelerator.synchronize(_index(device))


def get_device_name(device: Any = None) -> str:
    """The chip's name as XLA tells it, such as ``TPU v5 lite``; ``cpu`` when emulated."""
    return str(_start(_index(device)).device_kind)


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """Facts about the chip: its platform and its name. (CUDA's pair of numbers has no counterpart.)"""
    chip = _start(_index(device))
    return {"platform": chip.platform, "name": str(chip.device_kind)}


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, platform, bytes of memory, and cores of a device."""
    from torchtpu.runtime import memory

    chip = _start(_index(device))
    return DeviceProperties(
        str(chip.device_kind), chip.platform, memory.info(chip)[1], int(getattr(chip, "num_cores", None) or 1))


class device:  # the name is PyTorch's
    """Context manager that makes a device current."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)
        self.previous = -1

    def __enter__(self) -> None:
        self.previous = current_device()
        if self.idx >= 0 and self.idx != self.previous:
            _C.set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        if current_device() != self.previous:
            _C.set_device(self.previous)


class device_of(device):  # the name is PyTorch's
    """Context manager that makes the device of a tensor current; does nothing for tensors elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device.index if tensor.device.type == "tpu" else -1)


# What these say stays true while a process runs: Dynamo, which cannot look into C++, may take it for a constant.
for _function in (is_available, is_initialized, device_count, get_device_name, _check):
    _function._dynamo_marked_constant = True  # type: ignore[attr-defined]
