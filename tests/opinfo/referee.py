"""Where device and CPU differ, which of the two is nearer to the result of float64.

A module is many operators, one after the other: in 16 bits their roundings add up to errors that are a matter of luck, of the CPU
as of the device. So it is also run with parameters that are one unit in the last place away, and the CPU's worst error counts.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.opinfo.case import CPU, Case, Side, is_plain, tensors
from tests.opinfo.effects import TOLERANCE, Effects, run

FACTOR = 2  # our error may be this many times the CPU's
NEIGHBOURS = 24
_WIDE = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}


class Referee:
    """Makes the call of a case in float64, once, if anything is doubtful."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.accepted = 0

    def accepts(self, kind: str, place: int, want: torch.Tensor, got: torch.Tensor) -> bool:
        """Whether the device's ``kind`` (result, memory or gradient) is as good as the CPU's, which is not good."""
        if want.dtype not in _WIDE or want.shape != got.shape or want.dtype != got.dtype or not is_plain(want):
            return False
        exact = _kind(self._exact, kind)
        if exact is None or place >= len(exact) or exact[place] is None or exact[place].shape != want.shape:
            return False
        ours, theirs = (_error(exact[place], result) for result in (got, want))
        if ours > FACTOR * theirs:
            theirs = max([theirs, *(_error(*(_kind(run, kind)[place] for run in pair)) for pair in self._neighbours)])
        accepted = ours <= (FACTOR * theirs if theirs < float("inf") else _allowed(exact[place], want.dtype))
        self.accepted += accepted
        return accepted

    @functools.cached_property
    def _exact(self) -> Effects | None:
        return _exactly(self._case)

    @functools.cached_property
    def _neighbours(self) -> list[tuple[Effects, Effects]]:
        """Of the module nearby: the call in float64, and on the CPU."""
        if not any(isinstance(leaf, torch.nn.Module) for leaf in tree_leaves(self._case.args)):
            return []
        draws = torch.Generator().manual_seed(0)
        nearby = [
            replace(self._case, args=tree_map(functools.partial(_nudged, draws), self._case.args)) for _ in range(NEIGHBOURS)]
        pairs = ((_exactly(case), _run(case)) for case in nearby)
        return [(exact, run) for exact, run in pairs if exact is not None]


def _kind(effects: Effects | None, kind: str) -> Any:
    if effects is None:
        return None
    return {"result": tensors(effects.processed), "memory": effects.side.memory(), "gradient": effects.gradients}[kind]


def _exactly(case: Case) -> Effects | None:
    """The call in float64."""
    try:
        return _run(replace(case, args=tree_map(_widened, case.args), kwargs=tree_map(_widened, case.kwargs)))
    except Exception:  # no such call in float64: then nothing is accepted
        return None


def _run(case: Case) -> Effects:
    effects = run(case, Side(case, CPU))
    if case.gradients:
        effects.differentiate(case.second_order)
    return effects


def _nudged(draws: torch.Generator, leaf: Any) -> Any:
    """A module whose parameters are the next floats, up or down."""
    if not isinstance(leaf, torch.nn.Module):
        return leaf
    leaf = copy.deepcopy(leaf)
    with torch.no_grad():
        for parameter in leaf.parameters():
            up = torch.rand(parameter.shape, generator=draws) < 0.5
            parameter.copy_(torch.nextafter(parameter, torch.where(up, torch.inf, -torch.inf).to(parameter.dtype)))
    return leaf


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
