"""Arrays of other libraries as tensors, by the protocols that they all speak: nothing of theirs is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torchtpu import dtypes

_NOT_NUMBERS = "OSUMm"  # kinds of NumPy: objects, bytes, text, dates, spans of time


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy, or says that it can be read as one; single numbers of NumPy are numbers."""
    kind = type(value)
    return not isinstance(value, np.generic | torch.Tensor) and (hasattr(kind, "__array__") or hasattr(kind, "__dlpack__"))


def as_tensor(value: Any) -> torch.Tensor | None:
    """A tensor of the same dtype on the host, over the array's own memory where PyTorch can use it; None if it holds no numbers.

    Raises:
        UnsupportedDtypeError: PyTorch has no such dtype.
    """
    if not hasattr(type(value), "__array__"):
        return torch.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype.kind in _NOT_NUMBERS or array.dtype.names is not None:
        return None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    dtype = dtypes.to_torch(array.dtype)
    if not array.flags.writeable or any(step < 0 or step % array.itemsize for step in array.strides):
        array = array.copy()  # PyTorch knows no memory that is only for reading, and no such steps
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.dtype(f"u{array.itemsize}"))).view(dtype)  # a float that NumPy itself does not know
