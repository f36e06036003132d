"""One sample compiled for a chip that need not be here: nothing is compared, and mostly nothing runs."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch

import torchtpu
from tests.opinfo.case import CPU, Case, Side, tensors
from tests.opinfo.check import TPU, Verdict, told
from tests.opinfo.effects import Effects, Problem, run
from torchtpu import _C
from torchtpu.errors import AbstractTensorError, UnsupportedDtypeError
from torchtpu.estimate.ahead_of_time import compile_for
from torchtpu.graph.program import RecordedProgram
from torchtpu.runtime.bridge import Bridge

CANDIDATES = 8  # first samples among which one is chosen: the very first is often a single number
_MOST_ELEMENTS = 1 << 16  # compiling a gather or a sort takes the longer the larger they are


@dataclass
class _Recording:
    """What one call left to compile, and what of it no program holds."""

    programs: list[RecordedProgram] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)  # operator -> why it is in no program


def chosen(cases: Iterable[Case]) -> Case | None:
    """The largest case that is not huge, the first of equals; if all are, the smallest. None if there is none."""
    sizes = [(sum(t.numel() for t in tensors((case.args, case.kwargs))), case) for case in cases]
    fitting = [pair for pair in sizes if pair[0] <= _MOST_ELEMENTS]
    size = operator.itemgetter(0)
    _, case = max(fitting, key=size) if fitting else min(sizes, key=size, default=(0, None))
    return case


def compile_case(case: Case, topology: str) -> Verdict:
    """Record the call with its gradients, and compile the programs that came of it for one chip of ``topology``."""
    try:
        recording = _recorded(case)
    except Exception as error:
        try:
            want = _call(case, CPU)
        except Exception as refusal:  # perhaps of the gradients only
            if case.gradients:
                return compile_case(replace(case, gradients=False), topology)
            return _verdict("cpu-refuses", told(refusal))
        return _verdict(_outcome(error, "error") if want.is_plain else "layout", told(error))
    try:
        for program in recording.programs:
            compile_for(program, topology)
    except Exception as error:  # lowering and compiling raise many types
        return _verdict(_outcome(error, "compile-fail"), told(error))
    if recording.apart:
        return _verdict("compile-part", "; ".join(f"{op}: {why}" for op, why in recording.apart.items()))
    return _verdict("compile-pass" if recording.programs else "compile-none", "")


def _outcome(error: Exception, otherwise: str) -> str:
    return "unsupported" if isinstance(error, NotImplementedError | UnsupportedDtypeError) else otherwise


def _verdict(outcome: str, message: str) -> Verdict:
    return Verdict([Problem(outcome, message)], outcome)


def _call(case: Case, device: torch.device) -> Effects:
    effects = run(case, Side(case, device))
    if case.gradients:
        effects.differentiate(False)
    return effects


def _recorded(case: Case) -> _Recording:
    """Without values, if the call reads none; else it runs here, and what it compiles on its way is caught."""
    try:
        with _recording("keep_abstract", forward=False) as recording, torchtpu.abstract():
            _call_and_flush(case)
    except AbstractTensorError:
        _C.clear_programs()  # a known program would not be compiled again
        with _recording("compile", forward=True) as recording:
            _call_and_flush(case)
    return recording


def _call_and_flush(case: Case) -> None:
    kept = _call(case, TPU)  # only what is still alive is computed
    torch.tpu.synchronize()
    del kept


@contextlib.contextmanager
def _recording(method: str, forward: bool) -> Iterator[_Recording]:
    """Catch the programs that the core sends to ``method`` of the bridge, and the operators that are in none."""
    recording = _Recording()
    original, fallback, dynamic = getattr(Bridge, method), Bridge.note_fallback, Bridge.run_dynamic

    def take(bridge: Bridge, sent: dict[str, Any]) -> Any:
        program = RecordedProgram.parse(sent)
        if program.outputs:
            recording.programs.append(program)
        return original(bridge, sent) if forward else None

    def note_fallback(bridge: Bridge, op: str) -> None:
        recording.apart[op] = "runs on the CPU"
        fallback(bridge, op)

    def run_dynamic(bridge: Bridge, lowered: Any, *rest: Any) -> Any:
        recording.apart[lowered.op] = "its shape depends on values"
        return dynamic(bridge, lowered, *rest)

    with contextlib.ExitStack() as patches:
        for function in (note_fallback, run_dynamic):
            patches.enter_context(mock.patch.object(Bridge, function.__name__, function))
        patches.enter_context(mock.patch.object(Bridge, method, take))
        yield recording
