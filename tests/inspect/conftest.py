"""A process that has compiled nothing yet, as far as explanations go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torchtpu.inspect
from torchtpu import _C
from torchtpu.runtime import known_programs
from torchtpu.runtime.counters import counters


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No program of an earlier test is reused, counted, compared with, or loaded from disk."""
    torch.empty(1, device="tpu")
    from torchtpu.runtime import disk_cache

    monkeypatch.setattr(disk_cache, "of_process", lambda: None)
    _C.flush_all(-1, "test", False)
    _C.clear_programs()
    known_programs.forget()
    counters.programs.clear()
    torchtpu.inspect.reset_counters()
    yield
    torch.tpu.synchronize()
