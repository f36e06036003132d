"""The only list of known deviations: (entry or *, dtype or *, variant or *) -> why.

Variants are ``fn`` (with its gradients), ``inplace``, ``out``, ``error`` (bad arguments), ``compile`` (see ``CPU_AND_GPU_ONLY``),
``crash`` and ``timeout``. A failure that
is listed counts as known; a listed one that passes, all samples run, is reported as stale.
"""

from __future__ import annotations

import itertools

Key = tuple[str, str, str]

_NO_COMPLEX32 = "XLA has no complex numbers of two float16"
_NO_COMPLEX128 = "XLA:TPU emulates float64, but complex numbers of two of them only in part"
_SHORT_DENOMINATOR = "the CPU leaves out the leading coefficient of denominators, and is wrong in the seventh digit"
_STRIDED_OUT = "the CPU misplaces what it writes to an out= argument that is not contiguous, or leaves it out"
_RESIZES_OUT = "PyTorch resizes the out= argument by an operator that counts as a write, on every device but the CPU"
_LAZY_CONJUGATE = "the CPU leaves the conjugation of the result undone until it is read"

_RESIZED = (
    "linalg.cond", "linalg.matrix_norm", "linalg.matrix_power", "linalg.matrix_rank", "linalg.matrix_rank.hermitian",
    "linalg.multi_dot", "linalg.norm", "linalg.norm.subgradients_at_zero", "linalg.pinv", "linalg.tensorinv", "linalg.tensorsolve",
    "linalg.vecdot", "matmul", "nanquantile", "norm.nuc", "quantile", "special.ndtr", "tensordot")
_MAKES_COMPLEX128 = (
    "complex", "polar", "stft", "linalg.eig", "linalg.eigvals",
    "fft.fft", "fft.fft2", "fft.fftn", "fft.ifft", "fft.ifft2", "fft.ifftn", "fft.rfft", "fft.rfft2", "fft.rfftn",
    "fft.irfft", "fft.irfft2", "fft.irfftn", "fft.hfft", "fft.hfft2", "fft.hfftn", "fft.ihfft", "fft.ihfft2", "fft.ihfftn")
_SOLVES = (
    "logdet", "lu", "linalg.det", "linalg.inv", "linalg.inv_ex", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex",
    "linalg.slogdet", "linalg.solve", "linalg.solve_ex", "linalg.tensorinv", "linalg.tensorsolve")
# What no TPU does, or its compiler refuses: (entry or *, dtype or *) -> why. It runs on the CPU and on GPUs.
CPU_AND_GPU_ONLY: dict[tuple[str, str], str] = {
    ("*", "complex128"): _NO_COMPLEX128,
    ("cdouble", "*"): _NO_COMPLEX128,
    ("float_power", "complex64"): _NO_COMPLEX128,
    ("renorm", "complex64"): f"PyTorch's gradient is in complex128: {_NO_COMPLEX128}",
    ("nextafter", "float64"): "XLA:TPU emulates float64 by pairs of float32, which have no bits to count up",
    **dict.fromkeys(itertools.product(_MAKES_COMPLEX128, ("float64",)), _NO_COMPLEX128),
    **dict.fromkeys(itertools.product(_SOLVES, ("float64",)), "XLA:TPU has an LU factorisation of float32 and complex64 only"),
    **dict.fromkeys(((f"nn.functional.conv{kind}{n}d", "int64") for kind in ("", "_transpose") for n in (1, 2, 3)),
                    "a TPU's matrix unit has no 64-bit integers, nor has CUDA's library of convolutions"),
}

KNOWN: dict[Key, str] = {
    ("*", "complex32", "*"): _NO_COMPLEX32,
    ("chalf", "*", "*"): _NO_COMPLEX32,
    ("complex", "float16", "*"): _NO_COMPLEX32,
    ("logcumsumexp", "complex64", "fn"):
        "complex sums are carried in single precision, the CPU's in double: the gradient, which subtracts them, loses digits",
    **dict.fromkeys(((name, "*", "out") for name in _RESIZED), _RESIZES_OUT),
    **dict.fromkeys((("vdot", dtype, "*") for dtype in ("complex64", "complex128")), _LAZY_CONJUGATE),
    **dict.fromkeys((("linalg.lu_solve", dtype, "*") for dtype in ("complex64", "complex128")), _LAZY_CONJUGATE),
    ("view_as_complex", "float16", "fn"): _NO_COMPLEX32,
    ("nn.functional.scaled_dot_product_attention", "bfloat16", "fn"):
        "the gradient is taken from the rounded result, as flash attention does: up to 2.2 times the CPU's error",
    **dict.fromkeys(itertools.product(("special.bessel_j0", "special.bessel_y1"), ("float64",), ("fn", "out")), _SHORT_DENOMINATOR),
    ("narrow_copy", "*", "out"): _STRIDED_OUT,
    ("nn.functional.avg_pool3d", "*", "out"): _STRIDED_OUT,
    **{(*key, "compile"): why for key, why in CPU_AND_GPU_ONLY.items()},
}


def known(entry: str, dtype: str, variant: str) -> Key | None:
    """The line of the list that is about this failure."""
    keys = itertools.product((entry, "*"), (dtype, "*"), (variant, "*"))
    return next((key for key in keys if key in KNOWN), None)
