"""TorchTPU: PyTorch on TPUs, through JAX. ``import torch`` is enough; this module holds what PyTorch has no name for.

Importing it registers the ``tpu`` device in any process, also beside another accelerator, where ``import torch`` alone leaves
everything as it was.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public names and the modules that define them; loaded when first used, so that importing torchtpu stays cheap.
_PUBLIC = {
    "abstract": "torchtpu.device.abstract",
    "from_jax": "torchtpu.device.interop",
    "to_jax": "torchtpu.device.interop",
}
_MODULES = ("inspect", "errors", "flags", "estimate")

__all__ = ["__version__", "abstract", "from_jax", "to_jax"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"torchtpu.{name}")
    raise AttributeError(f"module 'torchtpu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, *_MODULES])


def _register() -> None:
    import sys

    if "torch" in sys.modules and not hasattr(sys.modules["torch"], "compile"):
        return  # inside torch's own import: its autoload hook decides
    from torchtpu.autoload import register

    register()


_register()
