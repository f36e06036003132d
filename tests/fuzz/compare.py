"""The CPU's run of a program beside the device's in every mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.fuzz.observe import Seen, Trace, run
from tests.fuzz.program import MODES, Program

_TOLERANCE = {
    torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 2e-5, torch.complex64: 2e-5, torch.float64: 1e-12,
    torch.complex128: 1e-12,
}


class Disagreement(AssertionError):
    """A program that does something else on the device."""

    def __init__(self, program: Program, mode: str, difference: str, raising: frozenset[int]) -> None:
        super().__init__(f"{mode}: {difference}\n\n{program.script(mode, raising)}")
        self.program, self.mode, self.difference, self.raising = program, mode, difference, raising


def check(program: Program, modes: tuple[str, ...] = MODES) -> None:
    """Run a program everywhere.

    Raises:
        Disagreement: the device did not do what the CPU does.
    """
    want = run(program, "cpu")
    for mode in modes:
        with torch.tpu.set_eager_mode(mode):
            got = run(program, "tpu")
        difference = next(differences(program, want, got), None)
        if difference is not None:
            raise Disagreement(program, mode, difference, want.raising)


def differences(program: Program, want: Trace, got: Trace) -> Iterator[str]:
    """How the second trace differs from the first, the earliest difference first."""
    # A gradient that goes from device to device is a new tensor there, and the user's own on the CPU: other versions.
    any_version = any("to(device)" in line for line in program.lines)
    for line, mine, theirs in zip(program.lines, want.seen, got.seen, strict=True):
        yield from (f"after `{line}`: {told}" for told in _line(mine, theirs, any_version))
    for name, mine in want.values.items():
        told = _value(mine, got.values[name], program.exact)
        if told:
            yield f"{name}: {told}"


def _line(want: Seen, got: Seen, any_version: bool) -> Iterator[str]:
    if want.error is None and got.error is not None:
        yield f"raises {type(got.error).__name__}: {got.error}"
    elif want.error is not None and not isinstance(got.error, type(want.error)):
        yield f"raises {got.error!r} where the CPU raises {want.error!r}"
    if want.facts.keys() != got.facts.keys():
        yield f"there are {sorted(got.facts)} where the CPU has {sorted(want.facts)}"
        return
    for name, mine in want.facts.items():
        theirs = got.facts[name]
        for what in mine:
            if what == "version" and any_version and name.endswith(".grad"):
                continue
            if mine[what] != theirs[what] and not (what == "stride" and _same_places(mine, theirs)):
                yield f"{name} has {what} {theirs[what]} where the CPU has {mine[what]}"


def _same_places(want: dict[str, Any], got: dict[str, Any]) -> bool:
    """Whether strides differ only along dimensions that have no second place."""
    if 0 in want["shape"]:
        return True
    return all(size == 1 or a == b for size, a, b in zip(want["shape"], want["stride"], got["stride"], strict=True))


def _value(want: torch.Tensor | Exception, got: torch.Tensor | Exception, exact: bool) -> str:
    """In what the values differ; NaN is the same as NaN, and half precision is rounded in other places."""
    if isinstance(want, Exception) or isinstance(got, Exception):
        return f"is {got!r} where the CPU has {want!r}"
    tolerance = _TOLERANCE.get(want.dtype, 0.0)
    if exact and want.dtype not in (torch.bfloat16, torch.float16):
        tolerance = 0.0
    scale = max(1.0, float(want.abs().nan_to_num(0, 0, 0).max())) if tolerance and want.numel() else 1.0
    try:
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True, check_stride=False)
    except AssertionError:
        return f"is {got.tolist()} where the CPU has {want.tolist()}"
    return ""
