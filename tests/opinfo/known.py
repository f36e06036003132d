"""The only list of known deviations: (entry or *, dtype or *, variant or *) -> why.

Variants are ``fn`` (with its gradients), ``inplace``, ``out``, ``error`` (bad arguments), ``crash`` and ``timeout``. A failure that
is listed counts as known; a listed one that passes, all samples run, is reported as stale.
"""

from __future__ import annotations

import itertools

Key = tuple[str, str, str]

_NO_COMPLEX32 = "XLA has no complex numbers of two float16"
_STRIDED_OUT = "the CPU misplaces what it writes to an out= argument that is not contiguous, or leaves it out"

KNOWN: dict[Key, str] = {
    ("*", "complex32", "*"): _NO_COMPLEX32,
    ("chalf", "*", "*"): _NO_COMPLEX32,
    ("logcumsumexp", "complex64", "fn"):
        "complex sums are carried in single precision, the CPU's in double: the gradient, which subtracts them, loses digits",
    ("narrow_copy", "*", "out"): _STRIDED_OUT,
    ("nn.functional.avg_pool3d", "*", "out"): _STRIDED_OUT,
    ("nn.functional.gelu", "*", "out"): _STRIDED_OUT,
}


def known(entry: str, dtype: str, variant: str) -> Key | None:
    """The line of the list that is about this failure."""
    keys = itertools.product((entry, "*"), (dtype, "*"), (variant, "*"))
    return next((key for key in keys if key in KNOWN), None)
