"""Memory of a device, as ``torch.cuda`` reports it. All numbers are bytes.

``allocated`` counts the arrays that tensors (and pending programs) hold; the peak includes what running programs need besides. XLA
allocates without a cache of its own that PyTorch could see, so ``reserved`` equals ``allocated``.
"""

from __future__ import annotations

from typing import Any

from torchtpu import _C
from torchtpu.device.devices import _index


def memory_allocated(device: Any = None) -> int:
    """Bytes of live arrays."""
    return _C.memory_stats(_index(device))["current_bytes"]


def max_memory_allocated(device: Any = None) -> int:
    """Largest number of bytes in use since the last ``reset_peak_memory_stats``."""
    return _C.memory_stats(_index(device))["peak_bytes"]


def memory_reserved(device: Any = None) -> int:
    """The same as ``memory_allocated``."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The same as ``max_memory_allocated``."""
    return max_memory_allocated(device)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counts and bytes under the names that ``torch.cuda.memory_stats`` uses for them."""
    stats = _C.memory_stats(_index(device))
    result = {}
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        result |= {
            f"{name}.all.current": stats["current_bytes"], f"{name}.all.peak": stats["peak_bytes"],
            f"{name}.all.allocated": stats["allocated_bytes"], f"{name}.all.freed": stats["freed_bytes"],
        }
    result |= {
        "allocation.all.current": stats["num_live"], "allocation.all.peak": stats["peak_live"],
        "allocation.all.allocated": stats["num_allocations"],
        "allocation.all.freed": stats["num_allocations"] - stats["num_live"],
    }
    return result


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peak start anew at what is allocated now."""
    _C.reset_peak_memory_stats(_index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes; of the machine where the device is emulated on the CPU."""
    from torchtpu.device.backing import bridge

    return bridge().memory_info(_index(device))


def empty_cache() -> None:
    """Run pending releases. XLA gives memory back by itself."""
    _C.drain()
