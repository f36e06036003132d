"""TorchTPU: PyTorch on TPUs, through JAX. ``import torch`` is enough; this module holds what PyTorch has no name for.

Importing it registers the ``tpu`` device in any process, also beside another accelerator, where ``import torch`` alone leaves
everything as it was.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchtpu._version import __version__

if TYPE_CHECKING:
    from torchtpu.device.abstract import abstract
    from torchtpu.device.interop import from_jax, to_jax

# Public names and the modules that define them; loaded when first used, so that importing torchtpu stays cheap.
_PUBLIC = {
    "abstract": "torchtpu.device.abstract",
    "from_jax": "torchtpu.device.interop",
    "to_jax": "torchtpu.device.interop",
}
_MODULES = ("compile", "data", "inspect", "errors", "flags", "estimate", "export")

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
    import os
    import sys

    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if getattr(spec, "_initializing", False):
        return  # inside torch's own import: its autoload hook decides
    if os.path.basename(sys.argv[0]) == "torchtpu" or (sys.argv[0] == "-m" and "torchtpu.cli" in sys.orig_argv):
        return  # the torchtpu command, which registers for those of its tools that need PyTorch
    from torchtpu.autoload import register

    register()


_register()
