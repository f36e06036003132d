"""Libraries that run on the device better with a little help: one room a library, applied when the library is imported.

A library newer than the one that its room was written for is left alone, and one warning says so.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Callable
from types import ModuleType

from torchtpu.runtime import post_import


class IntegrationWarning(UserWarning):
    """A library was left as it is: its version is not one that torchtpu knows."""


_MODULES = {"transformers.generation.utils": ("transformers", "5.24", "6")}
"""A library's module, the room of ours to apply once it is loaded, and the versions: from the first on, before the second."""


def install() -> None:
    """Watch for the libraries; costs nothing until one is imported."""
    for module, (room, first, before) in _MODULES.items():
        post_import.when_imported(module, _applier(room, first, before))


def _applier(room: str, first: str, before: str) -> Callable[[ModuleType], None]:
    def apply(module: ModuleType) -> None:
        version = importlib.metadata.version(room)
        if _numbers(first) <= _numbers(version) < _numbers(before):
            importlib.import_module(f"torchtpu.integrations.{room}").apply(module)
        else:
            warnings.warn(
                f"{room} {version} is not one that this torchtpu knows ({first} or newer, before {before}): it is left as it is. "
                "It works as on any device, with more compiles.", IntegrationWarning, stacklevel=2)

    return apply


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
