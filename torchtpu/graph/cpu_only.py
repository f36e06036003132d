"""Operators that run on the CPU on purpose, and why: no accelerator computes them. Everything else without a lowering is a gap."""

from __future__ import annotations

_NOT_SYMMETRIC = "eigenvalues of matrices that are not symmetric: XLA has them for the CPU only, and cuSOLVER did not until lately"
_PIVOTED = "LDL with Bunch-Kaufman pivoting: XLA has no such factorisation"

CPU_ONLY: dict[str, str] = {
    "aten::linalg_eig": _NOT_SYMMETRIC,
    "aten::_linalg_eigvals": _NOT_SYMMETRIC,
    "aten::linalg_ldl_factor_ex": _PIVOTED,
    "aten::linalg_ldl_solve": _PIVOTED,
    "aten::_spdiags": "its result is a sparse tensor, and this device holds dense ones only",
}


def is_stated(op: str) -> bool:
    """Whether an overload is of one of these operators, ``out=`` and the form with a gradient included."""
    return _name(op) in map(_name, CPU_ONLY)


def _name(op: str) -> str:
    return op.partition("::")[2].partition(".")[0].lstrip("_")
