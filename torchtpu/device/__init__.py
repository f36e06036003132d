"""The ``torch.tpu`` module: what ``torch.cuda`` is for CUDA."""

from __future__ import annotations

from typing import Any

from torchtpu.device import _utils
from torchtpu.device.devices import (
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torchtpu.device.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from torchtpu.device.modes import get_eager_mode, set_eager_mode
from torchtpu.device.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torchtpu.device.streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream
from torchtpu.runtime.compile_limits import assert_no_compiles, limit_compiles

_initialized = True  # asked by activation checkpointing, which would not save our random state otherwise


def _is_in_bad_fork() -> bool:
    from torchtpu import _C

    return _C.in_bad_fork()


def _get_generator(device: Any) -> Any:
    return default_generators[device.index or 0]


def get_amp_supported_dtype() -> list[Any]:
    """Dtypes that ``torch.autocast("tpu")`` takes."""
    import torch

    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is the chip's own format."""
    return True


def attach(torch: Any, bridge: Any) -> None:
    """Make this module ``torch.tpu`` and give tensors, modules and storages their ``tpu()`` methods."""
    import sys

    from torchtpu.device import backing, patches

    backing.set_bridge(bridge)
    torch._register_device_module("tpu", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
    torch.set_autocast_dtype("tpu", torch.bfloat16)
    patches.apply(torch, bridge)


__all__ = [
    "Event", "Stream", "StreamContext", "_utils", "assert_no_compiles", "current_device", "current_stream",
    "default_generators", "default_stream", "device", "device_count", "device_of", "empty_cache", "get_amp_supported_dtype",
    "get_device_capability", "get_device_name", "get_device_properties", "get_eager_mode", "get_rng_state", "get_rng_state_all",
    "init", "initial_seed", "is_available", "is_bf16_supported", "is_initialized", "limit_compiles", "manual_seed",
    "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved",
    "memory_stats", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_eager_mode", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "synchronize",
]
