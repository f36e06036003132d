"""Calling a function once a module has been imported, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Hook = Callable[[ModuleType], None]


class _Finder(MetaPathFinder):
    """Finds nothing itself: lets the other finders do it, and adds the hook to what they found."""

    def __init__(self) -> None:
        self.hooks: dict[str, Hook] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        hook = self.hooks.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if hook else None
        if hook is None or spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            hook(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # a loader belongs to one module
        return spec


_finder = _Finder()


def when_imported(name: str, hook: Hook) -> None:
    """Call ``hook`` with the module of this name: now if it is loaded already, else right after it is."""
    if name in sys.modules:
        hook(sys.modules[name])
        return
    _finder.hooks[name] = hook
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
