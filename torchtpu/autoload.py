"""Registering the device: by PyTorch's own autoload hook where that disturbs nobody, or by ``import torchtpu``.

The hook never raises, whatever the environment: what is wrong is told at the first use of the device.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from torchtpu.errors import ConflictingPackageError, TorchTPUError, UnsupportedVersionError

SUPPORTED_TORCH = "2.13"
_registered = False
_problem: TorchTPUError | None = None


def autoload() -> None:
    """Entry point ``torch.backends``: register unless another accelerator works here; keep quiet about problems."""
    global _problem
    try:
        if _asked_for() or not _other_accelerator():
            register()
    except TorchTPUError as error:
        _problem = error
    except Exception as error:  # a broken installation must not make `import torch` fail
        _problem = TorchTPUError(f"torchtpu could not be loaded: {type(error).__name__}: {error}.")


def register() -> None:
    """Register the device named ``tpu``; does nothing the second time.

    Raises:
        UnsupportedVersionError: this release was not built for the installed PyTorch.
        ConflictingPackageError: the name, or PyTorch's slot for external devices, is taken.
    """
    global _registered
    if _registered:
        return
    import torch

    if _registered:  # by our entry point, which the first import of torch runs
        return
    _check_version(torch.__version__)
    _check_free(torch)
    from torchtpu import _C, device
    from torchtpu.runtime import platform
    from torchtpu.runtime.bridge import Bridge

    torch.utils.rename_privateuse1_backend("tpu")
    bridge = Bridge(_C)
    _C.initialize(bridge)
    _registered = True
    _C.set_guessed_devices(platform.num_guessed_devices())
    device.attach(torch, bridge)
    atexit.register(_C.stop)  # work still pending at exit is dropped, and Python objects are left alone from here on
    _C.set_available(bool(platform.num_visible_chips()) or bool(os.environ.get("TORCHTPU_PLATFORM")))


def _asked_for() -> bool:
    from torchtpu.runtime.platform import num_visible_chips

    return bool(os.environ.get("TORCHTPU_PLATFORM")) or num_visible_chips() > 0


def _other_accelerator() -> bool:
    import torch

    return torch.accelerator.current_accelerator(check_available=True) is not None or _slot_taken(torch)


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
