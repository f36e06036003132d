"""Arguments of a recorded call: what the core sends for each, and the two things that are made of it.

The core sends tensors and run-time numbers as tagged tuples and everything else as plain values (see ``ArgumentWriter`` in
csrc/python). From them come the arguments for PyTorch's shape inference, and the arguments of the lowering rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchtpu import dtypes

_MEMORY_FORMATS = {
    0: torch.contiguous_format, 1: torch.preserve_format, 2: torch.channels_last, 3: torch.channels_last_3d,
}


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of the device: which buffer of the call it looks at, and through which view."""

    buffer: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    conjugate: bool
    negative: bool


@dataclass(frozen=True)
class HostScalar:
    """A 0-dim CPU tensor, or a Python number that PyTorch wrapped into one."""

    dtype: torch.dtype
    wrapped: bool


@dataclass(frozen=True)
class RunTimeNumber:
    """A Python number that is an input of the program; ``value`` is the one of the call that came first."""

    value: Any


def parse(sent: Any, kind: str) -> Any:
    """One argument as the core sent it, for a schema argument of type ``kind``."""
    if isinstance(sent, list):
        inner = kind.partition("[")[2].rpartition("]")[0] if "[" in kind else kind
        return [parse(item, inner) for item in sent]
    if isinstance(sent, tuple):
        tag, *fields = sent
        return {"tensor": TensorArgument, "host": HostScalar, "run-time": RunTimeNumber}[tag](*fields)
    if sent is None or isinstance(sent, bool):
        return sent
    if "ScalarType" in kind:
        return dtypes.FROM_NUMBER[sent]
    if "MemoryFormat" in kind:
        return _MEMORY_FORMATS[sent]
    if "Layout" in kind:
        return torch.strided
    return sent


def leaves(parsed: Any) -> Iterator[Any]:
    """Every argument, lists flattened, in the order in which the core numbers tensors and run-time numbers."""
    for item in parsed:
        if isinstance(item, list):
            yield from leaves(item)
        else:
            yield item


def map_leaves(parsed: Any, function: Callable[[Any], Any]) -> Any:
    """The same nesting with ``function`` of every leaf, called in the order of ``leaves``."""
    return [map_leaves(item, function) if isinstance(item, list) else function(item) for item in parsed]
