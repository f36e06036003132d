"""A sample of the operator database: every entry in one dtype, its first two samples and their gradients."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.opinfo.database import Task, dtypes, entries
from tests.opinfo.known import KNOWN, known
from tests.opinfo.options import Checks
from tests.opinfo.outcomes import FAILURES
from tests.opinfo.task import run_task

CHECKS = Checks(max_samples=2, grad=True, mode="fused")  # one program a sample; strict mode would compile four
ROTATION = (torch.float32, torch.int64, torch.bfloat16, torch.complex64, torch.bool)


def _rotated(name: str) -> torch.dtype | None:
    """The entry's turn in the rotation: always the same, whatever else is in the database. None if the CPU has no such operator."""
    supported = dtypes("ops", entries("ops")[name])
    turns = [dtype for dtype in ROTATION if dtype in supported] or sorted(supported, key=str)
    return turns[zlib.crc32(name.encode()) % len(turns)] if turns else None


def _parameters() -> Iterator[Any]:
    for name in entries("ops"):
        turn = _rotated(name)
        if turn is None:
            continue
        dtype = str(turn).removeprefix("torch.")
        key = known(name, dtype, "fn")
        marks = [pytest.mark.xfail(reason=KNOWN[key], strict=True)] if key else []
        yield pytest.param(Task("ops", name, dtype), id=f"{name}-{dtype}", marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", list(_parameters()))
def test_sample(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device does what the CPU does."""
    monkeypatch.setenv("TORCHTPU_FALLBACK", "silent")  # which operators have no rule is another test's business
    record = run_task(task, CHECKS)
    told = [f"{outcome}: {text}" for _, outcome, text in record.messages if outcome in FAILURES]
    if told:
        options = f"--only '^{task.entry}$' --dtypes {task.dtype} --max-samples 2 --grad --mode fused --failures"
        pytest.fail("\n".join([*told, f"run it again: python -m tests.opinfo {options}"]), pytrace=False)
