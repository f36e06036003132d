"""Registering the device: by PyTorch's own autoload hook where that disturbs nobody, or by ``import torchtpu``.

The hook never raises, whatever the environment: what is wrong is told at the first use of the device, or by ``import torchtpu``.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from torchtpu.errors import ConflictingPackageError, TorchTPUError, UnsupportedVersionError

SUPPORTED_TORCH = "2.13"
_registered = False


def autoload() -> None:
    """Entry point ``torch.backends``: register unless another accelerator works here; keep quiet about problems."""
    try:
        if _asked_for() or not _other_accelerator():
            register()
    except Exception:  # whatever is wrong must not make `import torch` fail; `import torchtpu` tells it
        pass
    if not _registered:
        _forget()


def _forget() -> None:
    """Let the user's own ``import torchtpu`` run again, which registers in any case or says what is wrong."""
    if getattr(sys.modules["torchtpu"].__spec__, "_initializing", False):
        return  # it is what imports torch just now
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchtpu"]:
        del sys.modules[name]


def register() -> None:
    """Register the device named ``tpu``; does nothing the second time.

    Raises:
        UnsupportedVersionError: this release was not built for the installed PyTorch.
        ConflictingPackageError: the name, or PyTorch's slot for external devices, is taken.
        TorchTPUError: the C++ core cannot be loaded.
    """
    global _registered
    if _registered:
        return
    import torch

    if _registered:  # by our entry point, which the first import of torch runs
        return
    _check_version(torch.__version__)
    _check_free(torch)
    try:
        from torchtpu import _C
    except ImportError as error:
        raise TorchTPUError(
            f"The core of torchtpu cannot be loaded: {error}. Install torchtpu again, beside torch {torch.__version__}.") from error
    from torchtpu import device, integrations
    from torchtpu.compile import default_backend, late_patches
    from torchtpu.runtime import layouts, platform
    from torchtpu.runtime.bridge import Bridge

    torch.utils.rename_privateuse1_backend("tpu")
    bridge = Bridge(_C)
    _C.initialize(bridge)
    _registered = True
    _C.set_guessed_devices(platform.num_guessed_devices())
    device.attach(torch, bridge)
    default_backend.install()
    late_patches.install()
    integrations.install()
    layouts.refuse_first()
    atexit.register(_C.stop)  # work still pending at exit is dropped, and Python objects are left alone from here on
    _C.set_available(bool(platform.num_visible_chips()) or bool(os.environ.get("TORCHTPU_PLATFORM")))


def _asked_for() -> bool:
    from torchtpu.runtime.platform import num_visible_chips

    return bool(os.environ.get("TORCHTPU_PLATFORM")) or num_visible_chips() > 0


def _other_accelerator() -> bool:
    import torch

    # Counting asks CUDA's management library; is_available() would start CUDA, which no forked child could use any more.
    return _slot_taken(torch) or torch.accelerator.device_count() > 0


def _slot_taken(torch: Any) -> bool:
    return torch._C._get_privateuse1_backend_name() not in ("privateuseone", "tpu") or hasattr(torch, "tpu")


def _check_version(found: str) -> None:
    if not found.startswith(SUPPORTED_TORCH + "."):
        from torchtpu import __version__

        raise UnsupportedVersionError(ours=__version__, supported=SUPPORTED_TORCH, found=found)


def _check_free(torch: Any) -> None:
    if hasattr(torch, "tpu"):
        raise ConflictingPackageError(
            what=f"torch.tpu is already provided by {getattr(torch.tpu, '__name__', 'another package')}",
            fix="Uninstall one of the two packages (pip uninstall torch-tpu).")
    if _slot_taken(torch):
        raise ConflictingPackageError(
            what=f"PyTorch has one slot for external devices, and {torch._C._get_privateuse1_backend_name()!r} holds it",
            fix="Run the tpu device in a process of its own, without that package.")
