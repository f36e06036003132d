"""Counting the programs that a piece of code makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch

import torchtpu.inspect
from torchtpu import _C
from torchtpu.runtime.counters import ProgramRecord, counters


@dataclass
class Count:
    """Programs made since the test began."""

    @property
    def records(self) -> list[ProgramRecord]:
        """All of them, fills too."""
        return torchtpu.inspect.programs()

    @property
    def programs(self) -> int:
        """Distinct programs, fills left out."""
        return len({r.key for r in self.records if not r.fills})

    @property
    def fills(self) -> int:
        """Distinct programs that only fill fresh state."""
        return len({r.key for r in self.records if r.fills})

    @property
    def launches(self) -> int:
        """Programs run."""
        return torchtpu.inspect.counters()["launches"]

    @property
    def reasons(self) -> dict[str, int]:
        """Flushes by reason."""
        return torchtpu.inspect.counters()["flushes"]

    def restart(self) -> None:
        """Count from here."""
        _C.flush_all(-1, "test", False)
        _C.clear_programs()
        counters.programs.clear()
        torchtpu.inspect.reset_counters()


@pytest.fixture
def count() -> Iterator[Count]:
    """A count that starts at nothing known: no program of an earlier test is reused."""
    torch.empty(1, device="tpu")
    count = Count()
    count.restart()
    yield count
    torch.tpu.synchronize()


@pytest.fixture
def mode() -> Iterator[Callable[[str], None]]:
    """Sets the eager mode; it is fused again afterwards."""
    yield torch.tpu.set_eager_mode
    torch.tpu.set_eager_mode("fused")
