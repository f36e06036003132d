"""What an executable depends on beside its program and its device, known without starting PyTorch or JAX."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import platform
from pathlib import Path

from torchtpu._version import __version__


@functools.cache
def versions() -> dict[str, str]:
    """Versions of torchtpu and of the packages that its executables are made with."""
    return {"torchtpu": __version__, **{name: _version(name) for name in ("torch", "jax", "jaxlib")}}


@functools.cache
def facts() -> dict[str, str]:
    """Versions, and hashes of how we make programs and of the processor's features: executables of other facts are never used."""
    sources = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(path for room in ("rules", "graph", "compile") for path in (root / room).glob("*.py")):
        sources.update(path.read_bytes())
    cpu = hashlib.sha256(_cpu_features().encode()).hexdigest()
    return {**versions(), "sources": sources.hexdigest(), "machine": platform.machine(), "cpu": cpu}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # on the path without having been installed
        return str(importlib.import_module(name).__version__)


def _cpu_features() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
