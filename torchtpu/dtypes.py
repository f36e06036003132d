"""The one table between PyTorch's dtypes and NumPy's (with ml_dtypes for the narrow floats)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from torchtpu.errors import UnsupportedDtypeError

TO_NUMPY: dict[torch.dtype, np.dtype] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    torch.float8_e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
TO_TORCH: dict[np.dtype, torch.dtype] = {ours: theirs for theirs, ours in TO_NUMPY.items()}


def to_numpy(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype of the same bits.

    Raises:
        UnsupportedDtypeError: JAX has no such dtype (complex32, quantized types).
    """
    try:
        return TO_NUMPY[dtype]
    except KeyError:
        raise UnsupportedDtypeError(
            op="dtype", expected=f"one of {', '.join(str(d).removeprefix('torch.') for d in TO_NUMPY)}", got=dtype,
            why="XLA has no such element type.", fix="Convert on the CPU first, for example with .float().") from None


def to_torch(dtype: np.dtype) -> torch.dtype:
    """The PyTorch dtype of the same bits.

    Raises:
        UnsupportedDtypeError: PyTorch has no such dtype (int4, float4).
    """
    try:
        return TO_TORCH[np.dtype(dtype)]
    except KeyError:
        raise UnsupportedDtypeError(
            op="dtype", expected="a dtype that PyTorch has", got=dtype, why="PyTorch cannot hold it.",
            fix="Convert the array with .astype() first.") from None


# How PyTorch numbers dtypes where a schema carries them as integers (c10/core/ScalarType.h).
FROM_NUMBER: dict[int, torch.dtype] = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
    12: torch.qint8, 13: torch.quint8, 14: torch.qint32,  # named only to be refused
    23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 25: torch.float8_e5m2fnuz, 26: torch.float8_e4m3fnuz, 27: torch.uint16,
    28: torch.uint32, 29: torch.uint64,
}
