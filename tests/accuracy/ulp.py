"""Errors in units in the last place."""

from __future__ import annotations

import numpy as np
import torch

Wide = np.ndarray  # of long doubles, or complex numbers of such parts


def wide(tensor: torch.Tensor) -> Wide:
    """The values as long doubles: there, what is left of a difference of float64 numbers is still seen."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_complex():
        return plain.to(torch.complex128).numpy().astype(np.clongdouble)
    return plain.to(torch.float64).numpy().astype(np.longdouble)


def errors(result: Wide, exact: Wide, dtype: torch.dtype) -> np.ndarray:
    """The error of each element in units in the last place of a ``dtype`` number of the exact size.

    Infinite where NaN, an infinity or the sign of zero is not where it should be. An exact value too small to be a normal number
    is met by anything as small; one that is too large, by an infinity.
    """
    if np.iscomplexobj(exact):
        return _complex_errors(result, exact, dtype)
    if not dtype.is_floating_point:
        return np.where(result == exact, 0.0, np.inf)
    info = torch.finfo(dtype)
    top = np.longdouble(2) ** _max_exponent(dtype)
    with np.errstate(all="ignore"):
        error = np.abs(np.clip(result, -top, top) - np.clip(exact, -top, top)) / spacing(exact, dtype)
    small = (exact != 0) & (np.abs(exact) < float(info.tiny) * (1 + float(info.eps)))
    error = np.where(small & (np.abs(result) <= float(info.tiny)), 0.0, error)
    wrong = np.isnan(result) != np.isnan(exact)
    wrong |= np.isinf(exact) & (result != exact)
    wrong |= (exact == 0) & (result == 0) & (np.signbit(exact) != np.signbit(result))
    error = np.where(np.isnan(exact) & np.isnan(result), 0.0, error)
    return np.where(wrong, np.inf, error).astype(np.float64)


def spacing(exact: Wide, dtype: torch.dtype) -> Wide:
    """How far apart the numbers of a dtype are where the exact value is."""
    info = torch.finfo(dtype)
    least, most = int(np.log2(float(info.tiny))), _max_exponent(dtype) - 1
    finite = np.where(np.isfinite(exact), exact, 1)
    exponent = np.clip(np.frexp(np.abs(finite))[1] - 1, least, most)
    return np.ldexp(np.longdouble(float(info.eps)), exponent)


def _max_exponent(dtype: torch.dtype) -> int:
    return int(np.frexp(float(torch.finfo(dtype).max))[1])


def _complex_errors(result: Wide, exact: Wide, dtype: torch.dtype) -> np.ndarray:
    """Of the distance in the plane; where the exact value is not finite, or too large, neither need the result be."""
    part = torch.float32 if dtype == torch.complex64 else torch.float64
    size = np.abs(exact)
    with np.errstate(all="ignore"):
        error = np.abs(result - exact) / spacing(size, part)
    tiny, most = float(torch.finfo(part).tiny), float(torch.finfo(part).max)
    error = np.where((size < 2 * tiny) & (np.abs(result) <= 2 * tiny), 0.0, error)
    finite, near = np.isfinite(result), size <= most
    error = np.where(near & ~finite, np.inf, error)
    return np.where(near, error, np.where(finite, np.inf, 0.0)).astype(np.float64)
