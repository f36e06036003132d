"""Which JAX platform the tpu device runs on, and starting it."""

from __future__ import annotations

import glob
import importlib.util
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchtpu import flags
from torchtpu.errors import AlreadyStartedError, PlatformError

if TYPE_CHECKING:
    import jax

_CHIP_FILES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")


class EmulationWarning(UserWarning):
    """The tpu device was named on a machine without a chip: it is emulated."""


@dataclass(frozen=True)
class Platform:
    """A started platform: ``kind`` is tpu, cuda or cpu."""

    kind: str
    devices: list[jax.Device]


def num_visible_chips() -> int:
    """TPU chips that the system shows, without starting anything; 0 if libtpu is not installed."""
    if importlib.util.find_spec("libtpu") is None:
        return 0
    return sum(len(glob.glob(pattern)) for pattern in _CHIP_FILES)


def num_guessed_devices() -> int:
    """Devices there will probably be, for those who ask before JAX has started."""
    try:
        return flags.get("TORCHTPU_CPU_DEVICES") or max(num_visible_chips(), 1)
    except flags.InvalidFlagError:
        return 1  # told at first use


def start() -> Platform:
    """Start JAX on the platform that was asked for, or the best there is.

    Raises:
        InvalidFlagError: a ``TORCHTPU_*`` variable is unknown or malformed.
        PlatformError: the platform that was asked for has no device here.
        AlreadyStartedError: JAX runs already with another number of CPU devices.
    """
    flags.check_environment()
    asked = flags.get("TORCHTPU_PLATFORM")
    kind = asked or _best()
    platform = Platform(kind, _devices(kind))
    # JAX warns of deadlocks at every fork. Our children may not touch the device (ForkedProcessError), and the workers of a
    # DataLoader do not.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called\.", category=RuntimeWarning)
    if asked is None and kind != "tpu":
        from torchtpu.runtime.user_code import stack_level  # needs torch, which imports this module

        warnings.warn(
            f"no TPU here: the tpu device is emulated on {kind} (set TORCHTPU_PLATFORM={kind} to say so yourself).",
            EmulationWarning, stacklevel=stack_level())
    return platform


def _best() -> str:
    if num_visible_chips():
        return "tpu"
    has_plugin = any(importlib.util.find_spec(name) for name in ("jax_cuda12_plugin", "jax_cuda13_plugin"))
    if has_plugin and glob.glob("/dev/nvidia[0-9]*"):
        return "cuda"
    return "cpu"


def _devices(kind: str) -> list[jax.Device]:
    import jax
    from jax._src import xla_bridge

    started = xla_bridge.backends_are_initialized()
    wanted = flags.get("TORCHTPU_CPU_DEVICES")
    if kind == "cpu" and not started:
        if wanted is not None:
            jax.config.update("jax_num_cpu_devices", wanted)
        if not jax.config.jax_platforms:
            jax.config.update("jax_platforms", "cpu")  # looking for other platforms takes seconds and may take a chip
    try:
        devices = jax.local_devices(backend=kind)
    except RuntimeError as error:
        raise PlatformError(platform=kind, why=str(error).strip().split("\n")[0], fix=_fix(kind)) from error
    if kind == "cpu" and wanted is not None and len(devices) != wanted:
        raise AlreadyStartedError(what=f"TORCHTPU_CPU_DEVICES={wanted}", have=f"{len(devices)} CPU device(s)")
    return devices


def _fix(kind: str) -> str:
    if kind == "tpu":
        return (
            "Install libtpu (pip install 'torchtpu[tpu]') on a machine with a chip that no other process holds, or emulate with "
            "TORCHTPU_PLATFORM=cpu.")
    if kind == "cuda":
        return "Install JAX's CUDA plug-in (pip install 'torchtpu[cuda]'), or emulate with TORCHTPU_PLATFORM=cpu."
    return f"Unset JAX_PLATFORMS (now {sys.modules['jax'].config.jax_platforms!r}) or add cpu to it."
