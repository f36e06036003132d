"""Where a training step ends: hooks on PyTorch's optimizers and data loader, installed at the first use of the device.

The end of the outermost ``optimizer.step()`` marks a boundary; the program is run when work outside of optimizers and backward
passes is recorded. That alone is right. The end of ``zero_grad`` and the loader's next batch only start the device earlier.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

_stacks = threading.local()


def _stack() -> list[int]:
    if not hasattr(_stacks, "ids"):
        _stacks.ids = []
    return _stacks.ids


def install(core: Any) -> None:
    """Install the hooks, once."""
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    optimizer.register_optimizer_step_pre_hook(lambda opt, args, kwargs: _enter(core, id(opt)))
    optimizer.register_optimizer_step_post_hook(lambda opt, args, kwargs: _leave(core, id(opt)))
    _call_after(optimizer.Optimizer, "zero_grad", lambda opt: _zeroed(core, id(opt)))
    _call_before(dataloader._BaseDataLoaderIter, "__next__", core.next_batch)


def _forget(core: Any, number: int) -> None:
    """A step that raised never reached its end: drop it, and what was nested in it, when its optimizer is seen again."""
    stack = _stack()
    if number in stack:
        del stack[stack.index(number):]


def _enter(core: Any, number: int) -> None:
    _forget(core, number)
    _stack().append(number)
    core.set_optimizer_depth(len(_stack()))


def _leave(core: Any, number: int) -> None:
    _forget(core, number)
    core.leave_optimizer(len(_stack()))


def _zeroed(core: Any, number: int) -> None:
    if number in _stack() and _stack()[0] == number:
        _forget(core, number)
        core.set_optimizer_depth(0)
    core.end_zero_grad()


def _call_after(owner: type, name: str, function: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        function(self)
        return result

    setattr(owner, name, wrapped)


def _call_before(owner: type, name: str, function: Callable[[], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        function()
        return original(self, *args, **kwargs)

    setattr(owner, name, wrapped)
