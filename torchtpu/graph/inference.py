"""What an operator returns: PyTorch's own inference, run on fake CPU tensors once a signature.

CPU fakes are asked because their strides agree with CPU where plain meta kernels do not. Wrong arguments raise here what PyTorch
raises, on the user's line.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchtpu.graph import corrections, overlaps, refusals
from torchtpu.graph.arguments import HostScalar, RunTimeNumber, TensorArgument, map_leaves
from torchtpu.graph.overloads import key_of
from torchtpu.graph.own_inference import INFERENCE


class NotInferable(Exception):
    """Inference needs values, or PyTorch has none for this operator; ``dynamic`` if the output's shape depends on values."""

    def __init__(self, why: str, dynamic: bool) -> None:
        super().__init__(why)
        self.dynamic = dynamic


@dataclass(frozen=True)
class Inferred:
    """Outputs of a call, and its tensor arguments afterwards (out= arguments may have been resized)."""

    result: Any
    fakes: list[Any]  # nested as the arguments were


@functools.cache
def fake_mode() -> Any:
    """The one mode under which fakes are made."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # costs a second: only when the device is used

    return FakeTensorMode(allow_non_fake_inputs=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Fakes log an error with a traceback before they raise it; the exception is enough."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


def unsupported() -> tuple[type[Exception], ...]:
    """What fakes raise where PyTorch has no inference, or needs values for it."""
    from torch._subclasses import fake_tensor

    return (
        fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedOperatorException)


_SAMPLES = {torch.bool: True, torch.int64: 1, torch.float64: 1.0, torch.complex128: 1j}


def infer(op: torch._ops.OpOverload, arguments: list[Any]) -> Inferred:
    """Run ``op`` on fakes of parsed arguments.

    Raises:
        NotInferable: values are needed, or there is no inference for the operator.
        Exception: whatever PyTorch raises for arguments that do not fit.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
    )

    schema = op._schema.arguments
    overlaps.refuse(op, arguments)
    refusals.check(op, arguments)
    try:
        with fake_mode(), torch.no_grad(), _quiet():
            fakes = [
                _fake_argument(op, argument, parsed) for argument, parsed in zip(schema, arguments, strict=True)
            ]
            positional = [fake for fake, argument in zip(fakes, schema, strict=True) if not argument.kwarg_only]
            keywords = {
                argument.name: fake for fake, argument in zip(fakes, schema, strict=True)
                if argument.kwarg_only and (fake is not None or not argument.has_default_value())
            }
            result = INFERENCE.get(key_of(op), op)(*positional, **keywords)
            result = corrections.corrected(op, arguments, fakes, result)
    except (DynamicOutputShapeException, DataDependentOutputException) as error:
        raise NotInferable(str(error), dynamic=True) from error
    except (UnsupportedOperatorException, NotImplementedError) as error:
        raise NotInferable(str(error), dynamic=False) from error
    return Inferred(result, fakes)


def _fake_argument(op: torch._ops.OpOverload, argument: Any, parsed: Any) -> Any:
    if isinstance(parsed, list):
        return map_leaves(parsed, lambda leaf: _fake(op, leaf))
    return _fake(op, parsed)


def _fake(op: torch._ops.OpOverload, leaf: Any) -> Any:
    if isinstance(leaf, TensorArgument):
        tensor = torch.empty_strided(leaf.sizes, leaf.strides, dtype=leaf.dtype, device="cpu")
        if leaf.offset:
            needed = leaf.offset + 1 + sum((n - 1) * s for n, s in zip(leaf.sizes, leaf.strides, strict=True) if n)
            flat = torch.empty((needed,), dtype=leaf.dtype, device="cpu")
            tensor = flat.as_strided(leaf.sizes, leaf.strides, leaf.offset)
        return tensor
    if isinstance(leaf, HostScalar):
        if leaf.wrapped and _takes_numbers(op):
            return _SAMPLES.get(leaf.dtype, 1)
        dtype = leaf.dtype
        if leaf.wrapped:
            dtype = torch.get_default_dtype() if dtype.is_floating_point else dtype
        return torch.empty((), dtype=dtype, device="cpu")
    return leaf.value if isinstance(leaf, RunTimeNumber) else leaf


@functools.cache
def _takes_numbers(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch lets a Python number stand for a tensor argument of this operator."""
    with fake_mode():
        one = torch.empty((1,), device="cpu")
        tensors = [a for a in op._schema.arguments if str(a.type) == "Tensor"]
        if len(tensors) < 2:
            return False
        try:
            op(one, 1.0)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False
        return True

