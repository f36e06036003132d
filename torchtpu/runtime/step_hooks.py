"""Where a training step ends: hooks on PyTorch's optimizers and data loader, installed at the first use of the device.

The end of the outermost ``optimizer.step()`` marks a boundary; the program is run when work outside of optimizers and backward
passes is recorded. That alone is right. The end of ``zero_grad`` and the loader's next batch only start the device earlier.

Dynamo traces the hooks of a compiled step: there they leave a note, an assignment, which it repeats after every run of its graph.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim import optimizer
from torch.utils.data import dataloader

from torchtpu.runtime import loading

# PyTorch runs every optimizer's step in a wrapper, and all wrappers share this code.
_STEP = optimizer.Optimizer.profile_hook_step(lambda self: None).__code__


class _CompiledSteps:
    """What compiled code has done since anybody asked."""

    ended = False


_compiled_steps = _CompiledSteps()
_optimizers: weakref.WeakSet[optimizer.Optimizer] = weakref.WeakSet()  # that have stepped


def install(core: Any) -> None:
    """Install the hooks, once."""

    def before_step(*_: Any) -> None:
        if not is_compiling():
            core.set_optimizer_depth(_depth())

    def after_step(stepped: optimizer.Optimizer, *_: Any) -> None:
        if is_compiling():
            _compiled_steps.ended = True
        else:
            _optimizers.add(stepped)
            core.leave_optimizer(_depth() - 1)

    optimizer.register_optimizer_step_pre_hook(before_step)
    optimizer.register_optimizer_step_post_hook(after_step)
    _call_after(optimizer.Optimizer, "zero_grad", core, core.end_zero_grad)
    _watch_loaders(core)


def next_batch(core: Any) -> None:
    """A loop is about to ask for its next batch: what ends here, the device may begin with."""
    core.set_optimizer_depth(_depth())
    core.next_batch()


def tell_compiled_steps(core: Any) -> None:
    """Before something is recorded: whether a compiled step has ended is known only now."""
    if _compiled_steps.ended:
        _compiled_steps.ended = False
        core.leave_optimizer(0)


def kept_gradients(core: Any) -> tuple[int, int]:
    """Gradients that the program now ending has to return, and their bytes, because they outlive the step that used them.

    A parameter that is still to be computed was written by a step of this program; so its gradient has been used.
    """
    num, num_bytes = 0, 0
    for parameter in (p for stepped in list(_optimizers) for group in stepped.param_groups for p in group["params"]):
        if _is_pending(core, parameter) and _is_pending(core, parameter.grad):
            num, num_bytes = num + 1, num_bytes + parameter.grad.nbytes
    return num, num_bytes


def _is_pending(core: Any, tensor: Any) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "tpu"
    return plain and core.state(tensor) == "pending"


def _depth() -> int:
    """How many steps of optimizers this thread is in, read off its stack: a step that raised left nothing to forget there."""
    depth = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        depth += frame.f_code is _STEP
        frame = frame.f_back
    return depth


def _watch_loaders(core: Any) -> None:
    """PyTorch's own loader: tell the recorder of each batch, and count how long the loop waited for it."""
    original = dataloader._BaseDataLoaderIter.__next__

    @functools.wraps(original)
    def wrapped(self: Any) -> Any:
        if is_compiling():
            return original(self)
        next_batch(core)
        start_s, is_first = time.perf_counter(), self._num_yielded == 0
        batch = original(self)
        loading.note_wait(start_s, is_first)
        return batch

    dataloader._BaseDataLoaderIter.__next__ = wrapped


def _call_after(owner: type, name: str, core: Any, after: Callable[[], None]) -> None:
    """Let a method of ``owner`` call ``after``, when the recorder knows in how many steps it is called."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        core.set_optimizer_depth(_depth())
        result = original(self, *args, **kwargs)
        after()
        return result

    setattr(owner, name, wrapped)
