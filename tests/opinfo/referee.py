"""Where device and CPU differ, which of the two is nearer to the result of float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tests.opinfo.case import CPU, Case, Side, is_plain, tensors
from tests.opinfo.effects import TOLERANCE, Effects, run

FACTOR = 2  # our error may be this many times the CPU's
_WIDE = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}


class Referee:
    """Makes the call of a case in float64, once, if anything is doubtful."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._exact: Effects | None = None
        self._asked = False
        self.accepted = 0

    def accepts(self, kind: str, place: int, want: torch.Tensor, got: torch.Tensor) -> bool:
        """Whether the device's ``kind`` (result, memory or gradient) is as good as the CPU's, which is not good."""
        if want.dtype not in _WIDE or want.shape != got.shape or want.dtype != got.dtype or not is_plain(want):
            return False
        exact = self._found(kind)
        if exact is None or place >= len(exact) or exact[place] is None or exact[place].shape != want.shape:
            return False
        ours, theirs = (_error(exact[place], result) for result in (got, want))
        accepted = ours <= (FACTOR * theirs if theirs < float("inf") else _allowed(exact[place], want.dtype))
        self.accepted += accepted
        return accepted

    def _found(self, kind: str) -> Any:
        if not self._asked:
            self._asked = True
            self._exact = self._run()
        if self._exact is None:
            return None
        return {
            "result": tensors(self._exact.processed), "memory": self._exact.side.memory(), "gradient": self._exact.gradients,
        }[kind]

    def _run(self) -> Effects | None:
        case = replace(self._case, args=tree_map(_widened, self._case.args), kwargs=tree_map(_widened, self._case.kwargs))
        try:
            exact = run(case, Side(case, CPU))
            if case.gradients:
                exact.differentiate(case.second_order)
        except Exception:  # no such call in float64: then nothing is accepted
            return None
        return exact


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.nn.Module):
        return copy.deepcopy(leaf).double()
    if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _WIDE or not is_plain(leaf):
        return leaf
    memory = torch.empty(0, dtype=leaf.dtype).set_(leaf.untyped_storage()).to(_WIDE[leaf.dtype])
    wide = memory.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())
    return (wide.conj() if leaf.is_conj() else wide).requires_grad_(leaf.requires_grad)


def _allowed(exact: torch.Tensor, dtype: torch.dtype) -> float:
    """The error that is allowed where the CPU's result is no measure, because it has infinities or NaNs that are not right."""
    rtol, atol = TOLERANCE[dtype]
    finite = exact.detach()[torch.isfinite(exact.detach().to(dtype))]
    return atol + rtol * float(finite.abs().max()) if finite.numel() else atol


def _error(exact: torch.Tensor, result: torch.Tensor) -> float:
    """The largest error where the exact value is finite in the dtype; infinite if infinities or NaNs are elsewhere."""
    finite = torch.isfinite(exact.detach().to(result.dtype))
    exact, result = exact.detach(), result.detach().cpu().to(exact.dtype)
    if not torch.equal(finite, torch.isfinite(result)):
        return float("inf")
    return float((exact - result)[finite].abs().max()) if finite.any() else 0.0
