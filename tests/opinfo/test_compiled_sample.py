"""A small sample of the operator database under ``torch.compile``: ``python -m tests.opinfo --torch-compile`` makes it larger."""

from __future__ import annotations

import zlib

import pytest

from tests.opinfo.database import Task, dtypes, entries
from tests.opinfo.known import known
from tests.opinfo.options import Checks
from tests.opinfo.outcomes import FAILURES
from tests.opinfo.task import run_task

CHECKS = Checks(max_samples=2, grad=True, mode="fused", torch_compile=True)
ONE_IN = 50


def _sampled() -> list[str]:
    """Entries by a hash of their names: the same ones, whatever else is in the database."""
    chosen = [name for name in entries("ops") if zlib.crc32(name.encode()) % ONE_IN == 0]
    supported = [name for name in chosen if "torch.float32" in map(str, dtypes("ops", entries("ops")[name]))]
    return [name for name in supported if not known(name, "float32", "fn")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _sampled())
def test_compiled_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled on the device, the call does what it does on the CPU."""
    monkeypatch.setenv("TORCHTPU_FALLBACK", "silent")
    record = run_task(Task("ops", name, "float32"), CHECKS)
    assert not [f"{outcome}: {text}" for _, outcome, text in record.messages if outcome in FAILURES]
