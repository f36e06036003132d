"""Memory of a device: what is free, what is needed, and the error when it is too little."""

from __future__ import annotations

from pathlib import Path

import jax

from torchtpu import _C
from torchtpu.errors import OutOfMemoryError

_CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def info(device: jax.Device) -> tuple[int, int]:
    """Free and total bytes of a device; of the machine, within its container's limit, where the device is the CPU."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats["bytes_in_use"]), int(stats["bytes_limit"])
    return _host_memory()


def _host_memory() -> tuple[int, int]:
    fields = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    free, total = fields["MemAvailable"], fields["MemTotal"]
    for limit_file, usage_file in _CGROUP_LIMITS:
        limit = Path(limit_file)
        if limit.exists() and (text := limit.read_text().strip()).isdigit() and int(text) < total:
            total = int(text)
            free = min(free, total - int(Path(usage_file).read_text()))
    return max(free, 0), total


def require(num_bytes: int, device: jax.Device) -> None:
    """Check that ``num_bytes`` can be allocated.

    Raises:
        OutOfMemoryError: they cannot.
    """
    if num_bytes > info(device)[0]:
        raise out_of_memory(num_bytes, device)


def out_of_memory(num_bytes: int | None, device: jax.Device) -> OutOfMemoryError:
    """The error for a program that needs ``num_bytes`` (None: more than the compiler would even plan for)."""
    live = _C.memory_stats(device.local_hardware_id or 0)["current_bytes"]
    return OutOfMemoryError(
        device=str(device), needed="more than the device has" if num_bytes is None else readable(num_bytes),
        free=readable(info(device)[0]), live=readable(live))


def readable(num_bytes: float) -> str:
    """``1536`` -> ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.4g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.4g} TiB"
