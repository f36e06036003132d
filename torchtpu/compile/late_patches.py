"""Places in PyTorch that know devices by name, in modules that ``import torch`` need not load: changed when they are loaded.

Each patch steps aside for other devices, and a test of each fails as soon as PyTorch itself would do without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from torchtpu.runtime import post_import

_GIVEN_UP = "an error was suppressed during compilation"  # Dynamo's words


def install() -> None:
    """Patch the modules that are loaded already, and the others after their import."""
    for name, patch in _PATCHES.items():
        post_import.when_imported(name, patch)


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


def _fake_impls(module: ModuleType) -> None:
    """Products of groups of matrices: PyTorch's inference knows the dtypes and the alignment of CUDA."""
    import torch

    def _grouped_mm(fake_mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].device.type != "tpu":
            return NotImplemented
        from torchtpu.graph.own_inference import grouped_mm

        with fake_mode:
            return grouped_mm(*args, **kwargs)

    module.register_op_impl(torch.ops.aten._grouped_mm.default)(_grouped_mm)


def _convert_frame(module: ModuleType) -> None:
    """Where Dynamo gives a whole frame up it says so only in its log, and no backend hears of it."""
    convert = module.ConvertFrame.__call__

    @functools.wraps(convert)
    def __call__(self: Any, frame: Any, cache_entry: Any, hooks: Any, frame_state: Any, skip: int = 0) -> Any:
        result = convert(self, frame, cache_entry, hooks, frame_state, skip=skip + 1)  # frames that are not the user's
        if result.skip_reason == _GIVEN_UP:
            from torchtpu.compile import telling

            telling.tell_frame(frame)
        return result

    module.ConvertFrame.__call__ = __call__  # type: ignore[attr-defined]


_PATCHES: Mapping[str, Callable[[ModuleType], None]] = {
    "torch.nn.attention.flex_attention": _flex_attention,
    "torch._higher_order_ops.associative_scan": _associative_scan,
    "torch._subclasses.fake_impls": _fake_impls,
    "torch._dynamo.device_interface": _device_interface,
    "torch._dynamo.convert_frame": _convert_frame,
}
