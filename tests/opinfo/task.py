"""One task, from its samples to its record."""

from __future__ import annotations

import functools
import itertools
import os
import random
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import torch

import torchtpu.inspect
from tests.opinfo import samples
from tests.opinfo.case import Case
from tests.opinfo.check import Verdict, check, check_error, told
from tests.opinfo.compiling import CANDIDATES, chosen, compile_case
from tests.opinfo.database import ERRORS, Task, entries
from tests.opinfo.options import Checks
from tests.opinfo.outcomes import Record
from torchtpu import _C

_MOST_PROGRAMS = 256  # few are used by another sample, and each takes memory
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def run_task(task: Task, checks: Checks) -> Record:
    """Check all samples of one entry in one dtype."""
    record = Record(checks.key)
    entry = entries(task.suite)[task.entry]
    torchtpu.inspect.reset_counters()
    start = time.perf_counter()
    with torch.tpu.set_eager_mode(checks.mode), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _seed(task.key)
        if task.dtype == ERRORS:
            _run(record, samples.error_cases(task.suite, entry), lambda case: check_error(case, checks.mode))
        elif checks.topology:
            _compile(record, task, checks)
        else:
            if checks.torch_compile:
                torch._dynamo.reset()  # what it remembers of other entries counts as recompilation
            cases = samples.cases(task.suite, entry, getattr(torch, task.dtype), checks)
            _run(record, cases, functools.partial(check, torch_compile=checks.torch_compile))
    record.seconds = round(time.perf_counter() - start, 3)
    counters = torchtpu.inspect.counters()
    record.fallbacks, record.compiles = counters["fallbacks"], counters["compiles"]
    if counters["programs"] > _MOST_PROGRAMS:
        _C.clear_programs()
        jax.clear_caches()
    record.memory_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return record


def _run(record: Record, cases: Iterator[Case], judge: Callable[[Case], Verdict]) -> None:
    while True:
        try:
            case = next(cases)
        except StopIteration:
            return
        except Exception as error:  # PyTorch's own sample maker, on the CPU
            record.add("samples", "cpu-refuses", told(error))
            return
        verdict = judge(case)
        record.add(case.variant, verdict.outcome, f"{case}: {verdict.message}" if verdict.message else "")
        record.samples += 1
        record.random += verdict.random
        record.gradients += verdict.gradients
        record.refereed += verdict.refereed


def _compile(record: Record, task: Task, checks: Checks) -> None:
    """One of the first samples."""
    cases = samples.cases(task.suite, entries(task.suite)[task.entry], getattr(torch, task.dtype), checks)
    try:
        case = chosen(itertools.islice(cases, CANDIDATES))
    except Exception as error:  # PyTorch's own sample maker, on the CPU
        record.add("samples", "cpu-refuses", told(error))
        return
    if case is not None:
        verdict = compile_case(case, checks.topology)
        record.add("compile", verdict.outcome, f"{case}: {verdict.message}" if verdict.message else "")
        record.samples += 1


def _seed(text: str) -> None:
    number = zlib.crc32(text.encode())
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - the sample makers draw from it
