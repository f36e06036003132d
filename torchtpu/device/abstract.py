"""Tensors with a shape and a dtype but no data: for compiling a model that does not fit this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchtpu import _C


@contextmanager
def abstract() -> Iterator[None]:
    """Within this block, tensors made on the tpu device, or moved to it, hold no data.

    What is computed with them is recorded and can be compiled for a named topology, but never runs. Reading a value raises
    AbstractTensorError.
    """
    previous = _C.set_abstract(True)
    try:
        yield
    finally:
        _C.set_abstract(previous)
