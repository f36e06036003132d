"""What Dynamo asks a device: which is current, its streams, its properties."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch


def interface(module: ModuleType) -> type:
    """A class for the device, made when Dynamo's module of them (``torch._dynamo.device_interface``) is there."""
    tpu: Any = torch.tpu  # type: ignore[attr-defined]

    class TpuInterface(module.DeviceInterface):  # type: ignore[name-defined, misc]
        """``torch.tpu``, as Dynamo asks for it."""

        device = tpu.device
        Event = tpu.Event
        Stream = tpu.Stream
        current_device = staticmethod(tpu.current_device)
        set_device = staticmethod(tpu.set_device)
        device_count = staticmethod(tpu.device_count)
        is_available = staticmethod(tpu.is_available)
        stream = staticmethod(tpu.stream)
        current_stream = staticmethod(tpu.current_stream)
        set_stream = staticmethod(tpu.set_stream)
        synchronize = staticmethod(tpu.synchronize)
        get_device_properties = staticmethod(tpu.get_device_properties)
        memory_allocated = staticmethod(tpu.memory_allocated)
        is_bf16_supported = staticmethod(tpu.is_bf16_supported)

        class Worker:
            """Asked by compile workers, which have no device: our backend has none."""

            set_device = staticmethod(tpu.set_device)
            current_device = staticmethod(tpu.current_device)
            get_device_properties = staticmethod(tpu.get_device_properties)

        @staticmethod
        def exchange_device(index: int) -> int:
            previous: int = tpu.current_device()
            tpu.set_device(index)
            return previous

        maybe_exchange_device = exchange_device

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            return ""

        @staticmethod
        def is_dtype_supported(dtype: torch.dtype, including_emulation: bool = False) -> bool:
            return True

    return TpuInterface
