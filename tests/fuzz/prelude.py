"""What every program of the fuzzer begins with: its source stands on top of the script that shows a failure."""

import contextlib
import copy
import math

import torch

__all__ = ["Cube", "Double", "DoubleInPlace", "attempt", "copy", "make", "math", "torch"]


def make(shape, dtype, first, device):
    """A new tensor of small whole numbers, which comes from the host."""
    values = torch.arange(first, first + math.prod(shape)).remainder(5)
    values = values if dtype in (torch.bool, torch.uint8) else values - 2
    return values.reshape(shape).to(dtype).to(device, copy=True)


@contextlib.contextmanager
def attempt():
    """The CPU raises here, too; the program goes on."""
    try:
        yield
    except Exception as error:
        print(type(error).__name__, str(error).partition("\n")[0])


class Double(torch.autograd.Function):
    """A function of one's own, whose backward pass is linear."""

    @staticmethod
    def forward(ctx, x):
        """Twice the argument."""
        return x * 2

    @staticmethod
    def backward(ctx, *grads):
        """Twice the gradient."""
        return grads[0] * 2


class DoubleInPlace(Double):
    """The same, written into the argument."""

    @staticmethod
    def forward(ctx, x):
        """Twice the argument."""
        ctx.mark_dirty(x)
        return x.mul_(2)


class Cube(torch.autograd.Function):
    """A function that saves its argument."""

    @staticmethod
    def forward(ctx, x):
        """The third power."""
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, *grads):
        """Thrice the square."""
        x, = ctx.saved_tensors
        return grads[0] * 3 * x * x
