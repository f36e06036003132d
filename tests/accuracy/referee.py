"""Judges results of the device and of the CPU by those that the CPU computes in a wider dtype.

Subnormal numbers are left out, as arguments and as exact results: XLA flushes them to zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from tests.accuracy import inputs
from tests.accuracy.subjects import SCIPY, Subject
from tests.accuracy.ulp import Wide, errors, wide

FACTOR = 2  # our error may be this many times the CPU's,
FLOOR = 4.0  # or this many units in the last place
_REACH = 8  # of how many neighbours on either side the CPU's error is looked at
_WIDER = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.float64: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class Verdict:
    """One operator in one dtype.

    Attributes:
        ours_ulp, cpu_ulp: the worst error, where the exact value is finite.
        at: the arguments of our worst error, and our result and the exact one.
        num_over: of how many elements the error is above what is allowed.
        over_ulp: the worst of their errors.
        over: where the error is the largest multiple of what is allowed, likewise.
    """

    op: str
    dtype: str
    ours_ulp: float
    cpu_ulp: float
    at: str
    num_over: int = 0
    over_ulp: float = 0.0
    over: str = ""


@dataclass(frozen=True)
class Pending:
    """Calls that are recorded, and whose results are not read yet."""

    subject: Subject
    dtype: torch.dtype
    arguments: list[torch.Tensor]
    result: torch.Tensor


def record(subject: Subject, dtype: torch.dtype) -> Pending:
    """Call the operator on the device."""
    arguments = subject.arguments(dtype)
    return Pending(subject, dtype, arguments, subject.function(*(a.to("tpu") for a in arguments)))


def judge(pending: Pending) -> Verdict:
    """Read the result and say how good it is."""
    subject, dtype, arguments = pending.subject, pending.dtype, pending.arguments
    theirs = subject.function(*arguments)
    exact = _exact(subject, dtype, arguments)
    ours = wide(pending.result)
    mine, other = errors(ours, exact, theirs.dtype), errors(wide(theirs), exact, theirs.dtype)
    bar = np.maximum(FACTOR * _allowed(subject, arguments, exact, other), FLOOR)
    astray = np.isinf(other)  # the CPU has an infinity, NaN or zero that is not right: ours may be that, or right
    worst = float(np.max(other[~astray], initial=0.0))
    bar = np.where(astray, max(FACTOR * worst, FLOOR), bar)
    same = astray & ((ours == wide(theirs)) | (np.isnan(ours) & np.isnan(wide(theirs))))
    over = (mine > bar) & ~same
    finite = np.where(np.isfinite(mine), mine, 0.0)

    def shown(score: np.ndarray) -> str:
        place = int(score.argmax())
        flat = [a.reshape(-1)[place].item() if a.numel() == score.size else "row" for a in arguments]
        return f"{flat}: {ours.reshape(-1)[place]:.9g} for {exact.reshape(-1)[place]:.9g}"

    name = str(dtype).removeprefix("torch.")
    verdict = Verdict(subject.name, name, float(finite.max(initial=0.0)), worst, shown(finite))
    if not over.any():
        return verdict
    return replace(
        verdict, num_over=int(over.sum()), over_ulp=float(mine[over].max()), over=shown(np.where(over, mine / bar, -1.0)))


def _exact(subject: Subject, dtype: torch.dtype, arguments: list[torch.Tensor]) -> Wide:
    """By the reference where it is wider than the dtype, and the CPU in the wider dtype elsewhere."""
    if subject.reference is not None and (dtype == torch.float64 or subject.name in SCIPY):
        with np.errstate(all="ignore"):
            found = subject.reference(*(wide(a) if dtype == torch.float64 else a.double().numpy() for a in arguments))
        return np.asarray(found).astype(np.longdouble)
    return wide(subject.function(*(a.to(_WIDER[dtype]) for a in arguments)))


def _allowed(subject: Subject, arguments: list[torch.Tensor], exact: Wide, error: np.ndarray) -> np.ndarray:
    """The CPU's error, or what it is close by: whether that of one element is small is luck.

    Close by are rows of the same kind or, else, the elements that are next in the order of the argument or, of several, of the
    exact value.
    """
    finite = np.where(np.isfinite(error), error, 0.0)
    if subject.rows:
        _, kind = inputs.rows(torch.float32)
        return np.stack([np.full(finite.shape[1:], finite[kind == k].max()) for k in kind])
    order = np.argsort(arguments[0].double().numpy() if len(arguments) == 1 else np.abs(exact), kind="stable")
    padded = np.pad(finite[order], _REACH)
    worst = np.lib.stride_tricks.sliding_window_view(padded, 2 * _REACH + 1).max(1)
    found = np.empty_like(finite)
    found[order] = worst
    return found
