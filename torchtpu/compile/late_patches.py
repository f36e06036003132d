"""Places in PyTorch that know devices by name, in modules that ``import torch`` need not load: changed when they are loaded.

Each patch steps aside for other devices, and a test of each fails as soon as PyTorch itself would do without it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def install() -> None:
    """Patch the modules that are loaded already, and the others after their import."""
    waiting = {}
    for name, patch in _PATCHES.items():
        module = sys.modules.get(name)
        if module is None:
            waiting[name] = patch
        else:
            patch(module)
    sys.meta_path.insert(0, _Finder(waiting))


def _flex_attention(module: ModuleType) -> None:
    """Its list of devices does not know ours; what the device lowers, forward and backward, is in rules/flex_attention.py."""
    validate = module._validate_device

    @functools.wraps(validate)
    def _validate_device(query: Any, key: Any, value: Any) -> None:
        if query.device.type != "tpu":
            validate(query, key, value)

    module._validate_device = _validate_device  # type: ignore[attr-defined]


def _associative_scan(module: ModuleType) -> None:
    """``combine_mode="pointwise"``, which is the default, is for a kernel of CUDA's; the other mode computes the same."""
    import torch

    scan = module.associative_scan

    @functools.wraps(scan)
    def associative_scan(
        combine_fn: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
    ) -> Any:
        leaves = torch.utils._pytree.tree_leaves(xs)
        if combine_mode == "pointwise" and all(isinstance(x, torch.Tensor) and x.device.type == "tpu" for x in leaves):
            combine_mode = "generic"
        return scan(combine_fn, xs, dim, reverse, combine_mode)

    module.associative_scan = torch._higher_order_ops.associative_scan = associative_scan  # type: ignore[attr-defined]


def _device_interface(module: ModuleType) -> None:
    """Dynamo's table of devices has a ``tpu`` of another package, which knows neither streams nor the current device."""
    from torchtpu.compile.dynamo_interface import interface

    module.TpuInterface = interface(module)  # type: ignore[attr-defined]


_PATCHES: Mapping[str, Callable[[ModuleType], None]] = {
    "torch.nn.attention.flex_attention": _flex_attention,
    "torch._higher_order_ops.associative_scan": _associative_scan,
    "torch._dynamo.device_interface": _device_interface,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that wait for a patch, as Python does, and applies it after their code has run."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self.waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patch = self.waiting.pop(fullname, None)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if patch else None
        if spec is not None and spec.loader is not None and patch is not None:
            _run_after(spec.loader, patch)
        return spec


def _run_after(loader: Any, patch: Callable[[ModuleType], None]) -> None:
    """Let this loader, which is of one module only, patch what it has loaded."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        patch(module)

    loader.exec_module = exec_module
